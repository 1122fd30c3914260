"""The server that carries commands out: a call is what it would be without it, and nobody else's calls are taken.

Most tests serve a stand-in for the console, which runs the Python that it is given: what is tested is the call.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.require import missing

from sandbox_console.background_process import ProcessFolder
from sandbox_console.command_server import client, served_calls

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

DIRECT = 99
SERVER = """
import os, sys, time
for folder in {path!r}: sys.path.insert(0, folder)
from sandbox_console.background_process import ProcessFolder
from sandbox_console.command_server import client, identity, server
hold = lambda: None
{more}
def run(words):
    there = {{"code": 0, "os": os, "sys": sys, "time": time}}
    exec(words[1], there)
    return there["code"]
place = ProcessFolder({folder!r}, make=True)
lock = place.take(identity.name_of(identity.key()))
if lock is not None:
    server.serve({folder!r}, lock, run, hold, {idle_s})
"""
CLIENT = """
import sys
from sandbox_console.command_server import client
client.folder = lambda: {folder!r}
caught = lambda: 0
{more}
code = client.carry_out(["exec", {program!r}], lambda: caught())
sys.exit({direct} if code is None else code)
"""


def until(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while not (found := true()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


class Rig:
    """A server of Python programs in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.base = folder
        self.folder = str(folder / "run")
        self.server: subprocess.Popen[bytes] | None = None

    def start(self, *, idle_s: float = 60, path: tuple[str, ...] = (), more: str = "") -> subprocess.Popen[bytes]:
        program = SERVER.format(folder=self.folder, idle_s=idle_s, path=path, more=more)
        self.server = subprocess.Popen([sys.executable, "-c", program], start_new_session=True, cwd="/")
        until(lambda: any(map(listens, self.sockets())) or self.server.poll() is not None, "no server")
        assert self.server.poll() is None, "code was changed just now?"
        return self.server

    def sockets(self) -> list[Path]:
        return [*Path(self.folder).glob("*.sock")]

    def popen(self, program: str, *before: str, more: str = "", **how: Any) -> subprocess.Popen[bytes]:
        source = CLIENT.format(folder=self.folder, program=program, direct=DIRECT, more=more)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*before, sys.executable, "-c", source], **pipes | how)

    def call(self, program: str, *before: str, **how: Any) -> tuple[int, str, str]:
        process = self.popen(program, *before, **how)
        out, err = process.communicate(timeout=60)
        return process.returncode, (out or b"").decode(), (err or b"").decode()

    def end(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGCONT)
            self.server.kill()
            self.server.wait()


@pytest.fixture
def rig() -> Iterator[Rig]:
    folder = Path(tempfile.mkdtemp(prefix="sc-cs-"))
    found = Rig(folder)
    try:
        yield found
    finally:
        found.end()
        shutil.rmtree(folder, ignore_errors=True)


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text(), f"{path} was not written")
    return int(path.read_text())


@pytest.mark.parametrize("code", [0, 3, 130, 255])
def test_the_exit_code_is_the_commands(rig: Rig, code: int) -> None:
    server = rig.start()
    assert rig.call(f"print(os.getppid()); code = {code}") == (code, f"{server.pid}\n", "")


def test_a_call_has_its_own_folder_mask_environment_words_and_files(rig: Rig) -> None:
    rig.start()
    away = rig.base / "away"
    away.mkdir()
    program = (
        "import json; here = os.getcwd();"
        "print(json.dumps([here, os.umask(0), os.environ['LONG'] == 'x' * 100_000, 'GONE' in os.environ,"
        " sys.stdin.read(), os.read(int(os.environ['FD']), 9).decode(), len(sys.argv)])); print('e', file=sys.stderr)"
    )
    reading, writing = os.pipe()
    os.write(writing, b"passed")
    env = os.environ | {"LONG": "x" * 100_000, "FD": str(reading)}
    with (rig.base / "in").open("w+") as stdin:
        stdin.write("typed")
        stdin.seek(0)
        done = rig.call(program, cwd=away, env=env, umask=0o027, stdin=stdin, pass_fds=[reading])
    os.close(reading)
    os.close(writing)
    assert (done[0], done[2]) == (0, "e\n")
    assert json.loads(done[1]) == [str(away), 0o027, True, False, "typed", "passed", 3]


