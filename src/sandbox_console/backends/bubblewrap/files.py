"""Files of a sandbox, moved by a separate process (``file_helper.py``): any size, in constant memory.

What the helper writes into a folder in memory (/tmp, the home) counts against that folder's size, and not against the
sandbox's memory limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from sandbox_console.backends.bubblewrap import jail
from sandbox_console.backends.bubblewrap.client import Connection
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.backends.bubblewrap.supervise import mount_sources, wire
from sandbox_console.backends.tarscan import guarded
from sandbox_console.errors import BackendError, Conflict, ConsoleError, NotFound, UsageError
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.guest import FileInfo, FileKind

_PROGRAM = Path(__file__).with_name("file_helper.py")
_CHUNK = 256 * 1024
_CONFLICTS = {
    "no_directory": "",
    "denied": "it is the sandbox's user who reads and writes",
    "read_only": "/workspace, /tmp and the home folder can be written",
    "full": "folders in memory have a size: tmp_mib of [backends.bubblewrap]",
}
_MOST_BYTES = 64 * 1024 * 1024
"""The size limit of a listing: about 400,000 entries."""


async def stat(record: Record, path: str) -> FileInfo:
    """The status of a path, following links. Raises NotFound, Conflict."""
    [info] = await _ask(record, "stat", path)
    return info


async def list_dir(record: Record, path: str) -> Sequence[FileInfo]:
    """A directory's entries by name. Raises NotFound, Conflict."""
    return sorted(await _ask(record, "list", path), key=lambda info: info.name)


async def download(record: Record, path: str) -> AsyncGenerator[bytes, None]:
    """A tar of the path. Raises NotFound, Conflict."""
    helper = await _FileHelper.start(record, "download", path)
    try:
        while chunk := await helper.out.read(_CHUNK):
            yield chunk
        await helper.judge()
    finally:
        await helper.end()


async def upload(record: Record, path: str, archive: AsyncIterator[bytes]) -> None:
    """Unpack a tar. Raises NotFound, Conflict, and UsageError for an invalid archive or one that would escape."""
    helper = await _FileHelper.start(record, "upload", path)
    try:
        async for chunk in guarded(archive):
            if not await helper.give(chunk):
                break
        await helper.judge()
    finally:
        await helper.end()


async def _ask(record: Record, op: str, path: str) -> list[FileInfo]:
    helper = await _FileHelper.start(record, op, path)
    try:
        answer = bytearray()
        while chunk := await helper.out.read(_CHUNK):
            answer += chunk
            if len(answer) > _MOST_BYTES:
                raise BackendError(f"{path} has too many entries to list")
        await helper.judge()
        return [_info(json.loads(line)) for line in answer.splitlines()]
    finally:
        await helper.end()


def _info(reported: dict[str, Any]) -> FileInfo:
    return FileInfo(**{**reported, "kind": FileKind(reported["kind"])})


class _FileHelper:
    """The helper process. ``end`` may be called at any time, and leaves nothing behind."""

    def __init__(self, process: asyncio.subprocess.Process, path: str) -> None:
        self._process, self._path = process, path
        assert process.stdin is not None  # noqa: S101 - all three are pipes
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self.out = process.stdout
        self._in = process.stdin
        self._said = asyncio.ensure_future(process.stderr.read())

    @classmethod
    async def start(cls, record: Record, op: str, path: str) -> _FileHelper:
        """Start it where the path is. Raises Conflict if the path cannot be reached now."""
        if not path.startswith("/") or "\0" in path:
            raise UsageError(f"{path!r} is not an absolute path in the sandbox")
        spaces = await _spaces(record) if record.status.live else []
        try:
            root, inner = ("", path) if spaces else _stopped(record, op, path)
            name = PurePosixPath(path).name or ("/" if op == "stat" else ".")
            order = {"op": op, "path": inner, "name": name, "uid": record.uid, "spaces": spaces, "root": root}
            memory = wire.to_memfd("order", json.dumps(order).encode())
            try:
                return cls(await _run(memory, spaces), path)
            finally:
                os.close(memory)
        finally:
            for fd in spaces:
                os.close(fd)

    async def give(self, chunk: bytes) -> bool:
        """Write bytes; False if it accepts no more because it has failed."""
        try:
            self._in.write(chunk)
            await self._in.drain()
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    async def judge(self) -> None:
        """Wait for its end. Raises the error that it reported."""
        self._in.close()
        text = (await shielded(self._said)).decode("utf-8", "replace")
        if await self._process.wait() != 0:
            raise _failure(text, self._path)

    async def end(self) -> None:
        """Make sure that the process is gone."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._in.close()
        while await self.out.read(_CHUNK):  # unread bytes in the pipe keep the transport open
            pass
        await asyncio.gather(self._said, return_exceptions=True)
        await self._process.wait()


async def _run(memory: int, spaces: Sequence[int]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-X", "utf8", str(_PROGRAM), str(memory),
        stdin=pipe, stdout=pipe, stderr=pipe, cwd="/", env={}, pass_fds=(memory, *spaces), start_new_session=True,
        limit=2 * _CHUNK,
    )  # fmt: skip


async def _spaces(record: Record) -> list[int]:
    """Descriptors of the running sandbox's namespaces."""
    connection = await Connection.open(record.folder, record.spec.name)
    try:
        connection.send({"op": "spaces"})
        message, fds = await connection.receive()
    finally:
        connection.close()
    if message is None or len(fds) != 3:
        for fd in fds:
            os.close(fd)
        reason = (message or {}).get("error", "it has ended")
        raise Conflict(f"{record.spec.name}: {reason}", hint="if an older console started it: restart it")
    return fds


def _stopped(record: Record, op: str, path: str) -> tuple[str, str]:
    """The folder of this host and the path in it, for a sandbox that is not running. Raises Conflict."""
    name, parts = record.spec.name, PurePosixPath(os.path.normpath(path)).parts
    if record.spec.workspace and parts[1:2] == ("workspace",):
        return record.spec.workspace, "/" + "/".join(parts[2:])
    root = jail.root_of(record.spec.image)
    if root is not None and op != "upload" and parts[1:2] and parts[1] not in mount_sources.OWN:
        return str(root), path
    if op == "upload":
        reason = (
            "all but /workspace is in memory"
            if record.spec.workspace
            else "all of it is in memory: it has no workspace"
        )
    else:
        reason = f"{path} is there only while it runs"
    raise Conflict(f"{name} is {record.status}: {reason}", hint=f"sandbox-console start {name}")


def _failure(said: str, path: str) -> ConsoleError:
    try:
        reported = json.loads(said)
        word, text = str(reported["word"]), str(reported["text"])
    except (ValueError, LookupError, TypeError):
        last = said.strip().splitlines()
        return BackendError(f"{path} could not be copied: {last[-1] if last else 'the helper was ended'}")
    if word == "missing":
        return NotFound(f"there is no {path} in the sandbox", hint="list its folder to see what there is")
    if word in ("bad_member", "bad_archive"):
        return UsageError(text)
    if word in _CONFLICTS:
        return Conflict(f"{path}: {text}", hint=_CONFLICTS[word])
    return BackendError(f"{path} could not be copied: {text}")
