"""Files between this machine and a sandbox, as tar streams: what comes is unpacked without trust."""

from __future__ import annotations

import asyncio
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.action import Download, Upload
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import Consent, Console, ExecIO, Operation

CHUNK = 1 << 20
_BLOCK = 512
_END = bytes(2 * _BLOCK)

Progress = Callable[[int], None]


async def download(
    console: Console, ref: SandboxRef, path: str, target: Path, consent: Consent, progress: Progress
) -> None:
    """Put the guest's ``path`` at ``target``, which must not exist. Raises ConsoleError, OSError.

    The tar goes to a private folder beside the target, is unpacked there by tarfile's ``data`` filter (no absolute
    path, nothing outside, no device, no setuid), and is moved into place when all of it is there.
    """
    if await asyncio.to_thread(os.path.lexists, target):
        raise UsageError(f"{target} exists already", hint="name another place")
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=".sandbox-console-", dir=target.parent))
    try:
        await _receive(console, ref, path, folder / "archive", consent, progress)
        await asyncio.to_thread(_unpack, folder, target)
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))


async def _receive(
    console: Console, ref: SandboxRef, path: str, archive: Path, consent: Consent, progress: Progress
) -> None:
    count = 0
    with await asyncio.to_thread(archive.open, "xb") as file:

        async def take(_: Stream, data: bytes) -> None:
            nonlocal count
            await asyncio.to_thread(file.write, data)
            count += len(data)
            progress(count)

        await _finish(console.perform(Download(ref, path), consent=consent, io=ExecIO(on_output=take)))


async def _finish(operation: Operation) -> None:
    """Wait for an operation; who stops waiting ends it."""
    try:
        await operation.result()
    except asyncio.CancelledError:
        operation.cancel()
        raise


def _unpack(folder: Path, target: Path) -> None:
    inside = folder / "files"
    inside.mkdir(mode=0o700)
    try:
        with tarfile.open(folder / "archive") as archive:
            archive.extractall(inside, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise UsageError(f"what came cannot be unpacked: {error}") from None
    found = list(inside.iterdir())
    if len(found) != 1:
        raise UsageError(f"one file or folder was to come, and {len(found)} came")
    if os.path.lexists(target):
        raise UsageError(f"{target} exists already", hint="name another place")
    found[0].rename(target)


async def read_file(console: Console, ref: SandboxRef, path: str, consent: Consent, most: int) -> tuple[bytes, bool]:
    """The beginning of a guest's file, and whether there is more. Raises ConsoleError."""
    archive = bytearray()
    room = most + 64 * 1024  # the headers

    async def take(_: Stream, data: bytes) -> None:
        archive.extend(data[: max(0, room - len(archive))])

    await _finish(console.perform(Download(ref, path), consent=consent, io=ExecIO(on_output=take, most=room)))
    return await asyncio.to_thread(_first_file, bytes(archive), most)


def _first_file(archive: bytes, most: int) -> tuple[bytes, bool]:
    at = 0
    try:
        while True:
            head = tarfile.TarInfo.frombuf(archive[at : at + _BLOCK], "utf-8", "surrogateescape")
            at += _BLOCK
            if head.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                return archive[at : at + min(head.size, most)], head.size > most
            if head.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                raise UsageError("this is no plain file")
            at += -(-head.size // _BLOCK) * _BLOCK
    except tarfile.HeaderError as error:
        raise UsageError(f"what came is no archive: {error}") from None


async def upload(
    console: Console, ref: SandboxRef, source: Path, folder: str, consent: Consent, progress: Progress
) -> None:
    """Put a file or folder of this machine into the guest's ``folder``. Raises ConsoleError, OSError."""
    if not await asyncio.to_thread(source.exists):
        raise UsageError(f"{source} is not there", hint="name a file or folder of this machine")
    io = ExecIO(stdin=_chunks(_tar(source), progress))
    await _finish(console.perform(Upload(ref, folder), consent=consent, io=io))


async def _chunks(parts: Iterator[bytes], progress: Progress) -> AsyncIterator[bytes]:
    count = 0
    while (part := await asyncio.to_thread(next, parts, None)) is not None:
        count += len(part)
        yield part
        progress(count)


def _tar(source: Path) -> Iterator[bytes]:
    """A tar of a file or folder as a stream; links stay links, owners and devices stay here."""
    for path in [source, *(sorted(source.rglob("*")) if source.is_dir() and not source.is_symlink() else [])]:
        info = _info(path, str(path.relative_to(source.parent)))
        if info is None:
            continue
        yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if info.isreg():
            yield from _content(path, info.size)
    yield _END


def _info(path: Path, name: str) -> tarfile.TarInfo | None:
    status = path.lstat()
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = status.st_mode & 0o777, int(status.st_mtime)
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif path.is_dir():
        info.type = tarfile.DIRTYPE
    elif path.is_file():
        info.size = status.st_size
    else:
        return None
    return info


def _content(path: Path, size: int) -> Iterator[bytes]:
    """Exactly ``size`` bytes, padded to a block: a file that grows or shrinks meanwhile breaks no archive."""
    left = size
    with path.open("rb") as file:
        while left:
            part = file.read(min(CHUNK, left)) or bytes(min(CHUNK, left))
            left -= len(part)
            yield part
    if size % _BLOCK:
        yield bytes(_BLOCK - size % _BLOCK)


def why(error: Exception) -> str:
    """What to tell about a transfer that failed."""
    if isinstance(error, ConsoleError):
        return error.message + (f" ({error.hint})" if error.hint else "")
    return f"{getattr(error, 'filename', '') or ''} {getattr(error, 'strerror', '') or error}".strip()
