"""Files of a running sandbox, by the image's ``sh``, ``stat``, ``readlink`` and ``tar``.

Some providers cannot end stdin (v4.channel.k8s.io, execd's pipes), which busybox's tar reads to its end. So an archive
is sent in pieces with their sizes, and a piece of no size ends it.
"""

from __future__ import annotations

import asyncio
import posixpath
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol

from sandbox_console.backends.base import Process
from sandbox_console.backends.common import guest_tar
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.tarscan import guarded
from sandbox_console.errors import BackendError, Conflict, Unsupported
from sandbox_console.model.action import Permit
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef

_UNPACK = (
    guest_tar.NEED_FOLDER
    + """
echo ready
while read -r size && [ "$size" -gt 0 ]; do
  dd bs="$size" count=1 iflag=fullblock 2>/dev/null
done | tar -xf - -C "$1" >/dev/null
echo $?
sleep 60
"""
)
_STAT = "stat -L -c '%f %s %u %g %Y' -- \"$1\" 2>/dev/null || exit 3"
_LIST = (
    guest_tar.NEED_FOLDER
    + """
cd -- "$1" || exit 5
for f in * .[!.]* ..?*; do
  [ -e "$f" ] || [ -L "$f" ] || continue
  stat -c '%f %s %u %g %Y' -- "$f" 2>/dev/null || continue
  printf '%s\\0' "$f"
  if [ -L "$f" ]; then readlink -- "$f"; fi
  printf '\\0'
done
"""
)
MOST_ASKED = 64 << 20
"""Bytes that a script may print: a guest that prints for ever uses up no memory here."""

_PATIENCE_S = 20.0

_KINDS = {0o100000: FileKind.FILE, 0o040000: FileKind.DIRECTORY, 0o120000: FileKind.LINK}


class Guest(Protocol):
    """A running sandbox in which commands can be run."""

    async def run(self, argv: Sequence[str], *, stdin: bool = False) -> Process:
        """Start a command, whose output comes as the bytes that they are."""
        ...

    async def ask(self, script: str, *words: str) -> tuple[int | None, bytes, bytes]:
        """Run a script to its end: its code, its output and its errors. Raises BackendError if it takes too long."""
        ...


