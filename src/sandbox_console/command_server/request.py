"""The request of a call: arguments, environment, folder, file mask, signals and open files."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import socket

MOST_FILES = 200
"""The kernel passes at most 253 at once."""

MOST_BYTES = 16 << 20
"""More than the kernel accepts as arguments and environment of a program."""

_LENGTH = 8


class Request:
    """One call. ``files`` are the numbers of its open files, in the order in which they are passed.

    ``ignored`` and ``blocked`` are sets of signals, one bit each. It is a plain class because a NamedTuple costs 8 ms
    of imports.
    """

    def __init__(
        self, identity: bytes, umask: int, ignored: int, blocked: int,
        files: tuple[int, ...], argv: tuple[bytes, ...], env: tuple[bytes, ...],
    ) -> None:  # fmt: skip
        self.identity = identity
        self.umask, self.ignored, self.blocked = umask, ignored, blocked
        self.files, self.argv, self.env = files, argv, env

    def encode(self) -> bytes:
        """The request as bytes: numbers, then words, each ended by a zero byte, which none of them can contain."""
        numbers = (self.umask, self.ignored, self.blocked, len(self.files), len(self.argv), len(self.env), *self.files)
        head = b" ".join(b"%d" % number for number in numbers)
        return b"\0".join((head, *self.argv, *self.env, b"")) + self.identity


def decode(data: bytes) -> Request:
    """The request in bytes. Raises ValueError, IndexError."""
    head, _, rest = data.partition(b"\0")
    umask, ignored, blocked, files, argv, env, *numbers = map(int, head.split())
    words = rest.split(b"\0", argv + env)
    if len(numbers) != files or len(words) != argv + env + 1:
        raise ValueError("not a request")
    return Request(
        words[-1], umask, ignored, blocked, tuple(numbers), tuple(words[:argv]), tuple(words[argv : argv + env])
    )


def mine(identity: bytes, argv: list[str]) -> tuple[Request, list[int]]:
    """The call of this process, and the files to pass: the current folder, then its open ones. Raises OSError."""
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        files = tuple(_inherited())
        env = tuple(name + b"=" + value for name, value in os.environb.items())
        words = tuple(map(os.fsencode, argv))
        return Request(identity, *_mask_and_signals(), files, words, env), [folder, *files]
    except BaseException:
        os.close(folder)
        raise


def _inherited() -> list[int]:
    """The files that a program started by us would inherit: the standard ones, and those of ``<(...)``."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the listing's own file is closed by now
            if not fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                found.append(int(name))
    if len(found) > MOST_FILES:
        raise OSError(errno.EMFILE, "too many open files to pass")
    return sorted(found)


def _mask_and_signals() -> tuple[int, int, int]:
    """The file mode mask, and the sets of ignored and of blocked signals."""
    found = {}
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123
        for line in file:
            key, _, value = line.partition(b":")
            found[key] = value.strip()
    return int(found[b"Umask"], 8), int(found[b"SigIgn"], 16), int(found[b"SigBlk"], 16)


def send(connection: socket.socket, request: Request, files: list[int]) -> None:
    """Send a complete request. Raises OSError."""
    data = request.encode()
    head = len(data).to_bytes(_LENGTH, "big")
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
    connection.sendmsg([head], passed)
    connection.sendall(data)


def receive(connection: socket.socket) -> tuple[Request, list[int]]:
    """A request and the files that came with it. Raises OSError, ValueError."""
    head, files = with_files(connection, _LENGTH, MOST_FILES + 1)
    length = int.from_bytes(head, "big")
    if len(head) != _LENGTH or length > MOST_BYTES:
        raise ValueError("not a request")
    data = bytearray()
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            raise ValueError("the call ended")
        data += more
    request = decode(bytes(data))
    if len(files) != len(request.files) + 1:
        raise ValueError("files are missing")
    return request, files


def with_files(connection: socket.socket, size: int, limit: int) -> tuple[bytes, list[int]]:
    """Receive bytes and the files that came with them, which started programs do not inherit. Raises OSError."""
    numbers = array.array("i")
    room = socket.CMSG_SPACE(limit * numbers.itemsize)
    data, passed, *_ = connection.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, body in passed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(body[: len(body) - len(body) % numbers.itemsize])
    return data, list(numbers)
