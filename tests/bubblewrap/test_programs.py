"""What people run in sandboxes works under the filter of system calls, as it does outside."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make, until

GO = shutil.which("docker")
RUST = sorted(Path("~/.rustup/toolchains").expanduser().glob("*/bin/cargo"))


def has(*programs: str) -> pytest.MarkDecorator:
    missing = [name for name in programs if not Path(f"/usr/bin/{name}").exists()]
    return pytest.mark.skipif(bool(missing), reason=f"not in /usr/bin: {', '.join(missing)}")


async def _runs(box, script: str) -> str:
    end, out, err = await box.run("sh", "-ec", script)
    assert end.code == 0, (out + err).decode()
    return out.decode()


_MULTIPROCESSING = """
import asyncio, multiprocessing as m, os, signal, socket, ssl, sys, threading, time
from multiprocessing import shared_memory

def square(number):
    return number * number

async def served():
    server = await asyncio.start_server(lambda reader, writer: (writer.write(b"hello"), writer.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    return await reader.read()

if __name__ == "__main__":
    for way in ("fork", "spawn", "forkserver"):
        context = m.get_context(way)
        with context.Pool(2) as pool:
            assert pool.map(square, range(5)) == [0, 1, 4, 9, 16], way
        queue, lock = context.Queue(), context.Lock()
        with lock:
            queue.put(way)
        assert queue.get(timeout=20) == way
    memory = shared_memory.SharedMemory(create=True, size=4096)
    memory.buf[:2] = b"ok"
    memory.close(); memory.unlink()
    assert asyncio.run(served()) == b"hello"
    ours, theirs = socket.socketpair()
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
        socket.socket(family, socket.SOCK_DGRAM if family != socket.AF_NETLINK else socket.SOCK_RAW).close()
    threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(20)]
    [one.start() for one in threads], [one.join() for one in threads]
    os.close(os.memfd_create("x")); os.close(os.eventfd(1)); os.close(os.pidfd_open(os.getpid()))
    os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1); os.getrandom(4); os.copy_file_range
    assert ssl.create_default_context()
    print("all")
