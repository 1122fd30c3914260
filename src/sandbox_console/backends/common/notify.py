"""Reports inotify events to asyncio. Python has no binding of its own."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from pathlib import Path

# linux/inotify.h
MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
_OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")
STATE = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
LOG = MODIFY | CREATE
EVENTS = MODIFY | CREATE | DELETE_SELF | MOVE_SELF
RECORDS = EVENTS | DELETE  # while a file in it is open somewhere, a folder reports its own removal late
_libc = ctypes.CDLL(None, use_errno=True)


class Folders:
    """Watches folders; :meth:`changed` returns the names of those where something happened.

    If the kernel has no watch left, :meth:`changed` returns all names every ``poll_s`` seconds.
    """

    def __init__(self, mask: int, poll_s: float) -> None:
        self._mask, self._poll_s = mask, poll_s
        self._fd: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: dict[int, str] = {}
        self._blind: set[str] = set()
        self._wake = asyncio.Event()
        self._dirty: set[str] = set()
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._read)

    def add(self, name: str, folder: Path) -> None:
        """Watch a folder. It is no error if it is already watched, or gone."""
        watch = _libc.inotify_add_watch(self._fd, os.fsencode(folder), self._mask) if self._fd >= 0 else -1
        if watch >= 0:
            self._names[watch] = name
        elif self._fd < 0 or ctypes.get_errno() != 2:
            self._blind.add(name)

    def drop(self, name: str) -> None:
        """Stop watching a folder. It is no error if it is not watched."""
        for watch in [watch for watch, other in self._names.items() if other == name]:
            del self._names[watch]
            _libc.inotify_rm_watch(self._fd, watch)
        self._blind.discard(name)
        self._dirty.discard(name)

    def wake(self) -> None:
        """Make :meth:`changed` return now."""
        self._wake.set()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 65536)
            at = 0
            while at < len(data):
                watch, mask, _cookie, length = _HEAD.unpack_from(data, at)
                at += _HEAD.size + length
                self._dirty |= set(self._names.values()) if mask & _OVERFLOW else {self._names.get(watch, "")}
        self._dirty.discard("")
        if self._dirty:
            self._wake.set()

    async def changed(self, timeout_s: float | None = None) -> set[str]:
        """Wait for a change; returns an empty set if the time runs out."""
        limits = [one for one in (timeout_s, self._poll_s if self._blind else None) if one is not None]
        # wait_for(3.11) loses a cancellation that comes together with the event, as in a flood.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(limits) if limits else None):
                await self._wake.wait()
        self._wake.clear()
        dirty, self._dirty = self._dirty | self._blind, set()
        return dirty

    def close(self) -> None:
        """Close the descriptor. Safe to call twice."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
