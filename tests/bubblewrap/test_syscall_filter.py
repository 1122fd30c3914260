"""What a guest asks of the kernel: the filter of system calls, keys, cores."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import ROOT, Make, host_pids, until
from tests.support.as_user import UID
from tests.support.syscalls import answers, listed, program, refused

from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the static program is x86-64's")
_KEYCTL = {"x86_64": 250}.get(platform.machine(), 219)
_ADD_KEY = {"x86_64": 248}.get(platform.machine(), 217)
_SESSION = -3
_JOIN, _READ, _CLEAR = 1, 11, 7
_libc = ctypes.CDLL(None, use_errno=True)

# A guest with no filter looks at its session's keys: what it can name, read, clear and put there.
_KEYS = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
call = libc.syscall
print("serial", call({_KEYCTL}, 0, {_SESSION}, 0))
room = ctypes.create_string_buffer(4096)
print("holds", call({_KEYCTL}, {_READ}, {_SESSION}, room, 4096))
print("clear", call({_KEYCTL}, {_CLEAR}, {_SESSION}))
print("poison", call({_ADD_KEY}, b"user", b"sandbox-console-poison", b"evil", 4, {_SESSION}) > 0)
"""


@pytest.fixture
def attack(workspace: Path):
    """The static program in the workspace, and the answers that it should get."""
    calls, wanted = refused()
    file = workspace / "attack"
    file.write_bytes(program(list(calls.values())))
    file.chmod(0o755)
    return workspace, wanted


def _wrong(output: bytes, wanted: dict[str, int]) -> dict[str, tuple[int, int]]:
    got = answers(output)
    assert len(got) == len(wanted)
    return {name: (one, want) for one, (name, want) in zip(got, wanted.items(), strict=True) if one != want}


@x86_64
async def test_every_refused_call_is_refused_to_a_command(make: Make, attack) -> None:
    workspace, wanted = attack
    box = await make(workspace=str(workspace))
    end, out, _ = await box.run("/workspace/attack")
    assert end.code == 0
    assert not _wrong(out, wanted)


@x86_64
async def test_every_refused_call_is_refused_to_a_shell(make: Make, attack) -> None:
    workspace, wanted = attack
    box = await make(workspace=str(workspace))
    shell = await box.shell()
    await shell.write(b"/workspace/attack > /workspace/out; exit 7\n")
    assert (await shell.wait()).code == 7
    await shell.close()
    assert not _wrong((workspace / "out").read_bytes(), wanted)


@x86_64
async def test_every_refused_call_is_refused_to_the_main_command(make: Make, attack) -> None:
    workspace, wanted = attack
    box = await make("/workspace/attack", workspace=str(workspace))
    await until(lambda: not _lives(box))
    assert not _wrong(await box.text(), wanted)


def _lives(box) -> bool:
    return box.backend._store.get(box.ref.id).status.live


async def _filters(box) -> set[str]:
    pid = box.raw["pid"]
    entered = (await box.sh("grep Seccomp: /proc/self/status; grep Seccomp: /proc/1/status")).split("\n")
    main = [line for line in Path(f"/proc/{pid}/status").read_text().split("\n") if line.startswith("Seccomp:")]
    return {line.split()[1] for line in [*entered, *main] if line}


async def test_the_first_process_the_main_command_and_those_that_enter_are_filtered(make: Make) -> None:
    assert await _filters(await make()) == {"2"}


async def test_without_the_filter_nothing_is_and_it_is_shown(make: Make) -> None:
    box = await make(seccomp="off")
    outer = Path("/proc/self/status").read_text().split("Seccomp:\t")[1][0]
    assert await _filters(box) == {outer}
    fact = next(one for one in (await box.show()).effective if one.field == "seccomp")
    assert (fact.value, fact.enforced) == ("off", False)


async def test_what_holds_is_shown(make: Make) -> None:
    box = await make()
    fact = next(one for one in (await box.show()).effective if one.field == "seccomp")
    assert (fact.value, fact.enforced) == ("filtered", True)


