"""Standard input as it arrives, without a thread where the kernel can tell that there is some."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator

_CHUNK = 64 * 1024


async def chunks(fd: int | None) -> AsyncGenerator[bytes, None]:
    """Bytes of a pipe, a socket or a file until its end; nothing of a terminal, or where there is none.

    The descriptor keeps its mode: O_NONBLOCK would be shared with every other program that has it.
    """
    if fd is None or os.isatty(fd):
        return
    while data := await _read(fd):
        yield data


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:  # epoll takes no regular file; a read of one does not wait either
        return await asyncio.to_thread(os.read, fd, _CHUNK)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _CHUNK)