"""


async def test_pythons_processes_sockets_and_threads_work(make: Make) -> None:
    box = await make()
    end, _, err = await box.run("sh", "-c", "cat > /tmp/all.py", stdin=_MULTIPROCESSING.encode())
    assert end.code == 0, err
    assert await _runs(box, "python3 /tmp/all.py") == "all\n"


async def test_the_main_command_and_a_shell_run_them_too(make: Make) -> None:
    box = await make(
        "python3", "-c", "import multiprocessing as m; print(m.get_context('fork').Pool(2).map(abs, [-1, -2]))"
    )
    await until(lambda: not box.backend._store.get(box.ref.id).status.live)
    assert await box.text() == b"[1, 2]\n"


@has("git", "make")
async def test_git_and_make_work(make: Make) -> None:
    box = await make()
    script = """
    cd ~; git init -q one; cd one; git config user.email a@b; git config user.name a
    printf 'all: a b\\na b:\\n\\t@echo $@ >$@\\n' >Makefile; make -s -j2; git add .; git commit -qm first
    cd ~; git clone -q one two; cd two; git gc -q; git log --format=%s; cat a b
    """
    assert await _runs(box, script) == "first\na\nb\n"


async def test_pip_installs(make: Make, workspace: Path) -> None:
    wheel = workspace / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("small.py", "print('small')\n")
        file.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        file.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("small-1.0.dist-info/RECORD", "")
    box = await make(workspace=str(workspace))
    script = """
    cd ~; python3 -m venv env; env/bin/python -m pip install -q --no-index /workspace/small-1.0-py3-none-any.whl
    env/bin/python -m small
    """
    assert await _runs(box, script) == "small\n"


@has("node")
async def test_node_works(make: Make) -> None:
    box = await make()
    script = r"""
    const { Worker } = require("worker_threads"), fs = require("fs"), { execFileSync } = require("child_process");
    const server = require("http").createServer((_, answer) => answer.end("hello")).listen(0, "127.0.0.1", async () => {
        const text = await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text();
        await fs.promises.writeFile("/tmp/x", text);
        const worker = new Worker("require('worker_threads').parentPort.postMessage(40 + 2)", { eval: true });
        worker.on("message", (number) => {
            console.log(fs.readFileSync("/tmp/x", "utf8"), number, execFileSync("echo", ["child"]).toString().trim());
            process.exit(0);
        });
    });
    """
    end, out, err = await box.run("node", "-e", script)
    assert (out, end.code) == (b"hello 42 child\n", 0), err


@pytest.mark.slow
@has("npm", "node")
async def test_npm_installs(make: Make) -> None:
    script = """
    mkdir -p ~/dep ~/app; cd ~/dep; echo '{"name":"dep","version":"1.0.0"}' >package.json; echo 'module.exports = 7' >index.js
    cd ~/app; npm init -y >/dev/null; npm install --offline --no-audit --no-fund --silent ../dep; node -p 'require("dep")'
    """
    assert await _runs(await make(), script) == "7\n"


@has("apt-get")
async def test_apts_own_sandbox_works(make: Make) -> None:
    """apt loads a filter of its own into the processes that fetch, which come by ``file:`` here."""
    script = """
    mkdir -p /tmp/repo /tmp/state/lists/partial /tmp/cache/archives/partial /tmp/etc; cd /tmp/repo
    printf 'Package: small\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: a <a@b>\\nFilename: ./x.deb\\nSize: 1\\n' >Packages
    echo 'deb [trusted=yes] copy:/tmp/repo ./' >/tmp/etc/sources.list
    set -- -o Dir::Etc=/tmp/etc -o Dir::State=/tmp/state -o Dir::Cache=/tmp/cache -o Dir::State::status=/dev/null
    set -- "$@" -o APT::Sandbox::Seccomp=true -o APT::Sandbox::User= -o Debug::NoLocking=1
    apt-get "$@" update >&2; apt-cache "$@" policy small | grep Candidate
    """
    assert await _runs(await make(user="root"), script) == "  Candidate: 1.0\n"


@has("gcc")
async def test_a_compiler_and_what_it_made_work(make: Make) -> None:
    script = """
    cd /tmp; printf '#include <stdio.h>\\n#include <threads.h>\\nint f(void*x){return 5;}\\nint main(){thrd_t t;int r;\\
    thrd_create(&t,f,0);thrd_join(t,&r);printf("%%d\\\\n",r);}' >a.c; gcc -O2 -pthread a.c; ./a.out
    """
    assert await _runs(await make(), script) == "5\n"


@has("strace")
async def test_strace_works_where_ptrace_is_asked_for(make: Make) -> None:
    script = "strace -f -o /tmp/out true; grep -c exited /tmp/out"
    assert await _runs(await make(ptrace=True), script) == "1\n"
    end, _, err = await (await make()).run("strace", "true")
    assert end.code != 0
    assert b"not permitted" in err


@has("gdb")
async def test_gdb_works_where_ptrace_is_asked_for(make: Make) -> None:
    said = await _runs(await make(ptrace=True), "gdb -batch -nx -ex starti -ex 'p 40+2' -ex kill /usr/bin/env 2>&1")
    assert "$1 = 42" in said
    assert "stopped" in said
    assert "stopped" not in await (await make()).sh("gdb -batch -nx -ex starti -ex kill /usr/bin/env 2>&1")


_SERVE = """
import http.server
class One(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Api-Version", "1.43"); self.end_headers(); self.wfile.write(b'[]')
    do_HEAD = do_GET
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", 7373), One).serve_forever()
"""


@pytest.mark.skipif(not GO, reason="no docker, which is the Go program at hand")
async def test_a_go_program_works(make: Make, workspace: Path) -> None:
    """Docker's client: static, many threads, the runtime's own poller, signals; it talks to a server in the sandbox."""
    shutil.copy2(GO, workspace / "docker")
    (workspace / "serve.py").write_text(_SERVE)
    script = """
    python3 /workspace/serve.py & until bash -c '</dev/tcp/127.0.0.1/7373' 2>/dev/null; do sleep 0.05; done
    export HOME=/tmp DOCKER_HOST=tcp://127.0.0.1:7373; GOMAXPROCS=8 /workspace/docker ps -a; kill %1
    """
    end, out, err = await (await make(workspace=str(workspace))).run("bash", "-ec", script)
    assert (end.code, out.startswith(b"CONTAINER ID")) == (0, True), err


@pytest.mark.slow
@pytest.mark.skipif(not RUST or os.geteuid() != 0, reason="no Rust toolchain in root's home")
async def test_cargo_builds(make: Make, workspace: Path) -> None:
    toolchain = RUST[-1].parents[1]
    for name in ("bin", "lib"):
        shutil.copytree(toolchain / name, workspace / "rust" / name, symlinks=True, copy_function=_linked)
    script = """
    export PATH=/workspace/rust/bin:$PATH CARGO_HOME=/tmp/cargo CARGO_TARGET_DIR=/tmp/target; cd ~
    cargo init -q --vcs none --name small one; cd one
    echo 'fn main(){let t=std::thread::spawn(||40+2);println!("{}",t.join().unwrap());}' >src/main.rs
    cargo run -q --offline
    """
    assert await _runs(await make(workspace=str(workspace)), script) == "42\n"


@pytest.mark.slow
@has("cargo", "rustc")
async def test_debians_cargo_builds_and_tests(make: Make) -> None:
    """The toolchain that every user has, so that this runs as an ordinary one too."""
    script = """
    export CARGO_HOME=/tmp/cargo CARGO_TARGET_DIR=/tmp/target; mkdir /tmp/new; cd /tmp/new
    cargo init -q --vcs none --name small one; cd one
    echo 'fn main(){let t=std::thread::spawn(||40+2);println!("{}",t.join().unwrap());}
    #[test] fn it() { std::process::Command::new("true").status().unwrap(); }' >src/main.rs
    cargo test -q --offline >/tmp/tested 2>&1 || { cat /tmp/tested; exit 1; }; cargo run -q --offline
    """
    assert await _runs(await make(), script) == "42\n"


@pytest.mark.slow
@has("go")
async def test_go_builds_and_tests(make: Make) -> None:
    """Its compiler, its race of goroutines with signals that preempt them, and what it made."""
    script = r"""
    export HOME=/tmp/go-home GOCACHE=/tmp/go-cache GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local CGO_ENABLED=0
    mkdir -p /tmp/small; cd /tmp/small; printf 'module small\ngo 1.19\n' >go.mod
    printf 'package main\nimport ("fmt"; "net"; "os/exec"; "sync")\nfunc main() {\n  var w sync.WaitGroup; n := make([]int, 8)
      for i := range n { w.Add(1); go func(i int) { defer w.Done(); for j := 0; j < 1e7; j++ { n[i] ^= j }; n[i] = 1 }(i) }
      l, e := net.Listen("tcp", "127.0.0.1:0"); if e != nil { panic(e) }; defer l.Close(); w.Wait()
      o, e := exec.Command("echo", "child").Output(); fmt.Print(len(n), " ", string(o))\n}\n' >main.go
    printf 'package main\nimport "testing"\nfunc TestIt(t *testing.T) { main() }\n' >main_test.go
    go test ./... >/tmp/tested 2>&1 || { cat /tmp/tested; exit 1; }; go build -o small .; GOMAXPROCS=8 ./small
    """
    assert await _runs(await make(), script) == "8 child\n"


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
