"""Files of a running microVM: listed through the runtime's API, moved as tars with the image's ``tar``."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from msgspec import structs

from sandbox_console.backends.base import Process
from sandbox_console.backends.common import guest_tar
from sandbox_console.backends.microsandbox import guest_scripts, sdk
from sandbox_console.backends.tarscan import guarded
from sandbox_console.errors import BackendError, Conflict, NotFound, Unsupported
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.log import Stream

_KINDS = {"file": FileKind.FILE, "directory": FileKind.DIRECTORY, "symlink": FileKind.LINK}
_UNPACK = guest_tar.NEED_FOLDER + '; exec tar -xf - -C "$1"'
_LINKS = 'cd "$1" || exit 1; shift; for name; do readlink -- "$name"; printf "\\0"; done'


def unpack(path: str) -> tuple[str, ...]:
    """The command that unpacks a tar from its stdin into the folder ``path``."""
    return "/bin/sh", "-c", _UNPACK, "sh", path


async def stat(module: Any, machine: Any, path: str) -> FileInfo:
    """The status of a path. Links are followed. Raises NotFound."""
    found = await _asked(module, machine.fs.stat(path), path)
    return _info(posixpath.basename(path.rstrip("/")) or "/", found)


async def list_dir(module: Any, machine: Any, path: str) -> Sequence[FileInfo]:
    """A directory's entries, sorted by name. Raises NotFound, or Conflict if it is not a directory."""
    if (await stat(module, machine, path)).kind is not FileKind.DIRECTORY:
        raise Conflict(f"{path} is not a folder")
    entries = await _asked(module, machine.fs.list(path), path)
    infos = sorted((_info(posixpath.basename(one.path), one) for one in entries), key=lambda info: info.name)
    targets = await _targets(machine, path, [one.name for one in infos if one.kind is FileKind.LINK])
    return [structs.replace(one, target=targets.get(one.name, "")) for one in infos]


async def _targets(machine: Any, path: str, names: Sequence[str]) -> dict[str, str]:
    """Where links lead, which the runtime does not report; empty if the image has no ``sh`` or ``readlink``."""
    if not names:
        return {}
    try:
        _, out, _ = await guest_scripts.ask(machine, _LINKS, path, *names)
    except (Unsupported, BackendError):
        return {}
    targets = [one.removesuffix(b"\n").decode("utf-8", "surrogateescape") for one in out.split(b"\0")]
    return dict(zip(names, targets, strict=False))


def download(process: Process, path: str) -> AsyncGenerator[bytes, None]:
    """The output of `guest_tar.pack`. Raises NotFound."""
    return guest_tar.download(process, path, _judge)


async def upload(process: Process, path: str, archive: AsyncIterator[bytes]) -> None:
    """Feed :func:`unpack`. Raises NotFound, and UsageError for a member that would leave ``path``."""
    complaint = asyncio.create_task(_complaint(process))
    try:
        async for chunk in guarded(archive):
            await process.write(chunk)
        await process.close_stdin()
        message = await complaint
        _judge((await process.wait()).code, path, message)
    finally:
        complaint.cancel()
        await process.kill()


async def _complaint(process: Process) -> bytes:
    message = b""
    async for stream, data in process.output():
        if stream is Stream.STDERR:
            message = (message + data)[-1000:]
    return message


def _judge(code: int | None, path: str, complaint: bytes) -> None:
    guest_tar.need_path(code, path)
    if code in (126, 127):
        raise Unsupported("the image lacks sh or tar, which files are moved by", hint="use an image that has them")
    if code != 0:
        raise BackendError(f"tar failed on {path}: {complaint.decode('utf-8', 'replace').strip()}")


async def _asked(module: Any, question: Any, path: str) -> Any:
    try:
        return await sdk.call(module, path, question)
    except BackendError as error:
        if "No such file" in error.message or "os error 2" in error.message:
            raise NotFound(f"there is no {path} in the sandbox") from error
        raise


def _info(name: str, found: Any) -> FileInfo:
    return FileInfo(
        name=name,
        kind=_KINDS.get(str(found.kind), FileKind.OTHER),
        size=int(found.size),
        mode=int(found.mode) & 0o7777,
        modified_at=float(found.modified) / 1000 if found.modified else None,
    )
