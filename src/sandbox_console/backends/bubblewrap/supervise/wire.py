"""Control messages: one JSON object a packet on a Unix SOCK_SEQPACKET socket; what may be long goes in a memfd."""

import array
import json
import os
import socket

PACKET = 65536
FDS_MOST = 8


def send(sock: socket.socket, message: dict[str, object], fds: tuple[int, ...] = ()) -> None:
    """Send a message and descriptors. A peer that is gone is not an error."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([json.dumps(message).encode()], rights, socket.MSG_NOSIGNAL)
    except (BrokenPipeError, ConnectionResetError, BlockingIOError):
        pass


def receive(sock: socket.socket) -> tuple[dict[str, object] | None, list[int]]:
    """The next message and its descriptors; None at the end."""
    try:
        data, rights, _flags, _address = sock.recvmsg(PACKET, socket.CMSG_SPACE(FDS_MOST * 4), socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None, []
    fds = array.array("i")
    for level, kind, content in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return (json.loads(data) if data else None), list(fds)


def to_memfd(name: str, content: bytes) -> int:
    """A descriptor of a nameless file in memory, open at its beginning."""
    fd = os.memfd_create(name)
    os.write(fd, content) if len(content) < PACKET else _write_all(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def from_memfd(fd: int) -> dict[str, object]:
    """Read a message that :func:`to_memfd` packed, and close it."""
    with os.fdopen(fd, "rb") as file:
        file.seek(0)
        message: dict[str, object] = json.loads(file.read())
        return message
