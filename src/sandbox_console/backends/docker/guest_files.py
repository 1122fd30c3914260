"""Reads files that only a running container sees, with its image's own sh, stat, find, readlink and tar.

The guest controls their output: a hostile image can lie about its own files, but about nothing else.
"""

from __future__ import annotations

import asyncio
import posixpath
import stat as modes
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox_console.backends.docker import executor
from sandbox_console.backends.docker.guest_path import GuestPath
from sandbox_console.backends.docker.labels import HELPER
from sandbox_console.errors import BackendError, Conflict, ConsoleError, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit, SandboxRef

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.process import DockerProcess

PATIENCE_S = 20.0
"""The time limit of one query. An archive may take as long as data flows."""

MOST_BYTES = 64 * 1024 * 1024
"""The size limit of an answer: about 500,000 entries."""

# A name has no slash, so two begin a record. readlink's answers are separated by NULs.
_STAT = "exec stat -L -c '//%f %s %u %g %Y %n' -- \"$1\""
_FOLDER = '[ -d "$1" ] || { [ -e "$1" ] && exit 5; exit 3; }; '
_LIST = (
    _FOLDER
    + r"""cd -- "$1" || exit 3
find . ! -name . -prune -exec stat -c '//%f %s %u %g %Y %n' {} + || exit 4
printf '\0'
find . ! -name . -prune -type l -exec \
  sh -c 'for n; do printf "%s\0" "$n"; readlink -n -- "$n"; printf "\0"; done' sh {} +
"""
)
_UNPACK = _FOLDER + 'exec tar -xf - -C "$1"'
_PACK = '[ -e "$1/$2" ] || [ -L "$1/$2" ] || exit 3; exec tar -cf - -C "$1" -- "$2"'


async def stat(engine: Engine, guest_path: GuestPath) -> FileInfo | None:
    """The status of a path, following links; None if it does not exist. Raises Unsupported if there is no ``stat``."""
    end, out, err = await _ask(engine, guest_path, _STAT, guest_path.path)
    if end.code in (126, 127):
        raise Unsupported(f"{guest_path.path} is in memory, and the image lacks sh and stat to look at it with")
    infos = _infos(out, {}) if end.code == 0 else []
    if not infos and b"ermission denied" in err:
        raise Conflict(f"the sandbox's user may not look at {guest_path.path}")
    return infos[0] if infos else None


async def list_dir(engine: Engine, guest_path: GuestPath) -> list[FileInfo] | None:
    """The entries; None if the image lacks a program for it, or its user has no permission."""
    try:
        end, out, _ = await _ask(engine, guest_path, _LIST, guest_path.path)
    except (Conflict, BackendError):
        return None
    if end.code == 3 and guest_path.inside:
        raise NotFound(f"there is no folder {guest_path.path} in the sandbox that its user may enter")
    if end.code == 5 and guest_path.inside:
        raise Conflict(f"{guest_path.path} is not a directory")
    listing, nul, links = out.partition(b"\0")
    if end.code != 0 or not nul:
        return None
    pairs = links.split(b"\0")
    return _infos(listing, dict(zip(pairs[::2], pairs[1::2], strict=False)))


async def download(engine: Engine, guest_path: GuestPath) -> AsyncGenerator[bytes, None]:
    """A tar made inside the container."""
    folder, name = posixpath.split(guest_path.path)
    process = await _run(engine, guest_path, _PACK, folder, name or ".")
    err = bytearray()
    try:
        async for stream, data in process.output():
            if stream is Stream.STDERR:
                err += data[: 4096 - len(err)]
            else:
                yield data
        _judge(await process.wait(), bytes(err), guest_path)
    finally:
        await _release(process)


async def upload(engine: Engine, guest_path: GuestPath, archive: AsyncIterator[bytes]) -> None:
    """Unpack a tar inside, as the sandbox's user."""
    process = await _run(engine, guest_path, _UNPACK, guest_path.path)
    try:
        saying = asyncio.ensure_future(_output_of(process))
        try:
            async for chunk in archive:
                await process.write(chunk)
            await process.close_stdin()
            _, err = await saying
        finally:
            saying.cancel()
            with suppress(asyncio.CancelledError, ConsoleError):
                await saying
        _judge(await process.wait(), err, guest_path)
    finally:
        await _release(process)


async def _run(engine: Engine, guest_path: GuestPath, script: str, *words: str) -> DockerProcess:
    ref = SandboxRef(engine.backend, engine.context, guest_path.container)
    return await executor.start_command(
        engine, Exec(ref, ("sh", "-c", script, HELPER, *words), env={"LC_ALL": "C"}), ()
    )


async def _ask(engine: Engine, guest_path: GuestPath, script: str, *words: str) -> tuple[Exit, bytes, bytes]:
    process = await _run(engine, guest_path, script, *words)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.close_stdin()
            out, err = await _output_of(process)
            return await process.wait(), out, err
    except TimeoutError as error:
        raise BackendError(f"looking at {guest_path.path} in the sandbox took more than {PATIENCE_S:g} s") from error
    finally:
        await _release(process)


async def _release(process: DockerProcess) -> None:
    """End a helper. A failure to end it must not hide an earlier error."""
    if process.ended:
        return
    before = sys.exception()
    try:
        await run_to_completion(process.kill())
    except BackendError as error:
        if before is None:
            raise
        before.add_note(str(error))


async def _output_of(process: DockerProcess) -> tuple[bytes, bytes]:
    out, err = bytearray(), bytearray()
    async for stream, data in process.output():
        (err if stream is Stream.STDERR else out).extend(data)
        if len(out) + len(err) > MOST_BYTES:
            raise BackendError("the sandbox's answer is too long")
    return bytes(out), bytes(err)


def _judge(end: Exit, err: bytes, guest_path: GuestPath) -> None:
    if end.code == 0:
        return
    if end.code == 3:
        raise NotFound(f"there is no {guest_path.path} in the sandbox")
    if end.code == 5:
        raise Conflict(f"{guest_path.path} is not a directory")
    if end.code in (126, 127):
        raise Unsupported(
            f"{guest_path.path} is in memory, and the image lacks sh and tar to copy it with",
            hint="copy to a folder on disk, or pass the bytes through exec",
        )
    message = err.decode("utf-8", "replace").strip()[:500]
    hint = "it is in memory and bounded: copy to a folder on disk" if "No space left" in message else ""
    raise BackendError(f"tar in the sandbox failed: {message}", hint=hint)


def _infos(listing: bytes, targets: dict[bytes, bytes]) -> list[FileInfo]:
    return [_info(record.removesuffix(b"\n"), targets) for record in listing.split(b"//")[1:]]


def _info(record: bytes, targets: dict[bytes, bytes]) -> FileInfo:
    mode, size, uid, gid, modified, name = record.split(b" ", 5)
    bits = int(mode, 16)
    return FileInfo(
        name=_text(name.removeprefix(b"./")),
        kind=_kind(bits),
        size=int(size),
        mode=modes.S_IMODE(bits),
        uid=int(uid),
        gid=int(gid),
        modified_at=float(modified),
        target=_text(targets.get(name, b"")),
    )


def _kind(bits: int) -> FileKind:
    if modes.S_ISDIR(bits):
        return FileKind.DIRECTORY
    if modes.S_ISLNK(bits):
        return FileKind.LINK
    return FileKind.FILE if modes.S_ISREG(bits) else FileKind.OTHER


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
