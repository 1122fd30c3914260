"""The operations on commands and files."""

from __future__ import annotations

import base64
import binascii
import posixpath
import secrets
from typing import Any

from sandbox_console.errors import BackendError, NotFound, TimedOut, Unsupported, UsageError
from sandbox_console.library import SandboxHandle
from sandbox_console.model.guest import FileKind
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.servers.a3s_box import rows
from sandbox_console.servers.a3s_box.boxes import Boxes
from sandbox_console.servers.a3s_box.protocol import Command, File

_LONGEST_S = 570.0
"""For a command without a limit of its own: the SDK waits 600 s for an answer."""
_MOST_BYTES = 16 << 20
_MOST_ENTRIES = 10_000


async def run(boxes: Boxes, asked: Command) -> dict[str, Any]:
    """``command_run``: of each stream the first MiB is kept."""
    _, handle = await boxes.fenced(asked)
    stdin = None if asked.stdin_base64 is None else _decoded(asked.stdin_base64)
    limit = asked.timeout_ms / 1000 if asked.timeout_ms else _LONGEST_S
    done = await handle.exec(
        asked.argv, stdin=stdin, env=asked.env, workdir=asked.cwd, user=asked.user, timeout_s=limit
    )
    if done.timed_out:
        raise TimedOut(f"the command timed out after {limit:g} s")
    return {
        "stdout_base64": base64.b64encode(done.stdout).decode(),
        "stderr_base64": base64.b64encode(done.stderr).decode(),
        "exit_code": -1 if done.exit_code is None else done.exit_code,
        "truncated": done.truncated,
        "request_id": _request_id(asked.request_id),
    }


async def write(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``file_write``."""
    data = _decoded(asked.data_base64)
    handle = await _handle(boxes, asked)
    await handle.write_file(asked.path, data)
    return {"path": asked.path, "size": len(data), "request_id": _request_id(asked.request_id)}


async def read(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``file_read``."""
    handle = await _handle(boxes, asked)
    limit = min(asked.max_bytes, _MOST_BYTES) if asked.max_bytes is not None else _MOST_BYTES
    data = await handle.read_file(asked.path, max_bytes=limit)
    return {"path": asked.path, "data_base64": base64.b64encode(data).decode(), "size": len(data)}


async def stat(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``filesystem_stat``."""
    handle = await _handle(boxes, asked)
    return {"entry": rows.entry(asked.path, await boxes.opened.inside.stat(handle.ref, asked.path))}


async def listed(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``filesystem_list``."""
    handle = await _handle(boxes, asked)
    found: list[dict[str, Any]] = []
    await _walk(boxes, handle.ref, asked.path, asked.depth, found)
    return {"entries": found}


async def _walk(boxes: Boxes, ref: SandboxRef, path: str, depth: int, found: list[dict[str, Any]]) -> None:
    for info in await boxes.opened.inside.list_dir(ref, path):
        where = posixpath.join(path, info.name)
        found.append(rows.entry(where, info))
        if len(found) > _MOST_ENTRIES:
            raise UsageError(f"{path} has more than {_MOST_ENTRIES} entries", hint="ask for a smaller depth")
        if depth > 1 and info.kind is FileKind.DIRECTORY:
            await _walk(boxes, ref, where, depth - 1, found)


async def make_dir(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``filesystem_make_dir``."""
    await (await _handle(boxes, asked)).mkdir(asked.path)
    return {"ok": True, "request_id": _request_id(asked.request_id)}


async def move(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``filesystem_move``, by the image's ``mv``."""
    return await _changed(boxes, asked, "mv", "--", asked.path, asked.destination)


async def remove(boxes: Boxes, asked: File) -> dict[str, Any]:
    """``filesystem_remove``, by the image's ``rm``."""
    return await _changed(boxes, asked, "rm", "-r", "--", asked.path)


async def _changed(boxes: Boxes, asked: File, *words: str) -> dict[str, Any]:
    _, handle = await boxes.fenced(asked)
    done = await handle.exec(words, user=asked.user)
    if not done.ok:
        said = done.stderr.decode("utf-8", "replace").strip()[:300] or f"exit code {done.exit_code}"
        raise NotFound(said) if "No such file" in said else BackendError(said)
    return {"ok": True, "request_id": _request_id(asked.request_id)}


async def _handle(boxes: Boxes, asked: File) -> SandboxHandle:
    if asked.user:
        raise Unsupported("files are moved as the sandbox's own user", hint="leave out user")
    return (await boxes.fenced(asked))[1]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("the data is not base64") from None


def _request_id(asked: str | None) -> str:
    return asked or secrets.token_hex(8)
