"""The server's child: takes over the state of the caller's process, runs its command and reports the exit code."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import secrets
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from typing import NoReturn

from sandbox_console.background_process import peer
from sandbox_console.command_server import identity, request
from sandbox_console.command_server.client import ENDED, GO, HERE, NONCE, READY, REFUSED

STALE_CODE = 75
"""The exit code of a child that found the server's code changed on disk."""

_CALL_S = 10.0
"""How long a call may take to send its request. This costs a process, but nobody else's time."""

_CREDENTIALS = struct.Struct("3i")

Run = Callable[[list[str]], int]
Hold = Callable[[], object]
Files = Mapping[str, tuple[int, int, int]]


class Refused(Exception):
    """The server may not carry out the call."""


def carry_out(connection: socket.socket, asked: bytes, loaded: Files, run: Run, hold: Hold) -> NoReturn:
    """Carry out a call and end. Nothing visible is done until the caller has said go.

    ``hold`` holds the signals that end a command before the caller can send any; ``run`` then obeys those that came.
    """
    try:
        if changed(loaded):
            os._exit(STALE_CODE)
        words, connection = _prepared(connection, asked, hold)
    except BaseException:  # noqa: BLE001 - the caller sees that nobody is ready
        os._exit(1)
    code = 1
    try:
        code = run(words)
    except BaseException:  # noqa: BLE001 - as an interpreter does that has nobody above it
        sys.excepthook(*sys.exc_info())
    finally:
        _end(connection, code & 0xFF)


def snapshot() -> dict[str, tuple[int, int, int]]:
    """The current state of the files of all loaded code."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file: _state(file) for file in files if file}


def changed(loaded: Files) -> bool:
    """Whether code on disk is different from the loaded code."""
    return any(_state(file) != state for file, state in loaded.items())


def _state(file: str) -> tuple[int, int, int]:
    try:
        st = os.stat(file)  # noqa: PTH116
    except OSError:
        return (0, 0, 0)
    return (st.st_ino, st.st_size, st.st_mtime_ns)


def _prepared(connection: socket.socket, asked: bytes, hold: Hold) -> tuple[list[str], socket.socket]:
    """Take over the call, up to the caller's go. Raises OSError, ValueError, Refused."""
    connection.settimeout(_CALL_S)
    caller, uid, _ = peer(connection)
    if uid != os.geteuid() or not caller:
        raise Refused
    alive = os.pidfd_open(caller)
    connection.sendall(HERE)
    wanted, files = request.receive(connection)
    if wanted.identity != asked or identity.namespaces(caller) != identity.namespaces("self"):
        raise Refused
    connection, alive, files = _moved(connection, alive, files, max((*wanted.files, 2)) + 1)
    _become(wanted, files, hold)
    try:
        _await_go(connection, caller, alive)
        _follow(connection)
    except (OSError, Refused):
        connection.send(REFUSED)
        raise
    os.close(alive)
    words = list(map(os.fsdecode, wanted.argv))
    sys.argv = words
    return words[1:], connection


def _moved(connection: socket.socket, alive: int, files: list[int], above: int) -> tuple[socket.socket, int, list[int]]:
    """Move open files to numbers that none of the call's own files will have."""

    def up(file: int) -> int:
        found = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above)
        os.close(file)
        return found

    timeout = connection.gettimeout()
    moved = socket.socket(fileno=up(connection.detach()))
    moved.settimeout(timeout)
    return moved, up(alive), [up(file) for file in files]


def _become(wanted: request.Request, files: list[int], hold: Hold) -> None:
    """Take over the call's folder, files, environment, mask and signals."""
    os.fchdir(files[0])
    os.close(files[0])
    for number in {0, 1, 2} - set(wanted.files):
        with contextlib.suppress(OSError):
            os.close(number)
    for number, file in zip(wanted.files, files[1:], strict=True):
        os.dup2(file, number, inheritable=True)
        os.close(file)
    os.environb.clear()
    os.environb.update((name, value) for name, _, value in (item.partition(b"=") for item in wanted.env))
    os.umask(wanted.umask)
    sys.stdin, sys.stdout, sys.stderr = _text(0, wanted), _text(1, wanted), _text(2, wanted)
    for signum in range(1, 65):
        if wanted.ignored >> (signum - 1) & 1:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(signum, signal.SIG_IGN)
    hold()
    signal.pthread_sigmask(signal.SIG_SETMASK, {n for n in range(1, 65) if wanted.blocked >> (n - 1) & 1})


def _text(number: int, wanted: request.Request) -> io.TextIOWrapper | None:
    """A standard stream as Python makes it at its start; None if it is closed."""
    if number not in wanted.files:
        return None
    like = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
    unbuffered = number > 0 and like is not None and like.write_through
    body = raw if unbuffered else io.BufferedReader(raw) if number == 0 else io.BufferedWriter(raw)
    errors = (like.errors if like else None) or ("backslashreplace" if number == 2 else "strict")
    lines = number == 2 or raw.isatty()
    encoding = like.encoding if like else "utf-8"
    return io.TextIOWrapper(body, encoding, errors, line_buffering=lines, write_through=unbuffered)


def _await_go(connection: socket.socket, caller: int, alive: int) -> None:
    """Report ready, and wait until the process that was checked says go. Raises OSError, Refused.

    The answer repeats a random value from here, the kernel names its sender, and the sender is still alive, so its
    number did not belong to another process when its namespaces were read.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    nonce = secrets.token_bytes(NONCE)
    process = os.pidfd_open(os.getpid())
    socket.send_fds(connection, [READY + nonce], [process])
    os.close(process)
    message, passed, *_ = connection.recvmsg(1 + NONCE, socket.CMSG_SPACE(_CREDENTIALS.size))
    sender = [
        _CREDENTIALS.unpack(body)[0]
        for level, kind, body in passed
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS
    ]
    looked = select.poll()
    looked.register(alive, select.POLLIN)
    if message != GO + nonce or sender != [caller] or looked.poll(0):
        raise Refused


def _follow(connection: socket.socket) -> None:
    """If the caller is killed, signal this process as if its terminal were gone, or after nohup to end."""
    connection.setblocking(True)
    number = connection.fileno()
    fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid())
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    fcntl.fcntl(number, fcntl.F_SETSIG, signal.SIGTERM if ignored else signal.SIGHUP)
    fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_ASYNC)
    with contextlib.suppress(BlockingIOError):
        if not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise Refused


def _end(connection: socket.socket, code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with contextlib.suppress(OSError):
        connection.send(ENDED + bytes([code]))
    os._exit(0)  # the exit code has been reported; STALE_CODE here would end the server
