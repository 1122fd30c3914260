"""Control messages: one JSON object per packet on a SOCK_SEQPACKET socket. Long data goes in a memfd."""

import array
import fcntl
import json
import os
import socket

PACKET = 65536
FDS_MOST = 8
_MFD_EXEC = 0x10  # linux/memfd.h


def send(sock: socket.socket, message: dict[str, object], fds: tuple[int, ...] = ()) -> bool:
    """Send a message and descriptors; False if the peer is gone."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sock.sendmsg([json.dumps(message).encode()], rights, socket.MSG_NOSIGNAL)
    except (BrokenPipeError, ConnectionResetError, BlockingIOError):
        return False
    return True


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
    return (_parsed(data) if data else None), list(fds)


def _parsed(data: bytes) -> dict[str, object]:
    """A message; empty if the data is not one of ours, as that must end neither the sandbox nor the console."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def to_memfd(name: str, content: bytes) -> int:
    """A descriptor of a nameless file in memory, at its beginning."""
    fd = os.memfd_create(name)
    os.write(fd, content) if len(content) < PACKET else _write_all(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def to_sealed(name: str, content: bytes) -> int:
    """A descriptor of a program in memory that nobody can change."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        fd = os.memfd_create(name, flags | _MFD_EXEC)
    except OSError:  # before Linux 6.3 every memfd can be executed
        fd = os.memfd_create(name, flags)
    _write_all(fd, content)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)  # a file that is open for writing cannot be executed


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