async def test_one_that_an_older_console_started_is_shown_as_unfiltered(make: Make, backend, monkeypatch) -> None:
    from sandbox_console.backends.bubblewrap import launch

    real = launch.order

    def older(*args):
        made = real(*args)
        del made["status"]["seccomp"]
        return made | {"seccomp": ""}

    with monkeypatch.context() as patch:
        patch.setattr(launch, "order", older)
        box = await make()
    fact = next(one for one in (await box.show()).effective if one.field == "seccomp")
    assert (fact.value, fact.enforced) == ("unfiltered", False)
    [told] = [one for one in await backend.diagnose() if one.what == "seccomp"]
    assert told.state == "warning"
    assert "box-0" in told.text
    await box.stop()
    await box.start()
    assert next(one for one in (await box.show()).effective if one.field == "seccomp").value == "filtered"
    assert [one.state for one in await backend.diagnose() if one.what == "seccomp"] == ["ok"]


async def test_the_doctor_names_bwrap_and_the_filter(backend) -> None:
    told = {one.what: one for one in await backend.diagnose()}
    assert told["seccomp"].state == "ok"
    version = backend._bwrap.version
    if tuple(map(int, version.split(".")[:2])) < (0, 12):
        assert "GHSA-pxhw-h44j-8pfx" in told["bwrap"].text
        assert "the console is not affected" in told["bwrap"].text


# -- debuggers


async def test_debuggers_work_only_where_asked(make: Make) -> None:
    trace = "import ctypes; print(ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0))"
    assert await (await make()).sh(f'python3 -c "{trace}"') == "-1\n"
    box = await make(ptrace=True)
    assert await box.sh(f'python3 -c "{trace}"') == "0\n"
    fact = next(one for one in (await box.show()).effective if one.field == "seccomp")
    assert (fact.value, fact.enforced) == ("filtered", True)
    assert "debuggers work" in fact.note
    script = f"import ctypes; print(ctypes.CDLL(None).syscall({_KEYCTL}, 0, {_SESSION}, 0))"
    assert await box.sh(f'python3 -c "{script}"') == "-1\n", "the rest is refused as ever"


# -- user namespaces


_INNER = (
    "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp --bind /workspace /workspace "
    "--die-with-parent --new-session sh -c 'echo $$ >/workspace/{0}; touch /usr/x 2>&1; cat /workspace/{0}'"
)


async def test_a_sandbox_works_in_a_sandbox_where_asked(make: Make, workspace: Path) -> None:
    assert "ermi" in await (await make(workspace=str(workspace))).sh(_INNER.format("refused"))
    box = await make("sh", "-c", _INNER.format("main") + "; sleep 1000", workspace=str(workspace), nested_userns=True)
    await until((workspace / "main").exists)
    for name in ("first", "again"):
        said = await box.sh(_INNER.format(name))
        assert "Read-only" in said
        assert said.endswith("2\n"), "its processes are its own"
    await box.sh("unshare -Urnm sh -c 'mount -t tmpfs none /tmp; touch /tmp/x; ls /tmp; ip link' >/workspace/own 2>&1")
    assert (workspace / "own").read_text().startswith("x\n1: lo")
    fact = next(one for one in (await box.show()).effective if one.field == "seccomp")
    assert (fact.value, fact.enforced) == ("filtered", True)
    assert "user namespaces work" in fact.note
    assert "ptrace" in fact.note
    assert "namespaces, AF" not in fact.note


async def test_what_enters_is_not_led_into_namespaces_of_the_main_commands(make: Make) -> None:
    """The main command has left for its own before the supervisor looks at it."""
    box = await make("unshare", "-Urnmi", "sh", "-c", "mount -t tmpfs none /tmp; touch /tmp/led; sleep 1000",
                     nested_userns=True)  # fmt: skip
    here = {name: await box.sh(f"readlink /proc/self/ns/{name}; readlink /proc/1/ns/{name}") for name in ("mnt", "net")}
    for name, said in here.items():
        assert len(set(said.split())) == 1, name
    assert "led" not in await box.sh("ls /tmp")