class GuestFiles(ABC):
    """The part of a backend that moves files by commands in the guest."""

    @abstractmethod
    async def _guest(self, ref: SandboxRef) -> Guest:
        """A running sandbox. Raises NotFound, or Conflict if it does not run."""

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        return await stat(await self._guest(ref), path)

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        return await list_dir(await self._guest(ref), path)

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncGenerator[bytes, None]:
        need(permit)
        async with aclosing(download(await self._guest(ref), path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        need(permit)
        await upload(await self._guest(ref), path, archive)


async def answer(process: Process, name: str) -> tuple[int | None, bytes, bytes]:
    """The code, the output and the errors of a script in sandbox ``name``. Raises BackendError if it takes too long."""
    out: dict[Stream, bytes] = {Stream.STDOUT: b"", Stream.STDERR: b""}
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for stream, data in process.output():
                out[stream] += data
                if sum(map(len, out.values())) > MOST_ASKED:
                    raise BackendError(f"{name} printed more than {MOST_ASKED >> 20} MiB, which is not read")
            return (await process.wait()).code, out[Stream.STDOUT], out[Stream.STDERR]
    except TimeoutError:
        raise BackendError(f"{name} did not answer within {_PATIENCE_S:g} s") from None
    finally:
        await process.kill()


async def stat(guest: Guest, path: str) -> FileInfo:
    """The status of a path. Links are followed. Raises NotFound."""
    code, out, err = await guest.ask(_STAT, path)
    _judge(code, path, err)
    return _info(out.decode("ascii", "replace").split(), posixpath.basename(path.rstrip("/")) or "/", "")


async def list_dir(guest: Guest, path: str) -> Sequence[FileInfo]:
    """A folder's entries, sorted by name. Raises NotFound, or Conflict if it is no folder."""
    code, out, err = await guest.ask(_LIST, path)
    _judge(code, path, err)
    parts = out.split(b"\0")
    found = [_entry(head, target) for head, target in zip(parts[::2], parts[1::2], strict=False)]
    return sorted((one for one in found if one is not None), key=lambda info: info.name)


def _entry(head: bytes, target: bytes) -> FileInfo | None:
    line, _, name = head.partition(b"\n")
    words = line.decode("ascii", "replace").split()
    where = target.removesuffix(b"\n").decode("utf-8", "surrogateescape")
    return _info(words, name.decode("utf-8", "surrogateescape"), where) if len(words) == 5 else None


def _info(words: Sequence[str], name: str, target: str) -> FileInfo:
    try:
        mode, size, uid, gid, seconds = int(words[0], 16), *map(int, words[1:5])
        at = float(seconds)
    except (ValueError, IndexError, OverflowError):
        raise BackendError(f"stat of {name} gave no status") from None
    kind = _KINDS.get(mode & 0o170000, FileKind.OTHER)
    return FileInfo(name, kind, size, mode & 0o7777, uid, gid, at, target if kind is FileKind.LINK else "")


async def download(guest: Guest, path: str) -> AsyncGenerator[bytes, None]:
    """A tar of ``path`` and all below it. Raises NotFound."""
    process = await guest.run(guest_tar.pack(path, "sh"))
    async with aclosing(guest_tar.download(process, path, _judge)) as chunks:
        async for chunk in chunks:
            yield chunk


async def upload(guest: Guest, path: str, archive: AsyncIterator[bytes]) -> None:
    """Unpack a tar into the folder ``path``. Raises NotFound, and UsageError for a member that would leave it."""
    process = await guest.run(["sh", "-c", _UNPACK, "sh", path], stdin=True)
    report = _UnpackReport(process)
    try:
        await report.ready()
        async for chunk in guarded(archive):
            if chunk and not report.over:
                await process.write(b"%d\n%b" % (len(chunk), chunk))
        await process.write(b"0\n")
        await process.close_stdin()
        _judge(await report.code(), path, report.complaint)
    finally:
        await report.close()
        await process.kill()


class _UnpackReport:
    """What the unpacking program reports: that it reads, and how tar ended.

    Bytes that are sent to a program which has ended cut its connection, and its exit code with it. So it says its code
    on stdout, and lives on until it is killed.
    """

    def __init__(self, process: Process) -> None:
        self.complaint = b""
        self._process = process
        self._out = b""
        self._news = asyncio.Event()
        self._ended = False
        self._task = asyncio.create_task(self._read())

    @property
    def over(self) -> bool:
        """Whether it reads no more."""
        return self._ended or self._out.count(b"\n") > 1

    async def ready(self) -> None:
        """Wait until it reads, or has ended."""
        await self._until(1)

    async def code(self) -> int | None:
        """Wait for its end; returns the code of tar, or of the program if that did not run."""
        await self._until(2)
        _, _, line = self._out.partition(b"\n")
        word = line.strip().decode("ascii", "replace")
        return int(word) if word.isdecimal() else (await self._process.wait()).code

    async def close(self) -> None:
        """Read no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _until(self, lines: int) -> None:
        while not self._ended and self._out.count(b"\n") < lines:
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        async for stream, data in self._process.output():
            if stream is Stream.STDOUT:
                self._out = (self._out + data)[-1000:]
            else:
                self.complaint = (self.complaint + data)[-1000:]
            self._news.set()
        self._ended = True
        self._news.set()


def _judge(code: int | None, path: str, complaint: bytes) -> None:
    if code == 0:
        return
    guest_tar.need_path(code, path)
    if code in (126, 127):
        raise Unsupported(
            "the image lacks sh, env, stat or tar, which files are moved by", hint="use an image that has them"
        )
    message = complaint.decode("utf-8", "replace").strip()
    if "Read-only file system" in message or "Permission denied" in message:
        raise Conflict(f"{path} cannot be written: {message}")
    raise BackendError(f"{path} could not be moved: {message}")
