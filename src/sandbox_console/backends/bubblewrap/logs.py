"""Reads a sandbox's output from its segments, in batches and with bounded memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct, field

from sandbox_console.backends.bubblewrap.supervise import segments
from sandbox_console.backends.common import notify
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord, Stream

_BATCH = 512 << 10  # bytes of output in a batch: about 5 ms of work in the thread
_PART = 64 << 10  # a longer line is returned in parts
_QUIET_S = 0.3  # a part of a line is shown if nothing followed it for this long
_RESTART_S = 0.5  # a sandbox that ends while it is followed may be restarting
_STREAMS = {segments.STDOUT: Stream.STDOUT, segments.STDERR: Stream.STDERR}


class _Line(Struct):
    at_ns: int = 0
    data: bytearray = field(default_factory=bytearray)


class Reader:
    """A position in the output of one sandbox. Its methods block: call them in a thread."""

    def __init__(self, folder: Path, query: LogQuery) -> None:
        self._folder = str(folder)
        self._since = int((query.since or 0) * 1e9)
        self._until = int(query.until * 1e9) if query.until is not None else None
        self._file: BinaryIO | None = None
        self._number = 0
        self._lines = 0
        self._skip = 0
        self._open_lines = {stream: _Line() for stream in _STREAMS.values()}
        self._out: list[LogItem] = []
        self._closed = False
        self.past = False  # the time given by ``until`` has passed
        # What is written meanwhile is for who follows: a flood may be as fast as its reader.
        self._end = None if query.follow else self._current_end()
        if query.tail is not None:
            self._seek_tail(query.tail)

    def read(self) -> list[LogItem]:
        """The next records, up to a batch; empty only at the current end, however many are skipped before."""
        self._out = []
        size = 0
        while (size < _BATCH or not self._out) and not (self.past or self._closed):
            frame = self._frame()
            if frame is None:
                break
            at_ns, kind, data = frame
            size += len(data)
            self._take(at_ns, kind, data)
        return self._out

    def flush(self) -> list[LogItem]:
        """The lines that have no end yet."""
        self._out = []
        for stream, line in self._open_lines.items():
            self._give(stream, line, whole=False)
        return self._out

    def close(self) -> None:
        """Close the file, and end a read that goes on in a thread, as over a flood of which nothing is wanted."""
        self._closed = True
        self._shut()

    def _shut(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    # -- frames

    def _frame(self) -> tuple[int, int, bytes] | None:
        while True:
            if self._file is None and not self._next():
                return None
            if self._at_end():
                return None
            if (frame := self._whole()) is not None:
                return frame
            if not self._next():
                return None

    def _current_end(self) -> tuple[int, int]:
        """The newest segment and its size in bytes."""
        number = max(self._numbers(), default=0)
        try:
            return number, os.stat(segments.path_of(self._folder, number)).st_size  # noqa: PTH116
        except FileNotFoundError:
            return number, 0

    def _at_end(self) -> bool:
        """Whether everything was read that was there at the beginning."""
        return bool(self._end and self._file and (self._number, self._file.tell()) >= self._end)

    def _whole(self) -> tuple[int, int, bytes] | None:
        """The next frame of the open file; None, at the same place, at its end or if the frame is incomplete."""
        assert self._file is not None  # noqa: S101 - _next opened it
        offset = self._file.tell()
        head = self._file.read(segments.FRAME.size)
        if len(head) == segments.FRAME.size:
            at_ns, kind, length = segments.FRAME.unpack(head)
            data = self._file.read(length)
            if len(data) == length:
                return at_ns, kind, data
        self._file.seek(offset)
        return None

    def _next(self) -> bool:
        """Go on to the next segment that exists; note what rotation removed."""
        later = [number for number in self._numbers() if number > self._number]
        if not later:
            return False
        try:
            file = open(segments.path_of(self._folder, later[0]), "rb")  # noqa: SIM115, PTH123
        except FileNotFoundError:
            return self._next()
        head = file.read(segments.HEAD.size)
        if len(head) < segments.HEAD.size:  # it is being begun, or its supervisor was killed then
            file.close()
            self._number = later[0] if (abandoned := len(later) > 1) else self._number
            return abandoned and self._next()
        if self._follows():  # it was written after our last read: finish this file first
            file.close()
            return True
        self._shut()
        self._file = file
        before: int = segments.HEAD.unpack(head)[1]
        if later[0] != self._number + 1 and before > self._lines:
            self._drop_parts()
            # Some of what was rotated away before the first file may be older than the requested time.
            known = self._number > 0 or not self._since
            self._gap("rotated away", before - self._lines if known else None)
        self._number, self._lines = later[0], before
        return True

    def _follows(self) -> bool:
        """Whether a whole frame follows. A half one, whose supervisor was killed as it wrote it, never gets whole."""
        if self._file is None:
            return False
        offset = self._file.tell()
        there = self._whole() is not None
        self._file.seek(offset)
        return there

    def _numbers(self) -> list[int]:
        try:
            return segments.numbers(self._folder)
        except FileNotFoundError:
            return []

    def _drop_parts(self) -> None:
        for stream, line in self._open_lines.items():
            self._give(stream, line, whole=False)

    def _gap(self, reason: str, lines: int | None) -> None:
        at_ns = 0
        if self._file:
            offset = self._file.tell()
            head = self._file.read(segments.FRAME.size)
            self._file.seek(offset)
            at_ns = segments.FRAME.unpack(head)[0] if len(head) == segments.FRAME.size else 0
        if at_ns >= self._since:  # otherwise the lost output is older, too
            self._out.append(LogGap(at_ns, reason, lines))

    # -- lines

    def _take(self, at_ns: int, kind: int, data: bytes) -> None:
        if self._until is not None and at_ns > self._until:
            self.past = True
            return
        if kind == segments.GAP:
            lines, *size = map(int, data.split())
            reason = f"a flood: {size[0]} bytes were left out" if size else "the disk was full"
            if size:
                self._drop_parts()
            if at_ns >= self._since:
                self._out.append(LogGap(at_ns, reason, lines))
            return
        self._lines += data.count(b"\n")
        stream = _STREAMS[kind]
        line = self._open_lines[stream]
        for piece in data.splitlines(keepends=True) if b"\r" not in data else _split(data):
            line.at_ns = line.at_ns if line.data else at_ns
            line.data += piece
            if piece.endswith(b"\n"):
                self._give(stream, line, whole=True)
            elif len(line.data) >= _PART:
                self._give(stream, line, whole=False)

    def _give(self, stream: Stream, line: _Line, *, whole: bool) -> None:
        if not line.data:
            return
        data = bytes(line.data)
        line.data.clear()
        if self._skip > 0:
            self._skip -= whole
        elif line.at_ns >= self._since:
            self._out.append(LogRecord(line.at_ns, stream, data))

    # -- tail

    def _seek_tail(self, tail: int) -> None:
        """Begin in the segment that contains the first requested line, and skip to it."""
        have = self._numbers()
        starts = [(number, before) for number in have if (before := self._before(number)) is not None]
        if not starts:
            return
        total = self._count_from(*starts[-1])
        first = total - tail
        number, before = next((one for one in reversed(starts) if one[1] < first), starts[0])
        self._number, self._lines = number - 1, before
        self._skip = max(0, first - before)

    def _before(self, number: int) -> int | None:
        """The lines before a segment; None if it is gone, or has no head (see ``_next``)."""
        try:
            with open(segments.path_of(self._folder, number), "rb") as file:  # noqa: PTH123
                head = file.read(segments.HEAD.size)
        except FileNotFoundError:
            return None
        return int(segments.HEAD.unpack(head)[1]) if len(head) == segments.HEAD.size else None

    def _count_from(self, number: int, lines: int) -> int:
        """The number of lines, including a last one without an end."""
        open_ended: dict[int, bool] = {}
        try:
            with open(segments.path_of(self._folder, number), "rb") as file:  # noqa: PTH123
                file.read(segments.HEAD.size)
                end = self._end or (number + 1, 0)
                while (number, file.tell()) < end and len(
                    head := file.read(segments.FRAME.size)
                ) == segments.FRAME.size:
                    _at, kind, length = segments.FRAME.unpack(head)
                    data = file.read(length)
                    if kind != segments.GAP:
                        lines += data.count(b"\n")
                        open_ended[kind] = not data.endswith(b"\n")
        except FileNotFoundError:
            return lines
        return lines + sum(open_ended.values())


def _split(data: bytes) -> list[bytes]:
    """Split at newlines only: ``bytes.splitlines`` also ends a line at a carriage return."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


async def read(folder: Path, query: LogQuery, live: Callable[[], bool]) -> AsyncIterator[Sequence[LogItem]]:
    """Batches of a sandbox's output; with ``follow`` until it has ended. ``live`` is called in a thread."""
    logs = folder / "logs"
    reader = await asyncio.to_thread(Reader, logs, query)
    watch = notify.Folders(notify.LOG, poll_s=0.25) if query.follow else None
    try:
        if watch:
            watch.add("logs", logs)
        while True:
            running = query.follow and await asyncio.to_thread(live)
            while batch := await asyncio.to_thread(reader.read):
                yield batch
            if reader.past:
                return
            if watch and (running or await _restarted(live)):
                if not await watch.changed(_QUIET_S) and (batch := await asyncio.to_thread(reader.flush)):
                    yield batch
                continue
            if batch := await asyncio.to_thread(reader.flush):
                yield batch
            return
    finally:
        reader.close()
        if watch:
            watch.close()


async def _restarted(live: Callable[[], bool]) -> bool:
    await asyncio.sleep(_RESTART_S)
    return await asyncio.to_thread(live)