async def test_a_user_namespace_opens_nothing_of_the_rest(make: Make, workspace: Path, key: int) -> None:
    """Root of a namespace of its own tries what its capabilities are for."""
    box = await make(workspace=str(workspace), nested_userns=True)
    script = f"""
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def said(result):
    return ctypes.get_errno() if result < 0 else 0
print("keys", said(libc.syscall({_KEYCTL}, 0, {_SESSION}, 0)))
for number, name in ((321, "bpf"), (298, "perf"), (425, "io_uring"), (323, "userfaultfd"), (304, "handle"), (175, "module")):
    print(name, said(libc.syscall(number, 0, 0, 0, 0, 0)))
print("ptrace", said(libc.ptrace(0, 0, 0, 0)))
for family in (38, 40):
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("socket", 0)
    except PermissionError as error:
        print("socket", error.errno)
for path in ("/usr/x", "/proc/sys/kernel/core_pattern", "/sys/x"):
    try:
        open(path, "a").close()
        print(path, 0)
    except OSError as error:
        print(path, "closed")
for how in (("--remount", "-o", "remount,rw", "/usr"), ("-t", "sysfs", "none", "/tmp"), ("--move", "/usr", "/tmp")):
    print("mount", os.spawnlp(os.P_WAIT, "mount", "mount", *how) == 0)
"""
    (workspace / "try.py").write_text(script)
    numbers = platform.machine() == "x86_64"
    said = await box.sh("unshare -Urm python3 /workspace/try.py 2>/dev/null")
    for line in said.splitlines():
        what, _, answer = line.rpartition(" ")
        if numbers or what not in ("bpf", "perf", "io_uring", "userfaultfd", "handle", "module"):
            assert answer in ("1", "closed", "False"), line
    assert len(said.splitlines()) == 16, said
    assert "uid_map" not in await box.sh(
        "unshare -U sh -c 'echo 0 0 1 >/proc/self/uid_map' 2>&1 && cat /proc/1/environ"
    )
    assert _operators() == [key]


async def test_a_flood_of_user_namespaces_ends_with_its_sandbox(make: Make) -> None:
    box = await make(nested_userns=True, pids=64)
    await box.sh("for i in $(seq 1 40); do unshare -Urpf --mount-proc sleep 7791 >/dev/null 2>&1 & done; sleep 1")
    await box.remove()
    await until(lambda: not host_pids("sleep\x007791"))


# -- keys


@pytest.fixture
def key():
    """A key in the operator's session, in a session of this test's own."""
    assert _libc.syscall(_KEYCTL, _JOIN, None) > 0
    made = _libc.syscall(_ADD_KEY, b"user", b"sandbox-console-secret", b"operator's", 10, _SESSION)
    assert made > 0
    yield made
    _libc.syscall(_KEYCTL, _CLEAR, _SESSION)


def _operators() -> list[int]:
    room = ctypes.create_string_buffer(4096)
    size = _libc.syscall(_KEYCTL, _READ, _SESSION, room, 4096)
    return list(memoryview(room.raw[:size]).cast("i"))


async def test_the_operators_session_keys_are_in_no_guests_reach(make: Make, key: int) -> None:
    """Without the filter: it is the keyring itself that is another one."""
    serial = _libc.syscall(_KEYCTL, 0, _SESSION, 0)
    box = await make("python3", "-c", _KEYS + "import time; print('done', flush=True); time.sleep(1000)", seccomp="off")
    await until(lambda: _done(box))
    for said in (await box.sh(f"python3 -c '{_KEYS}'"), (await box.text()).decode()):
        lines = dict(line.split() for line in said.splitlines() if " " in line)
        assert int(lines["serial"]) != serial
        assert lines["holds"] == "0", "it is empty"
        assert lines["poison"] == "True", "it is one to be used"
    assert _operators() == [key], "nor could it be cleared or added to"


async def _done(box) -> bool:
    return b"done" in await box.text()