def test_what_a_call_was_given_stays_in_its_own_process(rig: Rig) -> None:
    server = rig.start()
    assert rig.call("code = len(os.environ['SECRET'])", env=os.environ | {"SECRET": "sesame-opens"})[0] == 12
    assert rig.call("code = 'SECRET' in os.environ") == (0, "", "")
    assert b"sesame-opens" not in Path(f"/proc/{server.pid}/environ").read_bytes()
    assert len([*Path(f"/proc/{server.pid}/fd").iterdir()]) < 10, "a call's files are still open"


def test_closed_streams_stay_closed(rig: Rig) -> None:
    rig.start()
    told = rig.base / "told"
    program = f"open({str(told)!r}, 'w').write(repr([sys.stdin, sys.stdout, [os.path.exists(f'/dev/fd/{{n}}') for n in (0, 1)]]))"
    process = rig.popen(program, "sh", "-c", 'exec "$@" <&- >&-', "sh", stdin=None, stdout=None)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
    assert told.read_text().startswith("[None, None, [")


def test_a_deleted_folder_and_a_megabyte_of_environment(rig: Rig) -> None:
    rig.start()
    gone = rig.base / "gone"
    gone.mkdir()
    env = os.environ | {f"V{n}": "v" * 100_000 for n in range(10)}
    program = "\ntry: os.getcwd()\nexcept FileNotFoundError: code = len([n for n in os.environ if n[0] == 'V' and n[1:].isdigit()])"
    assert rig.call(program, "sh", "-c", f'cd {gone} && rmdir {gone} && exec "$@"', "sh", env=env)[0] == 10


def test_a_reader_that_goes_ends_it_as_without_a_server(rig: Rig) -> None:
    rig.start()
    program = (
        "\ntry:\n    while True: print('y', flush=True)\nexcept BrokenPipeError:\n    code = 141; sys.stdout = None"
    )
    process = rig.popen(program)
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(60) == 141
    process.stderr.close()


def test_signals_reach_it_and_ctrl_z_stops_both(rig: Rig) -> None:
    rig.start()
    told = rig.base / "pid"
    program = (
        f"import signal\nseen = []\nfor s in (signal.SIGWINCH, signal.SIGUSR1): signal.signal(s, lambda n, f: seen.append(n))\n"
        f"open({str(told)!r}, 'w').write(str(os.getpid()))\n"
        "try:\n    while True: time.sleep(0.01)\nexcept KeyboardInterrupt: code = len(seen)"
    )
    # A group of its own, below one of the same session: the kernel drops SIGTSTP for a group that has no such parent.
    process = rig.popen(program, process_group=0)
    child = pid_in(told)
    state = lambda pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]  # noqa: E731
    process.send_signal(signal.SIGTSTP)
    until(lambda: state(process.pid) == state(child) == "T", "they did not stop")
    process.send_signal(signal.SIGCONT)
    until(lambda: state(child) in "SR", "it did not go on")
    for signum in (signal.SIGWINCH, signal.SIGUSR1):
        process.send_signal(signum)
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 2


HELD = """
import os, select, signal
from sandbox_console.cli import signals
held = signals.hold()
caught = lambda: held.caught
def come(): os.kill(os.getpid(), signal.SIGINT)
def after(holder, name, then):
    first = getattr(holder, name)
    def both(*given):
        result = first(*given)
        then(*given)
        return result
    setattr(holder, name, both)
"""
OBEYED = """
from sandbox_console.cli.signals import Taken
with Taken() as signals:
    while not signals.exit_code(): time.sleep(0.01)
    code = signals.exit_code()
"""


@pytest.mark.parametrize(
    "moment",
    [
        "come()",
        "after(client.request, 'send', lambda *given: come())",
        "after(client, '_prepared', lambda *given: come())",
        "after(client._Forwarding, '__enter__', lambda *given: come())",
        "after(client._Forwarding, 'begin', lambda *given: come())",
    ],
)
def test_a_signal_counts_from_the_commands_first_moment(rig: Rig, moment: str) -> None:
    rig.start(more="from sandbox_console.cli.signals import hold")
    assert rig.call(OBEYED, more=HELD + moment) == (130, "", "")


