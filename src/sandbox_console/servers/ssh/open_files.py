"""Files of the sandbox that an SFTP client has open, over the archives that backends take and return."""

from __future__ import annotations

import asyncio
import io
import os
import posixpath
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from sandbox_console.errors import BackendError, Conflict
from sandbox_console.library.files import owner
from sandbox_console.model.action import Download, Upload
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.log import Stream
from sandbox_console.servers.ssh.guest import Guest
from sandbox_console.service import ExecIO, Operation

_BLOCK = tarfile.BLOCKSIZE
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_LONGEST_HEADER = 1024 * 1024
_AHEAD = 4
"""How many chunks of a download wait for the client; then the sandbox waits."""

_CHUNK = 256 * 1024
_LINKS = 16


class Reading:
    """A file that is read. Reads go forwards through one download; one that goes back begins another."""

    def __init__(self, guest: Guest, path: str) -> None:
        self.info = FileInfo(posixpath.basename(path), FileKind.FILE)
        self._guest, self._path = guest, path
        self._operation: Operation | None = None
        self._chunks: asyncio.Queue[bytes]
        self._held = memoryview(b"")
        self._at = self._size = 0
        self._left = False

    async def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset; fewer than ``size`` only at the end of the file. Raises ConsoleError."""
        if self._operation is None or offset < self._at:
            await self.begin()
        while self._at < min(offset, self._size):
            self._at += len(await self._some(min(offset, self._size) - self._at))
        parts = bytearray()
        while len(parts) < size and self._at < self._size:
            part = await self._some(min(size - len(parts), self._size - self._at))
            parts += part
            self._at += len(part)
        return bytes(parts)

    async def close(self) -> None:
        """End the download. One that was read to the end of the file is on record as done, any other as cancelled."""
        if self._operation is None:
            return
        if self._at < self._size:
            self._operation.cancel()
        self._left = True
        while not self._chunks.empty():  # let the rest of the archive go by
            self._chunks.get_nowait()
        await asyncio.gather(self._operation.result(), return_exceptions=True)
        self._operation = None

    async def begin(self) -> None:
        """Start a download, following links to the file. Raises NotFound; Conflict if it leads to something else."""
        for _ in range(_LINKS):
            await self.close()
            self._download()
            member = await self._member()
            if member.isreg():
                self._size = member.size
                self.info = FileInfo(
                    self.info.name, FileKind.FILE, member.size, member.mode, member.uid, member.gid, member.mtime
                )
                return
            if not member.issym():
                break
            self._path = posixpath.normpath(posixpath.join(posixpath.dirname(self._path), member.linkname))
        self._size = 1  # so that the download is cancelled: there may be a whole folder to come
        await self.close()
        raise Conflict(f"{self._path} is not a file")

    def _download(self) -> None:
        self._chunks = chunks = asyncio.Queue[bytes](_AHEAD)
        self._held, self._at, self._size, self._left = memoryview(b""), 0, 0, False

        async def take(_: Stream, chunk: bytes) -> None:
            if chunk and not self._left:
                await chunks.put(chunk)

        action = Download(self._guest.ref, self._path)
        self._operation = self._guest.console.perform(action, consent=self._guest.consent, io=ExecIO(on_output=take))

    async def _member(self) -> tarfile.TarInfo:
        """The archive's first member, with the extended headers before it."""
        headers = bytearray()
        while True:
            block = await self._exactly(_BLOCK)
            headers += block
            try:
                found = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
                if found.type not in _EXTENDED:
                    with tarfile.open(fileobj=io.BytesIO(headers), mode="r:") as tar:
                        return tar.next() or found
            except tarfile.TarError as error:
                raise BackendError(f"the backend's archive of {self._path} cannot be read: {error}") from error
            if found.size > _LONGEST_HEADER or len(headers) > _LONGEST_HEADER:
                raise BackendError(f"the backend's archive of {self._path} has a header that is too long")
            headers += await self._exactly(-(-found.size // _BLOCK) * _BLOCK)

    async def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += await self._some(size - len(found))
        return bytes(found)

    async def _some(self, limit: int) -> memoryview:
        """The next bytes of the archive. Raises what the download raised, or BackendError if it ended too early."""
        if not self._held:
            self._held = memoryview(await self._chunk())
        found, self._held = self._held[:limit], self._held[limit:]
        return found

    async def _chunk(self) -> bytes:
        assert self._operation is not None  # noqa: S101 - it was begun
        if self._chunks.empty():
            ended, next_ = asyncio.ensure_future(self._operation.result()), asyncio.ensure_future(self._chunks.get())
            try:
                await asyncio.wait({ended, next_}, return_when=asyncio.FIRST_COMPLETED)
                if next_.done():
                    return next_.result()
                ended.result()
            finally:
                ended.cancel()
                next_.cancel()
            raise BackendError(f"the backend's archive of {self._path} ends too early")
        return self._chunks.get_nowait()


class Writing:
    """A file that is written: kept on this machine until it is closed, and then put into the sandbox as a whole.

    What a client left half done changes nothing in the sandbox.
    """

    def __init__(self, guest: Guest, path: str, before: FileInfo | None, spool: Path) -> None:
        self.mode = 0o644 if before is None else before.mode & 0o7777
        self.modified_at: float | None = None
        self.appends = False
        """Whether each write goes to the end, whatever its offset."""
        self._guest, self._path, self._before = guest, path, before
        self._file = tempfile.TemporaryFile(dir=spool)  # noqa: SIM115 - it has no name, and is closed by close()

    @property
    def size(self) -> int:
        """Its size so far."""
        return os.fstat(self._file.fileno()).st_size

    async def write(self, offset: int, data: bytes) -> None:
        """Write at an offset. Raises OSError."""
        left = memoryview(data)
        while left:
            written = await asyncio.to_thread(os.pwrite, self._file.fileno(), left, offset)
            left, offset = left[written:], offset + written

    async def read(self, offset: int, size: int) -> bytes:
        """Read what was written."""
        return await asyncio.to_thread(os.pread, self._file.fileno(), size, offset)

    def truncate(self, size: int) -> None:
        """Cut it off, or make it longer. Raises OSError."""
        os.ftruncate(self._file.fileno(), size)

    async def fill(self, source: Reading) -> None:
        """Begin with what another file has. Raises ConsoleError, OSError."""
        offset = 0
        try:
            while data := await source.read(offset, _CHUNK):
                await self.write(offset, data)
                offset += len(data)
        finally:
            await source.close()

    async def close(self, *, whole: bool) -> None:
        """Put it into the sandbox if the client has written it ``whole``. Raises ConsoleError."""
        try:
            if whole:
                action = Upload(self._guest.ref, posixpath.dirname(self._path))
                io_ = ExecIO(self._archive())
                await self._guest.console.perform(action, consent=self._guest.consent, io=io_).result()
        finally:
            self._file.close()

    async def _archive(self) -> AsyncIterator[bytes]:
        size = self.size
        yield member(self._guest, self._path, self._before, mode=self.mode, size=size, at=self.modified_at)
        for offset in range(0, size, _CHUNK):
            yield await self.read(offset, min(_CHUNK, size - offset))
        yield bytes(-size % _BLOCK + 2 * _BLOCK)


def member(  # what an archive has before a file's data
    guest: Guest, path: str, before: FileInfo | None = None, *, mode: int, size: int = 0, folder: bool = False,
    at: float | None = None,
) -> bytes:  # fmt: skip
    """The header of a file or a folder in an archive. What replaces a file has its owner."""
    info = tarfile.TarInfo(posixpath.basename(path))
    info.uid, info.gid = owner(guest.sandbox)
    if before is not None and before.uid is not None and before.gid is not None:
        info.uid, info.gid = before.uid, before.gid
    info.mode, info.size, info.mtime = mode & 0o7777, size, int(time.time() if at is None else at)
    info.type = tarfile.DIRTYPE if folder else tarfile.REGTYPE
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
