"""Makes one socket of this process's standard input and output, as asyncssh serves a socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK = 256 * 1024


@asynccontextmanager
async def one_socket(source: int, target: int) -> AsyncIterator[socket.socket]:
    """A socket whose bytes come from ``source`` and go to ``target``. Its end is the end of either."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    blocking = {fd: os.get_blocking(fd) for fd in (source, target)}
    for fd in blocking:
        os.set_blocking(fd, False)
    tasks = [asyncio.create_task(_into(source, far)), asyncio.create_task(_out_of(far, target))]
    try:
        yield near
        await tasks[1]  # what was written last is on its way
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        far.close()
        for fd, was in blocking.items():  # the caller may share the descriptor with us
            os.set_blocking(fd, was)


async def _into(source: int, sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await _read(source):
            await loop.sock_sendall(sock, data)
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)


async def _out_of(sock: socket.socket, target: int) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(sock, _CHUNK):
            await _write(target, data)
    with suppress(OSError):  # nobody reads any more: the other side learns of it
        sock.shutdown(socket.SHUT_RDWR)


async def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            await _ready(fd, reading=True)


async def _write(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await _ready(fd, reading=False)


async def _ready(fd: int, *, reading: bool) -> None:
    """Wait until a descriptor can be read, or written."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    add, remove = (loop.add_reader, loop.remove_reader) if reading else (loop.add_writer, loop.remove_writer)
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)