def test_a_signal_that_came_for_a_child_that_never_began_is_the_commands(rig: Rig) -> None:
    rig.start()
    more = HELD + (
        "kept = []\n"
        "after(client, '_prepared', lambda connection, *rest: kept.append(connection))\n"
        "def lost(forwarding):\n"
        "    signal.pidfd_send_signal(forwarding._process, signal.SIGKILL)\n"
        "    gone = select.poll(); gone.register(kept[0], 0); gone.poll()\n"
        "    come()\n"
        "after(client._Forwarding, '__enter__', lost)\n"
        "import atexit; atexit.register(lambda: print(held.caught))"
    )
    assert rig.call("pass", more=more) == (DIRECT, f"{signal.SIGINT}\n", "")


def test_a_child_that_ends_itself_at_once_is_told_with_its_code_and_no_code_ends_the_server(rig: Rig) -> None:
    server = rig.start()
    assert rig.call("os._exit(130)") == (130, "", ""), "so a second Ctrl+C ends a command"
    assert rig.call("code = 75")[0] == 75, "of a guest's program, say: it is not the word for changed code"
    assert rig.call("print(os.getppid())") == (0, f"{server.pid}\n", "")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_call_that_is_killed_is_told_as_killed(rig: Rig, signum: signal.Signals) -> None:
    rig.start()
    told = rig.base / "pid"
    process = rig.popen(f"open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    child = pid_in(told)
    os.kill(child, signum) if signum == signal.SIGKILL else process.send_signal(signum)
    process.communicate(timeout=60)
    assert process.returncode == -signum


def test_where_the_caller_is_killed_it_is_told_that_its_terminal_went(rig: Rig) -> None:
    rig.start()
    told, ended = rig.base / "pid", rig.base / "ended"
    program = (
        f"import signal\nsignal.signal(signal.SIGHUP, lambda n, f: sys.exit(open({str(ended)!r}, 'w').write('hangup')))\n"
        f"open({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"
    )
    process = rig.popen(program)
    pid_in(told)
    process.kill()
    process.communicate()
    until(lambda: ended.exists() and ended.read_text() == "hangup", "it goes on for nobody")


def test_where_the_caller_is_killed_that_ignores_hangups_it_is_told_to_end(rig: Rig) -> None:
    rig.start()
    told = rig.base / "pid"
    process = rig.popen(f"open({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)", "nohup")
    child = pid_in(told)
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{child}").exists(), "it goes on, and nobody sees it")


def test_a_server_that_is_killed_does_not_take_its_calls_with_it(rig: Rig) -> None:
    server = rig.start()
    told, go = rig.base / "pid", rig.base / "go"
    program = f"open({str(told)!r}, 'w').write('1')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\ncode = 7"
    process = rig.popen(program)
    pid_in(told)
    server.kill()
    server.wait()
    go.touch()
    process.communicate(timeout=60)
    assert process.returncode == 7
    assert rig.call("code = 1")[0] == DIRECT, "its socket is still there, and nobody listens"
    rig.start()
    assert rig.call("code = 1")[0] == 1, "a new one takes its place"


def test_where_both_are_killed_the_end_is_told_as_unknown(rig: Rig) -> None:
    server = rig.start()
    told = rig.base / "pid"
    process = rig.popen(f"open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    child = pid_in(told)
    server.kill()
    server.wait()
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert b"what it did is not known" in err


def test_a_frozen_server_does_nothing_later(rig: Rig) -> None:
    server = rig.start()
    made = rig.base / "made"
    server.send_signal(signal.SIGSTOP)
    assert rig.call(f"open({str(made)!r}, 'w')")[0] == DIRECT
    server.send_signal(signal.SIGCONT)
    assert rig.call("code = 5")[0] == 5, "it serves again"
    assert not made.exists()


@pytest.mark.parametrize("step", ["nothing", "half", "ready"])
def test_a_caller_that_goes_before_it_said_go_has_asked_for_nothing(rig: Rig, step: str) -> None:
    server = rig.start()
    made = rig.base / "made"
    more = (
        "import os, socket\nfrom sandbox_console.command_server import request\n"
        "def prepared(connection, asked, words):\n"
        "    handed, files = request.mine(asked, ['x', *words])\n"
        f"    step = {step!r}\n"
        "    if step == 'half': connection.sendall((10**6).to_bytes(8, 'big') + b'x')\n"
        "    if step == 'ready': request.send(connection, handed, files); request.with_files(connection, 17, 1)\n"
        "    raise OSError('gone')\n"
        "client._prepared = prepared"
    )
    assert rig.call(f"open({str(made)!r}, 'w')", more=more)[0] == DIRECT
    until(lambda: not children(server.pid), "its child is still there")
    assert not made.exists()


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


@pytest.mark.parametrize("how", ["another answer", "another process"])
def test_only_the_process_that_was_looked_at_may_say_go(rig: Rig, how: str) -> None:
    server = rig.start()
    made = rig.base / "made"
    more = (
        "import os\nfirst = client._prepared\n"
        "def prepared(connection, asked, words):\n"
        "    nonce, process = first(connection, asked, words)\n"
        f"    if {how!r} == 'another answer': return bytes(16), process\n"
        "    if os.fork(): os._exit(0)\n"  # the one that connected is gone; its connection lives on
        "    import time; time.sleep(0.2)\n"
        "    return nonce, process\n"
        "client._prepared = prepared"
    )
    rig.call(f"open({str(made)!r}, 'w')", more=more)
    until(lambda: not children(server.pid), "its child is still there")
    assert not made.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make namespaces and drop rights here")
@pytest.mark.parametrize(
    "before",
    [("unshare", "--net"), ("unshare", "--mount"), ("setpriv", "--no-new-privs"), ("setpriv", "--clear-groups", "--regid", "7"),
     ("setpriv", "--bounding-set", "-net_admin"), ("prlimit", "--nofile=512:512"), ("nice", "-n", "5")],
)  # fmt: skip
def test_a_process_elsewhere_is_refused_whatever_it_claims(rig: Rig, before: tuple[str, ...]) -> None:
    """A guest that shares our user and got at the socket would else act outside its walls."""
    rig.start()
    made, key = rig.base / "made", rig.base / "key"
    claim = f"from sandbox_console.command_server import identity\nopen({str(key)!r}, 'wb').write(identity.key())"
    assert rig.call("code = 4", more=claim)[0] == 4
    lie = f"from sandbox_console.command_server import identity\nidentity.key = lambda: open({str(key)!r}, 'rb').read()"
    assert rig.call(f"open({str(made)!r}, 'w')", *before, more=lie)[0] == DIRECT
    assert rig.call(f"open({str(made)!r}, 'w')", *before)[0] == DIRECT, "by itself it looks for a server of its own"
    assert not made.exists()


def test_another_users_folder_or_socket_is_not_used(tmp_path: Path) -> None:
    real = tmp_path / "real"
    ProcessFolder(str(real), make=True).close()
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(OSError, match=r"link|directory"):
        ProcessFolder(str(tmp_path / "link"), make=True)
    real.chmod(0o770)
    with pytest.raises(PermissionError, match="not this user's alone"):
        ProcessFolder(str(real))
    if os.geteuid() == 0:
        real.chmod(0o700)
        os.chown(real, 12345, 12345)
        with pytest.raises(PermissionError, match="not this user's alone"):
            ProcessFolder(str(real))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_listener_of_another_user_gets_nothing(rig: Rig) -> None:
    place = ProcessFolder(rig.folder, make=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{rig.folder}/squat.sock")
    pid = os.fork()
    if pid == 0:
        os.setuid(12345)
        listener.listen(5)  # the kernel notes here who listens
        time.sleep(60)
        os._exit(0)
    try:
        until(
            lambda: "squat.sock" in Path("/proc/net/unix").read_text() and listens(f"{rig.folder}/squat.sock"),
            "nobody listens",
        )
        assert place.connect("squat", 1.0) is None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        listener.close()
        place.close()


def listens(path: Path | str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def test_a_file_or_link_in_the_place_of_the_lock_or_socket_starts_nothing_elsewhere(tmp_path: Path) -> None:
    place = ProcessFolder(str(tmp_path / "run"), make=True)
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "run/a.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        place.take("a")
    (tmp_path / "run/b.sock").symlink_to(victim)
    assert place.connect("b", 1.0) is None
    place.listen("b").close()
    assert victim.read_text() == "kept"
    place.close()


def test_changed_code_is_not_served_and_ends_the_server(rig: Rig) -> None:
    code = rig.base / "code"
    code.mkdir()
    (code / "upgraded_soon.py").write_text("VERSION = 1\n")
    os.utime(code / "upgraded_soon.py", (1, 1))
    server = rig.start(path=(str(code),), more="import upgraded_soon")
    assert rig.call("import upgraded_soon; code = upgraded_soon.VERSION")[0] == 1
    (code / "upgraded_soon.py").write_text("VERSION = 2\n")
    assert rig.call("import upgraded_soon; code = upgraded_soon.VERSION")[0] == DIRECT
    assert server.wait(30) == 0
    assert [*Path(rig.folder).iterdir()] == []


def test_it_ends_when_idle_and_leaves_nothing(rig: Rig) -> None:
    server = rig.start(idle_s=1.0)
    assert rig.call("time.sleep(1.5); code = 6")[0] == 6, "a call that takes longer is not idling"
    assert server.wait(30) == 0
    assert [*Path(rig.folder).iterdir()] == []


def test_a_hundred_calls_at_once(rig: Rig) -> None:
    rig.start()
    calls = [rig.popen(f"code = {n}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(98)]
    codes = [call.wait(120) for call in calls]
    wrong = [(n, code) for n, code in enumerate(codes) if code not in (n, DIRECT)]
    assert wrong == []


def test_one_is_started_however_many_call_first(tmp_path: Path) -> None:
    place = ProcessFolder(str(tmp_path / "run"), make=True)
    sleeper = [sys.executable, "-c", "import sys, time; time.sleep(60)"]
    pids = [place.start("one", sleeper, {}) for _ in range(5)]
    try:
        assert pids[0] > 0
        assert pids[1:] == [0, 0, 0, 0]
        assert os.getsid(pids[0]) == pids[0]
        files = {str(Path(f"/proc/{pids[0]}/fd/{n}").readlink()) for n in (0, 1, 2)}
        assert files == {"/dev/null"}
    finally:
        os.kill(pids[0], signal.SIGKILL)
        os.waitpid(pids[0], 0)
    again = place.start("one", sleeper, {})
    assert again > 0, "the lock of a dead one is free"
    os.kill(again, signal.SIGKILL)
    os.waitpid(again, 0)
    place.close()


def test_one_is_found_again_and_ended(rig: Rig) -> None:
    server = rig.start()
    [found] = rig.sockets()
    place = ProcessFolder(rig.folder)
    assert place.end(found.stem, signal.SIGTERM)
    assert server.wait(30) == 0
    assert not place.end(found.stem, signal.SIGTERM)
    assert [*Path(rig.folder).iterdir()] == []
    place.close()


def test_a_signal_that_comes_during_a_fork_ends_it(rig: Rig) -> None:
    """Python runs functions in the parent after a fork, and drops what a signal's handler raises there."""
    flag = rig.base / "flag"
    more = f"""
import signal
def signalled():
    if os.path.exists({str(flag)!r}): os.kill(os.getpid(), signal.SIGTERM)
os.register_at_fork(after_in_parent=signalled)
"""
    server = rig.start(more=more)
    flag.touch()
    rig.popen("code = 0").wait(60)
    assert server.wait(30) == 0


@pytest.mark.parametrize(
    ("words", "env", "may"),
    [
        (["ls"], {}, True), (["exec", "x", "--", "true"], {}, True), ([], {}, False), (["shell", "x"], {}, False),
        (["--json", "ls"], {}, False), (["serve"], {}, False), (["demo"], {}, False), (["--version"], {}, False),
        (["ls"], {"SANDBOX_CONSOLE_SERVER": "off"}, False), (["ls"], {"SANDBOX_CONSOLE_SERVER": "OFF"}, False),
    ],
)  # fmt: skip
def test_which_calls_may_be_served(
    words: list[str], env: dict[str, str], may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.delenv("SANDBOX_CONSOLE_SERVER")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert served_calls.may_serve(words) is may


def test_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    assert client.folder() == str(tmp_path / "home/state/run")
    monkeypatch.delenv("SANDBOX_CONSOLE_HOME")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert client.folder() == str(tmp_path / "sandbox-console")
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(tmp_path).st_uid + 1)  # noqa: PTH116 - as sudo leaves it
    assert client.folder() == str(tmp_path / ".cache/sandbox-console")


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sc-csh-"))
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            place = ProcessFolder(str(folder / "state/run"))
            for found in (folder / "state/run").glob("*.sock"):
                place.end(found.stem, signal.SIGKILL)
            place.close()
        shutil.rmtree(folder, ignore_errors=True)


def console(home: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "SANDBOX_CONSOLE_HOME": str(home), "SANDBOX_CONSOLE_SERVER": "on", **env}
    return subprocess.run(
        [sys.executable, "-m", "sandbox_console", *words], capture_output=True, text=True, env=own, check=False
    )


def test_the_first_command_starts_it_and_the_next_are_sessions_of_their_own(home: Path) -> None:
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    (home / "config.toml").write_text(
        "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
        '[secrets.token]\nfrom = "env:SC_TOKEN"\n'
    )
    made = console(
        home, "create", "box", "--image", "host", "--secret", "token", "--", "sleep", "600", SC_TOKEN="the-first-token"
    )
    assert made.returncode == 0, made.stderr
    try:
        until(lambda: [*(home / "state/run").glob("*.sock")], "no server was started")
        done = console(home, "exec", "box", "--", "sh", "-c", "test ${#token} = 13 && exit 9", SC_TOKEN="another-token")
        assert (done.returncode, done.stdout, done.stderr) == (9, "", "")
        until(lambda: served(home), "the server's child did not do it")
        wrong = console(home, "exec", "nobody", "--", "true")
        direct = console(home, "exec", "nobody", "--", "true", SANDBOX_CONSOLE_SERVER="off")
        assert (wrong.returncode, wrong.stdout, wrong.stderr) == (direct.returncode, direct.stdout, direct.stderr)
        (home / "config.toml").write_text("unknown = 1\n")
        assert "unknown key" in console(home, "ls").stderr, "a changed configuration counts at once"
        (home / "config.toml").write_text(
            "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
        )
        rows = [json.loads(line) for line in console(home, "audit", "export", "--format", "jsonl").stdout.splitlines()]
        assert len({row["session"] for row in rows if row["kind"] == "attempt"}) >= 2
    finally:
        console(home, "rm", "box", "--force", SANDBOX_CONSOLE_SERVER="off")


def test_doctor_tells_of_it(home: Path) -> None:
    (home / "config.toml").write_text("[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n")

    def said(**env: str) -> tuple[str, str]:
        lines = map(json.loads, console(home, "doctor", "--json", **env).stdout.splitlines())
        [found] = [one for one in lines if one["what"] == "command server"]
        return found["state"], found["text"]

    assert said(SANDBOX_CONSOLE_SERVER="off") == ("ok", "is not used: each command imports what it needs")
    assert said() == ("ok", "not running: the next command starts it")
    console(home, "ls")
    until(lambda: [*(home / "state/run").glob("*.sock")], "no server was started")
    state, text = said()
    assert (state, text.split()[0]) == ("ok", "process")
    os.kill(int(text.split()[1]), signal.SIGSTOP)
    assert said()[0] == "warning"


def served(home: Path) -> bool:
    """Whether the server has had children: the kernel counts the page faults of those it has waited for."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"command-server\0{home}".encode() in (folder / "cmdline").read_bytes():
                return int((folder / "stat").read_text().rpartition(")")[2].split()[8]) > 0
    return False
