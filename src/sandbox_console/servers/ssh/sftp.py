"""The SFTP server of a sandbox: it needs no program there to list, read and write files, and to make folders.

Contents are copied by the actions that ``cp`` uses. Links lead only to places in the sandbox, as the backend follows
them there.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

import asyncssh
from asyncssh.channel import SSHChannel
from msgspec import structs

from sandbox_console.errors import Conflict, ConsoleError, Denied, NotFound, Unsupported
from sandbox_console.model.action import Exec, Upload
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.servers.ssh.guest import Guest
from sandbox_console.servers.ssh.open_files import Reading, Writing, member
from sandbox_console.service import ExecIO

P = ParamSpec("P")
T = TypeVar("T")

_KINDS = {FileKind.FILE: stat.S_IFREG, FileKind.DIRECTORY: stat.S_IFDIR, FileKind.LINK: stat.S_IFLNK}
_MOST_READ = 1 << 20
_NOT_FOUND = 127
_UMASK = 0o022
"""What a new file or folder may not have. Clients leave that to the server: sftp's mkdir asks for 0777."""

_MOST_32 = 2**32 - 1
"""The protocol's largest time, in 2106, and user. A guest chooses others, at which a whole list would fail."""


def _with_sftp_errors(
    method: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Report the console's errors as SFTP has words for them, and in full on standard error."""

    @wraps(method)
    async def call(*args: P.args, **options: P.kwargs) -> T:
        server: Any = args[0]
        try:
            return await method(*args, **options)
        except ConsoleError as error:
            raise server.failure(error) from error
        except (OSError, OverflowError) as error:  # the file in which a write is kept
            raise server.failure(ConsoleError(f"it cannot be kept: {error}")) from error

    return call


class SftpServer(asyncssh.SFTPServer):
    """The files of one sandbox, for one session. Everything of the base class that is not here refuses (`map_path`)."""

    def __init__(
        self, guest: Guest, channel: SSHChannel[bytes], spool: Path, ended: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """``ended`` says whether the client has ended its input, after which what it left open is not whole."""
        super().__init__(cast("asyncssh.SSHServerChannel[bytes]", channel))
        self._guest, self._spool, self._ended, self._say = guest, spool, ended, say

    def failure(self, error: ConsoleError) -> asyncssh.SFTPError:
        """The error that SFTP has for one of the console's, told in full here, as clients have their own words."""
        if isinstance(error, NotFound):
            return asyncssh.SFTPNoSuchFile(error.message)
        self._say(f"error: {error.message}" + (f" (hint: {error.hint})" if error.hint else ""))
        if isinstance(error, Denied):
            return asyncssh.SFTPPermissionDenied(error.message)
        if isinstance(error, Unsupported):
            return asyncssh.SFTPOpUnsupported(error.message)
        return asyncssh.SFTPFailure(error.message)

    def exit(self) -> None:
        """The client's program ends with this code, as with a server in the sandbox."""
        self.channel.exit(0)

    def map_path(self, path: bytes) -> bytes:  # noqa: ARG002 - the base class would open it on this machine
        raise asyncssh.SFTPOpUnsupported("this is not served")

    def format_user(self, uid: int | None) -> str:
        return "" if uid is None else str(uid)

    def format_group(self, gid: int | None) -> str:
        return "" if gid is None else str(gid)

    # Looking

    def _path(self, path: bytes) -> str:
        """An absolute path in the sandbox. Raises Conflict for a name that no file can have."""
        if b"\0" in path:
            raise Conflict("a path cannot contain a NUL byte")
        text = posixpath.join(self._guest.home, path.decode("utf-8", "surrogateescape"))
        return "/" + posixpath.normpath(text).lstrip("/")

    @_with_sftp_errors
    async def realpath(self, path: bytes) -> bytes:
        return self._path(path).encode("utf-8", "surrogateescape")

    @_with_sftp_errors
    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return _attrs(await self._guest.console.inside.stat(self._guest.ref, self._path(path)))

    @_with_sftp_errors
    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return _attrs(await self._entry(self._path(path)))

    async def _entry(self, path: str) -> FileInfo:
        """A path itself, also if it is a link: only the folder's list tells."""
        inside, ref = self._guest.console.inside, self._guest.ref
        if path == "/":
            return await inside.stat(ref, path)
        folder, name = posixpath.split(path)
        for info in await inside.list_dir(ref, folder):
            if info.name == name:
                return info
        raise NotFound(f"{path} does not exist")

    @_with_sftp_errors
    async def readlink(self, path: bytes) -> bytes:
        info = await self._entry(self._path(path))
        if info.kind is not FileKind.LINK:
            raise Conflict(f"{self._path(path)} is not a link")
        return info.target.encode("utf-8", "surrogateescape")

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        """The entries of a folder. A guest's name that is no name is left out: a client might write outside its own."""
        for info in await self._listed(path):
            if info.name not in ("", ".", "..") and not {"/", "\0"} & set(info.name):
                yield asyncssh.SFTPName(info.name.encode("utf-8", "surrogateescape"), attrs=_attrs(info))

    @_with_sftp_errors
    async def _listed(self, path: bytes) -> Any:
        return await self._guest.console.inside.list_dir(self._guest.ref, self._path(path))

    # Contents

    @_with_sftp_errors
    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> object:
        where = self._path(path)
        if pflags & (asyncssh.FXF_WRITE | asyncssh.FXF_APPEND):
            return await self._written(where, pflags, attrs)
        reading = Reading(self._guest, where)
        await reading.begin()
        return reading

    async def _written(self, path: str, pflags: int, attrs: asyncssh.SFTPAttrs) -> Writing:
        info = await self._there(path)
        if info is not None and info.kind is not FileKind.FILE:
            raise Conflict(f"{path} is a {info.kind}, not a file")
        if info is None and not pflags & asyncssh.FXF_CREAT:
            raise NotFound(f"{path} does not exist")
        if info is not None and pflags & asyncssh.FXF_EXCL:
            raise Conflict(f"{path} exists already")
        folder = await self._guest.console.inside.stat(self._guest.ref, posixpath.dirname(path))
        if folder.kind is not FileKind.DIRECTORY:
            raise Conflict(f"{posixpath.dirname(path)} is a {folder.kind}, not a folder")
        writing = Writing(self._guest, path, info, self._spool)
        if info is None and attrs.permissions is not None:
            writing.mode = attrs.permissions & 0o7777 & ~_UMASK
        if info is not None and not pflags & asyncssh.FXF_TRUNC:
            await writing.fill(Reading(self._guest, path))
        writing.appends = bool(pflags & asyncssh.FXF_APPEND)
        return writing

    async def open56(self, *args: Any) -> NoReturn:  # noqa: ARG002
        """Versions 5 and 6 are not offered."""
        raise asyncssh.SFTPOpUnsupported("only version 3 is served")

    async def _there(self, path: str) -> FileInfo | None:
        try:
            return await self._guest.console.inside.stat(self._guest.ref, path)
        except NotFound:
            return None

    @_with_sftp_errors
    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        assert isinstance(file_obj, Reading | Writing)  # noqa: S101 - open() makes no others
        return await file_obj.read(offset, min(size, _MOST_READ))

    @_with_sftp_errors
    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        if not isinstance(file_obj, Writing):
            raise Conflict("the file is open for reading only")
        await file_obj.write(file_obj.size if file_obj.appends else offset, data)
        return len(data)

    @_with_sftp_errors
    async def close(self, file_obj: object) -> None:
        if isinstance(file_obj, Writing):
            await file_obj.close(whole=not self._ended())
        elif isinstance(file_obj, Reading):
            await file_obj.close()

    @_with_sftp_errors
    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        if isinstance(file_obj, Reading):
            return _attrs(file_obj.info)
        assert isinstance(file_obj, Writing)  # noqa: S101 - open() makes no others
        return asyncssh.SFTPAttrs(size=file_obj.size, permissions=stat.S_IFREG | file_obj.mode)

    @_with_sftp_errors
    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        if not isinstance(file_obj, Writing):
            raise Conflict("the file is open for reading only")
        if attrs.size is not None:
            file_obj.truncate(attrs.size)
        if attrs.permissions is not None:
            file_obj.mode = attrs.permissions & 0o7777
        if attrs.mtime is not None:
            file_obj.modified_at = attrs.mtime

    async def fsync(self, file_obj: object) -> None:
        """A file is in the sandbox once it is closed, and not before."""

    async def fstatvfs(self, file_obj: object) -> NoReturn:  # noqa: ARG002
        raise asyncssh.SFTPOpUnsupported("this is not served")

    # Changes

    @_with_sftp_errors
    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        where = self._path(path)
        if await self._there(where) is not None:
            raise Conflict(f"{where} exists already")
        mode = (0o777 if attrs.permissions is None else attrs.permissions) & ~_UMASK
        header = member(self._guest, where, mode=mode, folder=True)

        async def archive() -> AsyncIterator[bytes]:
            yield header + bytes(1024)

        action = Upload(self._guest.ref, posixpath.dirname(where))
        await self._guest.console.perform(action, consent=self._guest.consent, io=ExecIO(archive())).result()

    @_with_sftp_errors
    async def remove(self, path: bytes) -> None:
        await self._run("rm", "-f", "--", (await self._existing(path)))

    @_with_sftp_errors
    async def rmdir(self, path: bytes) -> None:
        await self._run("rmdir", "--", (await self._existing(path)))

    @_with_sftp_errors
    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        if await self._there(self._path(newpath)) is not None:
            raise Conflict(f"{self._path(newpath)} exists already")
        await self._run("mv", "-nT", "--", await self._existing(oldpath), self._path(newpath))

    @_with_sftp_errors
    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        await self._run("mv", "-fT", "--", await self._existing(oldpath), self._path(newpath))

    @_with_sftp_errors
    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        target = oldpath.decode("utf-8", "surrogateescape")
        await self._run("ln", "-snT", "--", target, self._path(newpath))

    @_with_sftp_errors
    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        await self._run("ln", "-nT", "--", await self._existing(oldpath), self._path(newpath))

    @_with_sftp_errors
    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        where = self._path(path)
        if attrs.size is not None:
            await self._run("truncate", "-s", str(attrs.size), where)
        if attrs.uid is not None and attrs.gid is not None:
            await self._run("chown", f"{attrs.uid}:{attrs.gid}", "--", where)
        if attrs.permissions is not None:
            await self._run("chmod", f"{attrs.permissions & 0o7777:o}", "--", where)
        if attrs.mtime is not None:
            await self._run("touch", "-c", "-d", f"@{int(attrs.mtime)}", "--", where)

    async def _existing(self, path: bytes) -> str:
        where = self._path(path)
        await self._entry(where)
        return where

    async def _run(self, *argv: str) -> None:
        """Change something that no backend has a call for, by a program in the sandbox. Raises ConsoleError."""
        action = Exec(self._guest.ref, argv, user=self._guest.user)
        result = await self._guest.console.perform(action, consent=self._guest.consent).result()
        if result.exit_code == _NOT_FOUND and (shell := await self._guest.brought()):
            action = structs.replace(action, argv=(posixpath.join(posixpath.dirname(shell), argv[0]), *argv[1:]))
            result = await self._guest.console.perform(action, consent=self._guest.consent).result()
        if result.exit_code == _NOT_FOUND:
            raise Unsupported(f"{self._guest.sandbox.name} has no {argv[0]}, which this needs there")
        if result.exit_code != 0:
            raise Conflict(result.stderr.decode("utf-8", "replace").strip()[:300] or f"{argv[0]} failed")


def _attrs(info: FileInfo) -> asyncssh.SFTPAttrs:
    at = None if info.modified_at is None else min(max(int(info.modified_at), 0), _MOST_32)
    known = all(one is not None and 0 <= one <= _MOST_32 for one in (info.uid, info.gid))
    return asyncssh.SFTPAttrs(
        size=info.size, uid=info.uid if known else None, gid=info.gid if known else None, atime=at, mtime=at,
        permissions=_KINDS.get(info.kind, stat.S_IFIFO) | info.mode & 0o7777,
    )  # fmt: skip
