"""Hands the bytes of a tar from the event loop to the thread that unpacks them, without copying."""

from __future__ import annotations

import asyncio
import tarfile
from queue import SimpleQueue

from sandbox_console.errors import BackendError

_END = 2 * tarfile.BLOCKSIZE
_AHEAD = 4
"""How many chunks may wait for the thread before ``give`` waits. A backend's chunks are about 1 MiB each."""


class TarSource:
    """A file for ``tarfile`` that can only be read forwards.

    :meth:`give` and :meth:`end` are called in the loop, everything else in the thread.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks: SimpleQueue[bytes] = SimpleQueue()
        self._room = asyncio.Semaphore(_AHEAD)
        self._left = False
        self._held = memoryview(b"")
        self._at = 0
        self._last = b""
        self._ended = False

    async def give(self, chunk: bytes) -> bool:
        """Pass bytes on once there is room for them. Returns False if the thread takes no more."""
        if chunk and not self._left:
            await self._room.acquire()
            self._chunks.put(chunk)
        return not self._left

    def end(self) -> None:
        """Note that nothing more will come. Safe to call twice."""
        self._chunks.put(b"")

    def leave(self) -> None:
        """Accept no more bytes, and wake a writer that waits for room."""
        self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._left = True
        self._room.release()

    def some(self, limit: int) -> memoryview:
        """The next bytes, at most ``limit``; empty at the end."""
        if not self._held and not self._ended:
            chunk = self._chunks.get()
            self._ended = not chunk
            self._held = memoryview(chunk)
            self._last = (self._last + chunk[-_END:])[-_END:]
            self._loop.call_soon_threadsafe(self._room.release)
        found, self._held = self._held[:limit], self._held[limit:]
        self._at += len(found)
        return found

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes, or fewer at the end."""
        first = self.some(size)
        if len(first) == size or not first:
            return bytes(first)
        parts, left = [first], size - len(first)
        while left and (part := self.some(left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def tell(self) -> int:
        """How many bytes have been read."""
        return self._at

    def seek(self, to: int) -> None:
        """Skip forwards to a position, or to the end. Raises tarfile.ReadError for a position that was passed."""
        if to < self._at:
            raise tarfile.ReadError("it would have to be read twice")
        while self._at < to and self.some(to - self._at):
            pass

    def need_end(self) -> None:
        """Read to the end, since padding may follow. Raises BackendError if it is not the end of a tar."""
        while self.some(1 << 20):
            pass
        if self._last != bytes(_END):
            raise BackendError("the copy is incomplete: its end is missing")
