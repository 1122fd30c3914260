"""Copies single files into and out of a sandbox, with the archives that backends take and return."""

from __future__ import annotations

import io
import posixpath
import tarfile
import time
from collections.abc import AsyncIterator

from sandbox_console.errors import BackendError, Conflict, NotFound, UsageError
from sandbox_console.library.command import ended
from sandbox_console.model.action import Download, Upload
from sandbox_console.model.guest import FileKind
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Consent, Console, ExecIO

MAX_BYTES = 16 * 1024 * 1024
_LINKS = 16
_HEADER_BYTES = 64 * 1024
"""The most bytes before a file's content in an archive: its header, and PAX records with long names."""


class GuestFiles:
    """The files of one sandbox. Paths are absolute. Reading and writing contents are recorded actions."""

    def __init__(self, console: Console, ref: SandboxRef, consent: Consent) -> None:
        self._console, self._ref, self._consent = console, ref, consent

    async def exists(self, path: str) -> bool:
        """Whether there is something at a path, following links."""
        try:
            await self._console.inside.stat(self._ref, absolute(path))
        except NotFound as error:
            if await self._gone():
                raise error from None
            return False
        return True

    async def _gone(self) -> bool:
        try:
            await self._console.inspect(self._ref)
        except NotFound:
            return True
        return False

    async def read(self, path: str, max_bytes: int) -> bytes:
        """The contents of a file. Raises NotFound; Conflict if it is not a file; UsageError if over ``max_bytes``."""
        where = absolute(path)
        found = await self._console.inside.stat(self._ref, where)
        if found.kind is not FileKind.FILE:
            raise Conflict(f"{path} is a {found.kind}, not a file", hint="read_file reads only files")
        if found.size > max_bytes:
            raise _too_long(path, found.size, max_bytes)
        for _ in range(_LINKS):
            member, data = await self._first(where, max_bytes)
            if member.issym():
                where = posixpath.normpath(posixpath.join(posixpath.dirname(where), member.linkname))
                continue
            if member.size > max_bytes:  # it has grown since the check
                raise _too_long(path, member.size, max_bytes)
            return data
        raise Conflict(f"{path} leads through more than {_LINKS} links")

    async def _first(self, path: str, max_bytes: int) -> tuple[tarfile.TarInfo, bytes]:
        """The first member of a path's archive, and its bytes if there are at most ``max_bytes``."""
        archive = io.BytesIO()

        async def take(_: Stream, data: bytes) -> None:
            archive.write(data)

        most = max_bytes + _HEADER_BYTES
        # Secrets in files are not masked: the file is copied as it is.
        await self._done(Download(self._ref, path), ExecIO(on_output=take, most=most))
        archive.seek(0)
        try:
            with tarfile.open(fileobj=archive, mode="r:") as tar:
                member = tar.next()
                if member is None:
                    raise BackendError(f"the backend gave an empty archive for {path}")
                file = tar.extractfile(member) if member.isreg() and member.size <= max_bytes else None
                return member, file.read(max_bytes) if file is not None else b""
        except tarfile.TarError as error:
            raise BackendError(f"the backend's archive of {path} cannot be read: {error}") from error

    async def write(self, path: str, data: bytes, mode: int) -> None:
        """Write a whole file, and make missing folders. Raises Conflict if something else is in the way."""
        where = absolute(path)
        if where == "/":
            raise UsageError("/ is not a file")
        folder, missing = await self._deepest(posixpath.dirname(where))
        member = tarfile.TarInfo(posixpath.join(*missing, posixpath.basename(where)))
        member.size, member.mode = len(data), mode & 0o777
        await self._unpack(folder, missing, 0o755, member, data)

    async def mkdir(self, path: str, mode: int) -> None:
        """Make a folder and its parents. Does nothing if it exists."""
        folder, missing = await self._deepest(absolute(path))
        if missing:
            await self._unpack(folder, missing, mode & 0o777, None, b"")

    async def _deepest(self, path: str) -> tuple[str, list[str]]:
        """The deepest existing folder of a path, and the missing names below it."""
        missing: list[str] = []
        while True:
            try:
                found = await self._console.inside.stat(self._ref, path)
            except NotFound:
                if path == "/" or await self._gone():
                    raise
                missing.insert(0, posixpath.basename(path))
                path = posixpath.dirname(path)
                continue
            if found.kind is not FileKind.DIRECTORY:
                raise Conflict(f"{path} is a {found.kind}, not a folder", hint="choose another path")
            return path, missing

    async def _unpack(
        self, folder: str, missing: list[str], folder_mode: int, member: tarfile.TarInfo | None, data: bytes
    ) -> None:
        uid, gid = owner(await self._console.inspect(self._ref))
        members = [tarfile.TarInfo("/".join(missing[: depth + 1])) for depth in range(len(missing))]
        for one in members:
            one.type, one.mode = tarfile.DIRTYPE, folder_mode
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:", format=tarfile.PAX_FORMAT) as tar:
            for one in [*members, *([member] if member else [])]:
                one.uid, one.gid, one.mtime = uid, gid, int(time.time())
                tar.addfile(one, io.BytesIO(data) if one is member else None)
        await self._done(Upload(self._ref, folder), ExecIO(_pieces(archive.getvalue())))

    async def _done(self, action: Upload | Download, io_: ExecIO) -> None:
        await ended(self._console.perform(action, consent=self._consent, io=io_))


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), 1 << 18):
        yield bytes(view[start : start + (1 << 18)])


def absolute(path: str) -> str:
    """A guest's path, normalised. Raises UsageError if it does not begin with ``/``."""
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{path!r} is not an absolute path in the sandbox", hint="/workspace/result.txt, for example")
    return "/" + posixpath.normpath(path).lstrip("/")


def owner(sandbox: Sandbox) -> tuple[int, int]:
    """The owner of new files: the sandbox's user if that is a number. With bubblewrap it is always that user."""
    user = next((fact.value for fact in sandbox.effective if fact.field == "user"), "")
    uid, _, gid = user.partition(":")
    if not uid.isdecimal():
        return 0, 0
    return int(uid), int(gid) if gid.isdecimal() else 0


def _too_long(path: str, size: int, max_bytes: int) -> UsageError:
    return UsageError(
        f"{path} has {size} bytes, more than max_bytes = {max_bytes}",
        hint='give a larger max_bytes, or write it to a file: exec(["cat", path], stdout=file)',
    )
