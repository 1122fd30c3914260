"""Keeps logs after their sandboxes are gone, with secrets masked, in files of bounded size.

Each sandbox has two files. The older one is removed when the newer one has reached half of a sandbox's share. A file
begins with one JSON line that says whose it is. Then come frames of time (ns), stream, length and bytes; an incomplete
frame ends the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from sandbox_console.hostfs.own_files import NOT_OURS, leave_damaged, open_own
from sandbox_console.logs.read_position import Reading, ReadPosition
from sandbox_console.model.log import LogGap, LogItem, LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.reads.visible_records import VisibleRecords

_FRAME = struct.Struct(">qBI")
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_KINDS: tuple[Stream | None, ...] = (Stream.STDOUT, Stream.STDERR, Stream.TTY, None)
PIECE = 256 * 1024
"""A line is written when it is complete. A longer line than this is written in pieces."""


_LONGEST = 64 << 20
"""Bytes of a frame: far more than a line and its last piece."""


class RetainedLog(Struct, frozen=True):
    """A kept log: whose it is, its size, and when it was last written (seconds since the epoch)."""

    ref: SandboxRef
    name: str
    size_bytes: int
    at: float


class Retained:
    """The kept logs of one state folder. Its methods that touch the disk run in a thread."""

    def __init__(self, folder: Path, total_bytes: int, each_bytes: int, visible: VisibleRecords | None = None) -> None:
        """``visible`` says what whoever asks may see; without it, that is everything."""
        self.problem = ""
        self._visible = visible
        self._folder = folder
        self._total = total_bytes
        self._half = max(each_bytes // 2, 1)
        self._places: dict[SandboxRef, ReadPosition] = {}
        self._lock = asyncio.Lock()

    def keeper(self, ref: SandboxRef, name: str) -> Keeper:
        """A keeper that adds one reading of a log to its kept part."""
        return Keeper(self, ref, name)

    async def add(self, keeper: Keeper, items: Sequence[LogItem]) -> None:
        """Add new items. A failing disk is reported in ``problem``, and reading goes on."""
        if not items:
            return
        async with self._lock:  # two views of one sandbox must not write it twice
            try:
                await asyncio.to_thread(self._add, keeper, items)
                self.problem = ""
            except OSError as error:
                self.problem = f"logs are not kept: {error.strerror or error}"

    async def listing(self) -> list[RetainedLog]:
        """All kept logs that whoever asks may see, the newest first. A failing disk is reported in ``problem``."""
        try:
            every = await asyncio.to_thread(self._listing)
            return await self._visible.of_sandboxes(every, lambda log: log.ref) if self._visible else every
        except OSError as error:
            self.problem = f"kept logs cannot be read: {error.strerror or error}"
            return []

    async def read(self, ref: SandboxRef) -> list[LogItem]:
        """One kept log. It is empty if there is none, and a gap if its files cannot be read."""
        try:
            return await asyncio.to_thread(lambda: list(self._items(ref)))
        except OSError as error:
            return [LogGap(time.time_ns(), f"its kept log cannot be read: {error.strerror or error}")]

    # -- in a thread

    def _add(self, keeper: Keeper, items: Sequence[LogItem]) -> None:
        ref = keeper.ref
        if keeper.reading is None:
            keeper.reading = Reading(self._places_of(ref))
        frames = b"".join(map(_frame, keeper.reading.new(items, over=True)))
        if not frames:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(ref)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size + len(frames) > self._half:
                path.replace(path.with_suffix(".old"))
        self._append(path, ref, keeper.name, frames)
        self._shrink(path)

    def _places_of(self, ref: SandboxRef) -> ReadPosition:
        found = self._places.get(ref)
        if found is None:
            found = self._places[ref] = ReadPosition()
            before = Reading(found)
            for item in self._items(ref):
                before.new([item], over=True)
        return found

    def _append(self, path: Path, ref: SandboxRef, name: str, frames: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                leave_damaged(path, "it is not a file")
        handle = os.open(path, _APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            if file.tell() == 0:
                whose = {"backend": ref.backend, "host": ref.host, "id": ref.id, "name": name}
                file.write(json.dumps(whose).encode() + b"\n")
            file.write(frames)

    def _shrink(self, written: Path) -> None:
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        size = sum(info.st_size for _, info in files)
        for path, info in files:
            if size <= self._total or path == written:
                break
            path.unlink(missing_ok=True)
            size -= info.st_size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.suffix in (".log", ".old"):
                    with contextlib.suppress(FileNotFoundError):
                        yield path, path.stat()

    def _path(self, ref: SandboxRef) -> Path:
        return self._folder / f"{hashlib.sha256(str(ref).encode()).hexdigest()[:32]}.log"

    def _listing(self) -> list[RetainedLog]:
        found: dict[SandboxRef, RetainedLog] = {}
        for path, info in self._files():
            with contextlib.suppress(OSError, *NOT_OURS):
                with open_own(path) as file:
                    whose = json.loads(file.readline(8192))
                ref = SandboxRef(whose["backend"], whose["host"], whose["id"])
                before = found.get(ref)
                size, at = (before.size_bytes, before.at) if before else (0, 0.0)
                found[ref] = RetainedLog(ref, whose["name"], size + info.st_size, max(at, info.st_mtime))
        return sorted(found.values(), key=lambda log: -log.at)

    def _items(self, ref: SandboxRef) -> Iterator[LogItem]:
        path = self._path(ref)
        for file_path in (path.with_suffix(".old"), path):
            try:
                yield from _read(file_path)
            except FileNotFoundError:
                continue
            except OSError as error:
                yield LogGap(0, f"what was kept here cannot be read: {error.strerror}")


class Keeper:
    """Adds one reading of a log, in complete lines. A line without its end is read again later."""

    def __init__(self, kept: Retained, ref: SandboxRef, name: str) -> None:
        self.ref = ref
        self.name = name
        self.reading: Reading | None = None
        self._kept = kept
        self._open: dict[Stream, LogRecord] = {}

    async def store(self, items: Sequence[LogItem]) -> None:
        """Add what was read."""
        await self._kept.add(self, [whole for item in items if (whole := self._whole(item)) is not None])

    async def end(self) -> None:
        """End the log: a last line without its end is kept as it is."""
        await self._kept.add(self, list(self._open.values()))
        self._open.clear()

    def _whole(self, item: LogItem) -> LogItem | None:
        if not isinstance(item, LogRecord):
            return item
        if (begun := self._open.pop(item.stream, None)) is not None:
            item = LogRecord(begun.at_ns, item.stream, begun.data + item.data)
        if item.data.endswith(b"\n") or len(item.data) >= PIECE:
            return item
        if not item.data:
            return None
        self._open[item.stream] = item
        return None


def _frame(item: LogItem) -> bytes:
    if isinstance(item, LogRecord):
        return _FRAME.pack(item.at_ns, _KINDS.index(item.stream), len(item.data)) + item.data
    data = json.dumps([item.lines, item.reason]).encode()
    return _FRAME.pack(item.at_ns, _KINDS.index(None), len(data)) + data


def _read(path: Path) -> Iterator[LogItem]:
    with open_own(path) as file:
        file.readline(8192)
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            at_ns, kind, length = _FRAME.unpack(head)
            if not 0 < length <= _LONGEST or kind >= len(_KINDS) or len(data := file.read(length)) < length:
                return
            stream = _KINDS[kind]
            if stream is not None:
                yield LogRecord(at_ns, stream, data)
            else:
                yield _gap(at_ns, data)


def _gap(at_ns: int, data: bytes) -> LogGap:
    try:
        lines, reason = json.loads(data)
        return LogGap(at_ns, str(reason), None if lines is None else int(lines))
    except (ValueError, TypeError):
        return LogGap(at_ns, "what was kept here is damaged")
