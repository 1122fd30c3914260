"""Tars of a running sandbox's files, written by the ``sh`` and the ``tar`` of its image."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from sandbox_console.backends.base import Process
from sandbox_console.errors import Conflict, NotFound
from sandbox_console.model.log import Stream

_PACK = '[ -e "$1/$2" ] || [ -L "$1/$2" ] || exit 3; exec tar -cf - -C "$1" -- "$2"'
NEED_FOLDER = '[ -d "$1" ] || { [ -e "$1" ] && exit 4; exit 3; }'
"""A line of a script that ends with the codes of `need_path` unless its first argument is a folder."""
_COMPLAINT_MOST = 1000


def pack(path: str, shell: str = "/bin/sh") -> tuple[str, ...]:
    """The command that writes a tar of ``path``, named by its last component."""
    folder, name = posixpath.split(path.rstrip("/") or "/")
    return shell, "-c", _PACK, "sh", folder or "/", name or "."


async def download(
    process: Process, path: str, judge: Callable[[int | None, str, bytes], None]
) -> AsyncGenerator[bytes, None]:
    """The output of `pack`. At its end, ``judge`` raises by the exit code, the path and the end of stderr."""
    complaint = b""
    try:
        async with aclosing(process.output()) as chunks:  # type: ignore[type-var]
            async for stream, data in chunks:
                if stream is Stream.STDOUT:
                    yield data
                else:
                    complaint = (complaint + data)[-_COMPLAINT_MOST:]
        judge((await process.wait()).code, path, complaint)
    finally:
        await process.kill()


def need_path(code: int | None, path: str) -> None:
    """Raise NotFound for the exit code 3, Conflict for 4: of a path that is not there, or is not a folder."""
    if code == 3:
        raise NotFound(f"there is no {path} in the sandbox")
    if code == 4:
        raise Conflict(f"{path} is not a folder")