async def test_with_the_filter_no_key_can_be_asked_for(make: Make, key: int) -> None:
    box = await make()
    said = await box.sh(f"python3 -c '{_KEYS}'")
    assert said == "serial -1\nholds -1\nclear -1\npoison False\n"
    assert _operators() == [key]


async def test_the_kernels_list_of_keys_is_closed(make: Make, key: int) -> None:
    assert "sandbox-console-secret" in Path("/proc/keys").read_text()
    for fields in ({}, {"seccomp": "off"}):
        box = await make(**fields)
        assert "sandbox-console-secret" not in await box.sh("cat /proc/keys")


# -- memory and cores


def _core_limit(pid: int) -> list[str]:
    [line] = [one for one in Path(f"/proc/{pid}/limits").read_text().splitlines() if one.startswith("Max core")]
    return line.split()[4:6]


# Another process of the same user, without a capability: root's capabilities would open anything.
_PRY = """
import ctypes, os, struct, sys
pid, owner = map(int, sys.argv[1:])
if os.geteuid() == 0 and owner:
    os.setgroups([])
    os.setresgid(owner, owner, owner)
    os.setresuid(owner, owner, owner)
assert ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), bytes(24)) == 0
try:
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    print("open")
except PermissionError:
    print("closed")
"""


def _memory(pid: int) -> str:
    owner = Path(f"/proc/{pid}/status").read_text().split("Uid:\t")[1].split()[0]
    done = subprocess.run(["/usr/bin/python3", "-c", _PRY, str(pid), owner], capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def test_a_process_of_the_same_user_can_otherwise_be_read() -> None:
    """So that what follows can fail: as an ordinary user, for who is root without a capability may not read root's."""
    user = {"user": UID, "group": UID, "extra_groups": []} if ROOT else {}
    process = subprocess.Popen(["sleep", "1000"], **user)
    try:
        await until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        assert _memory(process.pid) == "open"
    finally:
        process.kill()
        process.wait()


async def test_the_supervisor_leaves_no_core_and_nobody_reads_its_memory(make: Make) -> None:
    box = await make(secrets=(ResolvedSecret("TOKEN", "hunter2"),))
    supervisor = box.raw["supervisor"]
    assert _core_limit(supervisor) == ["0", "0"]
    assert _memory(supervisor) == "closed"


async def test_the_file_helper_leaves_no_core_and_nobody_reads_its_memory(make: Make, workspace: Path) -> None:
    from sandbox_console.backends.bubblewrap import files

    box = await make(workspace=str(workspace))
    for live in (True, False):
        if not live:
            await box.stop()
        helper = await files._FileHelper.start(box.backend._store.get(box.ref.id), "upload", "/workspace")
        try:
            pid = helper._process.pid
            await until(lambda pid=pid: _core_limit(pid) == ["0", "0"] and _memory(pid) == "closed")
        finally:
            await helper.end()


def test_the_lists_are_one_anothers_complement() -> None:
    lists = listed()
    both = set(lists["allowed"]) & (set(lists["refused"]) | set(lists["ptrace"]) | set(lists["nested"]))
    assert not both
    assert {"keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"} <= set(lists["refused"])


def test_a_spec_without_them_is_what_it_was() -> None:
    plain = {"name": "x", "seccomp": "on", "ptrace": False, "nested_userns": False}
    assert SandboxSpec.from_dict(plain).to_dict() == {"name": "x", "image": ""}
    made = SandboxSpec.from_dict({"name": "x", "seccomp": "off", "ptrace": True, "nested_userns": True})
    assert SandboxSpec.from_dict(made.to_dict()) == made


async def test_what_only_looks_or_ends_starts_no_program(backend, monkeypatch) -> None:
    """A look at bwrap makes a sandbox: a third of what `exec NAME` of another backend's cost."""
    from sandbox_console.backends.bubblewrap import binary

    def find(wanted: str = "") -> None:
        raise AssertionError

    monkeypatch.setattr(binary, "find", find)
    await backend.close()
    backend._bwrap = None
    await backend.open()
    assert await backend.list() == []
