"""The command's side: hands the call to a server that answers, forwards signals and returns its exit code.

Nothing large is imported here. Nothing has been done until the server's child has said that it is ready and has
received go: if anything goes wrong before that, the command runs itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

from sandbox_console.background_process import ProcessFolder, peer
from sandbox_console.command_server import identity, request
from sandbox_console.errors import ConsoleError

ANSWER_S = 0.5
"""How long a server may take to be ready. A frozen one costs a command this much."""

HERE, READY, GO, REFUSED, ENDED, DIED = b"H", b"R", b"G", b"N", b"E", b"D"
NONCE = 16
_FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGWINCH,
)  # fmt: skip


def folder() -> str:
    """Where the servers of this user listen: in the requested state folder, or else in the runtime folder."""
    if home := os.environ.get("SANDBOX_CONSOLE_HOME"):
        return os.path.abspath(os.path.join(os.path.expanduser(home), "state", "run"))  # noqa: PTH100, PTH111, PTH118
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        if os.stat(runtime).st_uid == os.geteuid():  # noqa: PTH116 - sudo may leave another user's
            return os.path.join(runtime, "sandbox-console")  # noqa: PTH118
    return os.path.expanduser("~/.cache/sandbox-console")  # noqa: PTH111


def carry_out(words: list[str], caught: Callable[[], int]) -> int | None:
    """The exit code of what a server did; None if it did nothing. Raises ConsoleError if the end is not known.

    ``caught`` returns the signal that came and was held before the server's child could get any, or 0.
    """
    try:
        key = identity.key()
        process_folder = ProcessFolder(folder())
    except OSError:
        return None
    try:
        connection = process_folder.connect(identity.name_of(key), ANSWER_S)
    finally:
        process_folder.close()
    if connection is None:
        return None
    with connection:
        return _call(connection, key, words, caught)


def start() -> None:
    """Start a server for later calls, unless there is one. A failure of this does not affect this call."""
    with contextlib.suppress(OSError, RuntimeError):
        key = identity.key()
        process_folder = ProcessFolder(folder(), make=True)
        try:
            command = [sys.executable, "-P", "-m", "sandbox_console", "command-server", folder()]
            process_folder.start(identity.name_of(key), command, identity.at_start())
        finally:
            process_folder.close()


def look() -> tuple[int, bool]:
    """The server that would be used now: its process (0 for none), and whether it answers."""
    try:
        process_folder = ProcessFolder(folder())
    except OSError:
        return 0, False
    try:
        connection = process_folder.connect(identity.name_of(identity.key()), ANSWER_S)
    finally:
        process_folder.close()
    if connection is None:
        return 0, False
    with connection:
        try:
            return peer(connection)[0], connection.recv(1) == HERE
        except TimeoutError:
            return peer(connection)[0], False


def _call(connection: socket.socket, key: bytes, words: list[str], caught: Callable[[], int]) -> int | None:
    try:
        nonce, process = _prepared(connection, key, words)
    except (OSError, ValueError):
        return None
    with _Forwarding(process) as forwarding:
        try:
            connection.settimeout(None)
            connection.sendall(GO + nonce)
        except OSError:
            return None  # the server ended before it began
        forwarding.begin(caught())
        return _exit_code(connection)


def _prepared(connection: socket.socket, key: bytes, words: list[str]) -> tuple[bytes, int]:
    """Hand over the call. Returns what to answer, and the child as an open file. Raises OSError, ValueError.

    A child must exist first: files passed to a frozen server stay open in its queue, and ``| cat`` would not end.
    """
    if connection.recv(1) != HERE:
        raise ValueError("no child")
    handed, files = request.mine(key, [sys.argv[0], *words])
    try:
        request.send(connection, handed, files)
    finally:
        os.close(files[0])
    message, came = request.with_files(connection, 1 + NONCE, 1)
    if len(message) != 1 + NONCE or message[:1] != READY or len(came) != 1:
        for file in came:
            os.close(file)
        raise ValueError("not ready")
    return message[1:], came[0]


def _exit_code(connection: socket.socket) -> int | None:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while len(data) < 2 and (more := connection.recv(2 - len(data))):
            data += more
    if data[:1] == REFUSED:
        return None
    if data[:1] == ENDED and len(data) == 2:
        return data[1]
    if data[:1] == DIED and len(data) == 2:
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(data[1], signal.SIG_DFL)
        # The shell gets the true cause: this process was killed by the signal.
        os.kill(os.getpid(), data[1])
        return 128 + data[1]
    raise ConsoleError(
        "the process that ran this command was killed, and what it did is not known",
        hint="sandbox-console audit ls; without such a process: SANDBOX_CONSOLE_SERVER=off",
    )


class _Forwarding:
    """Forwards the signals of this process to the child once it has received go. Ctrl+Z stops both.

    If it never receives go, signals that arrived meanwhile are raised again for the previous handlers.
    """

    def __init__(self, process: int) -> None:
        self._process = process
        self._began = False
        self._came: list[int] = []
        self._before = {number: signal.getsignal(number) for number in (*_FORWARDED, signal.SIGTSTP)}

    def __enter__(self) -> _Forwarding:  # noqa: PYI034 - importing typing costs 8 ms
        for number, handler in self._before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, self._stop if number == signal.SIGTSTP else self._forward)
        return self

    def begin(self, held: int) -> None:
        """Note that the child has received go; send it ``held`` (0 for none) and the signals since."""
        self._began = True
        for each in (*([held] if held else []), *self._came):
            self._send(each)
        self._came.clear()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._process)
        for came in self._came:
            signal.raise_signal(came)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, number)

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self._began:
            self._send(number)
        else:
            self._came.append(number)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self._send(signal.SIGSTOP)  # the kernel drops SIGTSTP for a process whose session has no terminal
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._stop)
        self._send(signal.SIGCONT)
