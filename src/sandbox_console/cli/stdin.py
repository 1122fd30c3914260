"""Reads standard input as it arrives, without a thread if the kernel can report that there is some."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator

_CHUNK = 64 * 1024


async def chunks(fd: int | None) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a pipe, a socket or a file until its end; nothing from a terminal, or if there is no input.

    The descriptor keeps its mode, because O_NONBLOCK would be shared with every other program that has it.
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
    except PermissionError:  # epoll accepts no regular files; reading one does not wait either
        return await asyncio.to_thread(os.read, fd, _CHUNK)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _CHUNK)
