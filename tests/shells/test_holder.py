"""A holder under attack: a real process on a real PTY, without a backend."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sandbox_console.background_process import ProcessFolder
from sandbox_console.errors import Conflict
from sandbox_console.model.sandbox import Exit
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.sessions.held_terminal import ANEW, HeldTerminal
from sandbox_console.service.sessions.kept_shells import _start
from sandbox_console.service.sessions.shell_records import ShellRecord, ShellRecords
from sandbox_console.shell_holder import guest
from sandbox_console.shell_holder.frames import ASK, ATTACH, HEAD, TYPED, frame
from sandbox_console.shell_holder.viewer import MOST

CANARY = "canary-5f2e91c07a"
STRANGER = """
import socket, sys
found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
try:
    found.connect(sys.argv[1])
except OSError as error:
    print("refused", error.errno)
else:
    found.settimeout(10)
    try:
        found.sendall(b"Q\\0\\0\\0\\0")
        print("closed" if found.recv(100) == b"" else "served")
    except ConnectionError:
        print("closed")
"""


class Held:
    """A holder and its guest: a shell of this machine, with a supervisor that the test plays."""

    def __init__(self, folder: Path, argv: list[str], **facts: Any) -> None:
        self.records = ShellRecords(folder / "shells")
        held = self.records.begin()
        self.id = held.id
        self.record = ShellRecord(
            audit_id=1, ref="none/local/x", name="x", actor="user:test", began=time.time(), kept="work"
        )
        held.write(self.record)
        master, inner = pty.openpty()
        self.supervisor, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.guest = subprocess.Popen(argv, stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
        os.close(inner)
        told = {
            "kind": "pty", "files": [master, theirs.fileno()], "pending": "", "engine": "", "exec": "", "id": self.id,
            "lock": held.lock, "record": json.loads(json.dumps({"began": time.time()})), "cols": 80, "rows": 24,
            "options": ["--config", "/nowhere"], "scrollback_bytes": 8 << 20, "max_duration_s": 600.0,
            "redactor": Redactor([CANARY]).state(), "recording": None,
        }  # fmt: skip
        self.pid = _start(str(folder / "shells"), told | facts)
        os.close(master)
        theirs.close()
        held.release()

        threading.Thread(target=self._supervise, daemon=True).start()

    def _supervise(self) -> None:
        """Tell how the guest ended, and kill it when asked, as the supervisor of a sandbox does."""
        told = threading.Thread(target=self._tell_exit, daemon=True)
        told.start()
        with suppress(OSError):
            while self.supervisor.recv(1000):
                self.guest.kill()
                told.join()
                self.supervisor.send(b'{"gone": true}')

    def _tell_exit(self) -> None:
        code = self.guest.wait()
        with suppress(OSError):
            self.supervisor.send(json.dumps({"exit": {"code": code % 256, "signal": None, "reason": ""}}).encode())

    def connect(self) -> socket.socket:
        place = ProcessFolder(str(self.records.folder))
        try:
            deadline = time.monotonic() + 30
            while (found := place.connect(self.id, 5.0)) is None:
                assert time.monotonic() < deadline, "the holder does not answer"
                time.sleep(0.02)
            return found
        finally:
            place.close()

    async def attach(self, *, read_only: bool = False, cols: int = 80, rows: int = 24) -> HeldTerminal:
        connection = await asyncio.to_thread(self.connect)
        return await HeldTerminal.attach(connection, "user:test", cols, rows, read_only=read_only)

    def state(self) -> dict[str, Any]:
        with self.connect() as connection:
            connection.sendall(frame(ASK))
            head = connection.recv(HEAD.size, socket.MSG_WAITALL)
            told: dict[str, Any] = json.loads(connection.recv(HEAD.unpack(head)[1], socket.MSG_WAITALL))
            return told

    def memory_kib(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self.guest.kill()
        with suppress(OSError):
            self.supervisor.shutdown(socket.SHUT_RDWR)


Start = Callable[..., Held]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Held] = []
    folder = Path(tempfile.mkdtemp())  # not pytest's: a test opens it to another user

    def started(*argv: str, **facts: Any) -> Held:
        made.append(Held(folder, list(argv), **facts))
        return made[-1]

    yield started
    for one in made:
        one.end()
    shutil.rmtree(folder)


async def until(terminal: HeldTerminal, what: bytes, seconds: float = 60) -> bytes:
    seen, tail = [], b""
    async with asyncio.timeout(seconds):
        while what not in tail:
            seen.append(await terminal.read())
            assert seen[-1], (tail[-500:], await terminal.wait())
            tail = tail[-len(what) :] + seen[-1]
    return b"".join(seen)


@asynccontextmanager
async def attached(held: Held, **how: Any) -> AsyncIterator[HeldTerminal]:
    terminal = await held.attach(**how)
    try:
        yield terminal
    finally:
        await terminal.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is tried as root")
@pytest.mark.parametrize("opened", [False, True])
def test_another_user_reaches_nothing(start: Start, opened: bool) -> None:
    held = start("cat")
    assert held.state()["viewers"] == []
    path = held.records.folder / f"{held.id}.sock"
    if opened:  # even if somebody opens the folders, which the console would refuse to use then
        for one in (path, path.parent, path.parents[1]):
            one.chmod(0o777)
    done = subprocess.run(
        ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", "/usr/bin/python3", "-c", STRANGER, path],
        capture_output=True, text=True, timeout=60, cwd="/", check=False,
    )  # fmt: skip
    assert done.stdout.strip() == ("closed" if opened else "refused 13"), done


def test_a_link_in_place_of_the_folder_or_a_file_is_not_followed(start: Start, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    held = start("cat")
    folder = held.records.folder
    held.connect().close()
    record = folder / f"{held.id}.json"
    fresh = folder / f"{held.id}.json.new"
    fresh.symlink_to(target)
    os.kill(held.pid, signal.SIGTERM)
    os.waitpid(held.pid, 0)
    assert target.read_text() == "mine"
    assert json.loads(record.read_text())["ended"]["reason"] == "its holder was asked to end"
    record.unlink()
    record.symlink_to(target)
    assert list(held.records.kept()) == []
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        ProcessFolder(str(folder))


async def test_a_viewer_that_never_reads_delays_nobody_and_costs_no_memory(start: Start) -> None:
    held = start(
        "sh", "-c", "stty -echo; read go; seq -f 'line %g of a flood that nobody reads' 200000; echo fi$((1))n; cat"
    )
    stuck = await asyncio.to_thread(held.connect)
    hello = {"actor": "stuck", "read_only": True, "cols": 80, "rows": 24}
    stuck.sendall(frame(ATTACH, json.dumps(hello).encode()))
    before = held.memory_kib()
    async with attached(held) as terminal:
        await asyncio.sleep(0.3)
        await terminal.write(b"go\n")
        await until(terminal, b"fi1n")
        assert held.memory_kib() - before < (8 << 10) + 8 * (MOST >> 10) + (24 << 10)
        late = HeldTerminal(*await asyncio.open_unix_connection(sock=stuck), {}, read_only=True)
        seen = await until(late, b"fi1n")
        assert ANEW in seen  # it got the screen anew
        await late.close()


async def test_two_consoles_that_resize_at_once_agree(start: Start) -> None:
    held = start("sh", "-c", "while read x; do stty size; done")
    async with attached(held) as one, attached(held, cols=100, rows=30) as two, attached(held, read_only=True, cols=5):
        for number in range(200):
            await asyncio.gather(one.resize(60 + number % 50, 20), two.resize(90 - number % 40, 25 + number % 9))
        await one.resize(77, 33)
        await two.resize(88, 22)
        await asyncio.sleep(0.5)
        await one.write(b"x\n")
        await until(two, b"22 77")
    assert held.state()["viewers"] == []


async def test_garbage_ends_the_connection_and_nothing_else(start: Start) -> None:
    held = start("cat")
    hello = json.dumps({"actor": "a", "read_only": False, "cols": 80, "rows": 24}).encode()
    for garbage in (
        b"\xff" * 4096, frame(ATTACH, b"not json"), frame(ATTACH, b"[]"), frame(ATTACH, b"{}"),
        HEAD.pack(TYPED, (1 << 32) - 1), frame(ATTACH, b'{"actor":1,"read_only":0,"cols":"x","rows":[]}'),
        frame(ATTACH, b"[" * 50_000), frame(b"E", b"null"),
    ):  # fmt: skip
        connection = await asyncio.to_thread(held.connect)
        connection.sendall(garbage)
        with connection, suppress(ConnectionError):
            assert await asyncio.to_thread(connection.recv, 100) == b"", garbage[:40]
    unsaid = [await asyncio.to_thread(held.connect) for _ in range(60)]  # more than may wait
    for one in unsaid:
        one.close()
    typed = await asyncio.to_thread(held.connect)
    typed.sendall(frame(TYPED, b"unheard\n") + frame(ATTACH, hello) + frame(TYPED, b"heard\n"))
    async with attached(held) as terminal:
        assert b"unheard" not in await until(terminal, b"heard")
    typed.close()


async def test_a_guest_that_reads_nothing_holds_back_only_who_types(start: Start) -> None:
    held = start("sh", "-c", "stty raw -echo; echo re$((1))ady; sleep 1000")
    async with attached(held) as terminal, attached(held) as other:
        await until(terminal, b"re1ady")
        writing = asyncio.create_task(terminal.write(b"x" * (32 << 20)))
        await asyncio.sleep(1)
        assert not writing.done()
        assert held.memory_kib() < 64 << 10
        await until(other, b"re1ady")
        writing.cancel()
    connection = await asyncio.to_thread(held.connect)
    connection.sendall(frame(b"E", json.dumps({"actor": "user:test", "reason": "it was ended"}).encode()))
    await asyncio.to_thread(os.waitpid, held.pid, 0)
    connection.close()


async def test_secrets_are_masked_in_the_screen_and_the_recording(start: Start, tmp_path: Path) -> None:
    cast = tmp_path / "one.cast"
    cast.write_text('{"version": 2}\n')
    recording = {"path": str(cast), "began": time.monotonic(), "cap_bytes": 1 << 20, "required": True}
    held = start(
        "sh", "-c", f"echo {CANARY[:9]}; printf {CANARY[:9]}; sleep 0.001; echo {CANARY[9:]}; cat", recording=recording
    )
    async with attached(held) as terminal:
        await until(terminal, b"[secret]")
        for byte in CANARY.encode():
            await terminal.write(bytes([byte]))
            await asyncio.sleep(0.03)  # longer than a mask waits
        await terminal.write(b"\n")
        await until(terminal, b"\n")
    held.guest.kill()
    await asyncio.to_thread(os.waitpid, held.pid, 0)
    for file in [cast, *held.records.folder.iterdir()]:
        assert file.is_socket() or CANARY.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0 or file == cast


@pytest.mark.parametrize("required", [True, False])
async def test_a_recording_that_fails_ends_only_a_shell_that_must_be_recorded(
    start: Start, required: bool, tmp_path: Path
) -> None:
    recording = {
        "path": str(tmp_path / "gone" / "one.cast"),
        "began": time.monotonic(),
        "cap_bytes": 1 << 20,
        "required": required,
    }
    held = start("cat", recording=recording)
    async with attached(held) as terminal:
        await asyncio.sleep(0.5)
        await terminal.write(b"something\n")
        if required:
            while await terminal.read():
                pass
            assert "cannot be recorded" in (await terminal.wait()).reason
        else:
            await until(terminal, b"something")
            await asyncio.sleep(1.5)
            assert held.state()["recorded"] is False


async def test_hang_ups_are_ignored_and_too_many_viewers_refused(start: Start) -> None:
    held = start("cat")
    terminals = [await held.attach() for _ in range(16)]
    with pytest.raises(Conflict, match="16 viewers"):
        await held.attach()
    for signum in (signal.SIGHUP, signal.SIGPIPE):
        os.kill(held.pid, signum)
    await terminals[0].write(b"still here\n")
    await asyncio.gather(*(until(one, b"still here") for one in terminals))
    for one in terminals:
        await one.close()
    assert await terminals[0].wait() == Exit(reason="detached")


def test_another_process_of_the_user_cannot_read_its_memory(start: Start) -> None:
    held = start("cat")
    held.connect().close()
    assert Path(f"/proc/{held.pid}/environ").stat().st_uid == 0
    if os.geteuid():
        with pytest.raises(PermissionError):
            Path(f"/proc/{held.pid}/mem").read_bytes()


def test_it_is_small(start: Start) -> None:
    """What is its own, without what it shares with other processes: see smaps_rollup in proc(5)."""
    held = start("cat")
    held.connect().close()
    own = Path(f"/proc/{held.pid}/smaps_rollup").read_text()
    assert int(own.partition("\nPss:")[2].split()[0]) < 20 << 10


async def test_a_size_waits_for_an_engine_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is frozen for longer than a request may take; it gets the last size only."""
    monkeypatch.setattr(guest, "_ENGINE_S", 0.1)
    asked: list[str] = []
    told: list[str] = []
    frozen = True

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readline()).decode().split()[1]
        asked.append(target)
        if not frozen:
            told.append(target)
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        else:
            await reader.read()
            await asyncio.sleep(1)
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "engine"):
        ours, theirs = socket.socketpair()
        shell = guest.EngineGuest(ours.detach(), b"", lambda _: None, str(tmp_path / "engine"), "abc")
        with theirs:
            shell.resize(100, 30)
            while not asked:
                await asyncio.sleep(0.01)
            shell.resize(101, 31)
            shell.resize(102, 32)
            count = len(asked)
            while len(asked) < count + 1:
                await asyncio.sleep(0.01)
            frozen = False
            assert shell._resizing is not None
            await asyncio.wait_for(shell._resizing, 30)
            assert told == ["/exec/abc/resize?h=32&w=102"]
            await shell.end()
