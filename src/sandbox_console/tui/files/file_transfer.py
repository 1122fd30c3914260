"""Moves files between this machine and a sandbox as tar streams. Data from a sandbox is not trusted."""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.tar_pack import PackOptions, packed
from sandbox_console.hostfs.tar_unpack import Unpacker
from sandbox_console.hostfs.walk import Location, find
from sandbox_console.model.action import Download, Upload
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import Consent, Console, ExecIO, Operation
from sandbox_console.tui.text.formatting import error_words

_BLOCK = 512
_NAME = "name a file or folder of this machine"

Progress = Callable[[int], None]


async def download(
    console: Console, ref: SandboxRef, path: str, target: Path, consent: Consent, progress: Progress,
    *, passing: bool = False,
) -> Sequence[str]:  # fmt: skip
    """Download the guest's ``path`` to ``target``, which must not exist. Raises ConsoleError, OSError.

    With ``passing``, ``target`` is only a stop on the way to a browser. It appears when it is complete, by the rules
    of ``hostfs.tar_unpack``. Returns what was left out, and why.
    """
    guest_folders, left = await _ground(console, passing=passing), list[str]()
    await asyncio.to_thread(_new_place, target, guest_folders)
    unpacker, count = (
        Unpacker(lambda _: _new_place(target, guest_folders, keep=True), left.append, guest_folders, path),
        0,
    )

    async def take(_: Stream, data: bytes) -> None:
        nonlocal count
        await unpacker.give(data)
        count += len(data)
        progress(count)

    try:
        await _finish(console.perform(Download(ref, path), consent=consent, io=ExecIO(on_output=take)))
        await unpacker.finish()
    finally:
        await run_to_completion(unpacker.abandon())
    return list(map(await console.inside.mask(ref), left)) if left else left


async def _ground(console: Console, *, passing: bool) -> GuestFolders:
    return await (console.passing_ground() if passing else console.ground())


def _new_place(target: Path, guest_folders: GuestFolders, *, keep: bool = False) -> Location:
    found = find(target, guest_folders, follow=False)
    if found.what is not None or not keep:
        found.folder.close()
    if found.what is not None:
        raise UsageError(f"{target} exists already", hint="name another place")
    return found


async def _finish(operation: Operation) -> None:
    """Wait for an operation. Cancelling the wait ends the operation."""
    try:
        await operation.result()
    except asyncio.CancelledError:
        operation.cancel()
        raise


async def read_file(console: Console, ref: SandboxRef, path: str, consent: Consent, limit: int) -> tuple[bytes, bool]:
    """Return the beginning of a guest's file, and whether there is more. Raises ConsoleError."""
    archive = bytearray()
    room = limit + 64 * 1024  # for the headers

    async def take(_: Stream, data: bytes) -> None:
        archive.extend(data[: max(0, room - len(archive))])

    await _finish(console.perform(Download(ref, path), consent=consent, io=ExecIO(on_output=take, most=room)))
    return await asyncio.to_thread(_first_file, bytes(archive), limit)


def _first_file(archive: bytes, limit: int) -> tuple[bytes, bool]:
    at = 0
    try:
        while True:
            head = tarfile.TarInfo.frombuf(archive[at : at + _BLOCK], "utf-8", "surrogateescape")
            at += _BLOCK
            if head.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
                return archive[at : at + min(head.size, limit)], head.size > limit
            if head.type not in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                raise UsageError("this is not a regular file")
            at += -(-head.size // _BLOCK) * _BLOCK
    except tarfile.HeaderError as error:
        raise UsageError(f"the data is not an archive: {error}") from None


async def upload(
    console: Console, ref: SandboxRef, source: Path, folder: str, consent: Consent, progress: Progress,
    *, passing: bool = False,
) -> Sequence[str]:  # fmt: skip
    """Upload a file or folder of this machine to the guest's ``folder``. Raises ConsoleError, OSError.

    With ``passing``, a browser has sent ``source``. Links stay links. Owners and devices are not transferred. Returns
    what was left out, and why.
    """
    left = list[str]()
    order = PackOptions(await _ground(console, passing=passing), left.append)
    try:
        found = await asyncio.to_thread(find, source, order.ground, follow=False)
    except FileNotFoundError:
        raise UsageError(f"{source} does not exist", hint=_NAME) from None
    with found:
        if found.what is None:
            raise UsageError(f"{source} does not exist", hint=_NAME)
        io = ExecIO(stdin=_counted(packed(found, source.name, order), progress))
        await _finish(console.perform(Upload(ref, folder), consent=consent, io=io))
    return left


async def _counted(parts: AsyncIterator[bytes], progress: Progress) -> AsyncIterator[bytes]:
    count = 0
    async for part in parts:
        count += len(part)
        yield part
        progress(count)


def failure_text(error: Exception) -> str:
    """Return the message for a transfer that failed."""
    if isinstance(error, ConsoleError):
        return error_words(error)
    return f"{getattr(error, 'filename', '') or ''} {getattr(error, 'strerror', '') or error}".strip()
