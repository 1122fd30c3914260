"""Takes the changed files of a sandbox for a bundle: regular files up to a size, with secrets masked."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from sandbox_console.errors import ConsoleError
from sandbox_console.model.guest import PathChange
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.gate.operation import Fetch

FILES_MOST = 1000
"""The most files that are taken. Of other paths, only the name is kept."""
ALL_MOST = 256 << 20
"""The most bytes of all files together."""
_HEADERS_MOST = 64 << 10


async def changed_files(
    changes: Sequence[PathChange], fetch: Fetch, redactor: Redactor, limit: int, patience_s: float
) -> AsyncIterator[tuple[dict[str, Any], bytes | None]]:
    """Each changed path as data, with its content if that is kept. ``number`` counts the contents from 1."""
    number = total = 0
    for path_change in sorted(changes, key=lambda change: change.path):
        details: dict[str, Any] = {"path": path_change.path, "how": path_change.how}
        content: bytes | None = None
        if path_change.how != "deleted" and limit:
            full = number >= FILES_MOST or total >= ALL_MOST
            try:
                content, more = (None, {"why": "the bundle has enough files"}) if full else await _one(
                    fetch, path_change.path, limit, patience_s
                )  # fmt: skip
            except TimeoutError:
                more = {"why": f"no answer within {patience_s:g} s"}
            except ConsoleError as error:
                more = {"why": error.message}
            details |= more
        if content is not None:
            number += 1
            total += len(content)
            content = await asyncio.to_thread(redactor.apply, content)
        yield details | {"number": number}, content


async def _one(fetch: Fetch, path: str, limit: int, patience_s: float) -> tuple[bytes | None, dict[str, Any]]:
    """A file's content and what is known about it. Reads no more than the file and its header."""
    data = bytearray()
    async with asyncio.timeout(patience_s), aclosing(fetch(path)) as blocks:  # type: ignore[type-var]
        async for block in blocks:
            data += block
            if len(data) > limit + _HEADERS_MOST:
                break
    return await asyncio.to_thread(_parsed, bytes(data), limit)


def _parsed(data: bytes, limit: int) -> tuple[bytes | None, dict[str, Any]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            info = tar.next()
            if info is None:
                return None, {"why": "it is gone"}
            details: dict[str, Any] = {"size": info.size, "mode": info.mode, "modified_at": info.mtime}
            if not info.isreg():
                return None, {"kind": "folder" if info.isdir() else "link" if info.issym() else "other"}
            if info.size > limit:
                return None, details | {"why": f"it has more than {limit} bytes"}
            content = data[info.offset_data : info.offset_data + info.size]
            return (content, details) if len(content) == info.size else (None, details | {"why": "it is cut"})
    except (tarfile.TarError, ValueError, OverflowError, EOFError):
        return None, {"why": "it cannot be read"}
