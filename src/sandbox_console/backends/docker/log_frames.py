"""Parses the engine's log format: frames with a header of 8 bytes; each payload is a timestamp, a space and text.

The header has the stream (1 stdout, 2 stderr), three zero bytes and the big-endian length (Docker Engine API, "Attach",
stream format). A line above 16 KiB is sent in several payloads, of which only the last one ends with a newline. A
container with a terminal has no frames: its timestamps are in the text itself.
"""

from __future__ import annotations

import re
import struct
from calendar import timegm
from time import strptime

from sandbox_console.model.log import LogRecord, Stream

PART = 16 * 1024
_HEAD_SIZE = 8
_NEWLINE = ord("\n")
_unpack = struct.Struct(">BxxxL").unpack_from
_STREAMS = {0: Stream.STDOUT, 1: Stream.STDOUT, 2: Stream.STDERR}
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")
_STAMP_LENGTH = 31


class Clock:
    """Timestamps of the fixed form 2026-01-02T03:04:05.123456789Z as ns since the epoch; each second is parsed once."""

    def __init__(self) -> None:
        self._second = b""
        self._ns = 0

    def ns(self, stamp: bytes) -> int:
        """Parse one. Raises ValueError for another form."""
        if stamp[:19] != self._second:
            self._ns = timegm(strptime(stamp[:19].decode("ascii"), "%Y-%m-%dT%H:%M:%S")) * 10**9
            self._second = stamp[:19]
        return self._ns + int(stamp[20:29])


class Demuxer:
    """Turns frames into records; a frame that is cut by the end of a chunk waits for the next chunk.

    The engine's `local` log driver drops the newline that ends a line of several parts. It is put back: a part that is
    not full is the last of its line, and all parts of a line have one time.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._clock = Clock()
        self._open: dict[Stream, int] = {}

    def feed(self, chunk: bytes) -> list[LogRecord]:
        """The records that are complete now."""
        data = self._rest + chunk if self._rest else chunk
        at, end = 0, len(data)
        out: list[LogRecord] = []
        while end - at >= _HEAD_SIZE:
            kind, length = _unpack(data, at)
            text = at + _HEAD_SIZE + _STAMP_LENGTH
            stop = at + _HEAD_SIZE + length
            if end < stop:
                break
            at_ns = self._clock.ns(data[at + _HEAD_SIZE : text - 1])
            self._add(out, at_ns, _STREAMS.get(kind, Stream.STDOUT), data[text:stop])
            at = stop
        self._rest = data[at:]
        return out

    def feed_joined(self, chunk: bytes) -> list[LogRecord]:
        """The bytes in fewer records: consecutive whole lines of one stream become one record."""
        data = self._rest + chunk if self._rest else chunk
        at, end = 0, len(data)
        out, lines, of, first = list[LogRecord](), list[bytes](), -1, 0
        while end - at >= _HEAD_SIZE:
            kind, length = _unpack(data, at)
            stop = at + _HEAD_SIZE + length
            if end < stop:
                break
            whole = data[stop - 1] == _NEWLINE and not self._open
            if lines and (kind != of or not whole):
                out.append(self._record(data, first, of, b"".join(lines)))
                lines = []
            text = data[at + _HEAD_SIZE + _STAMP_LENGTH : stop]
            if not whole:
                stamp = data[at + _HEAD_SIZE : at + _HEAD_SIZE + _STAMP_LENGTH - 1]
                self._add(out, self._clock.ns(stamp), _STREAMS.get(kind, Stream.STDOUT), text)
            else:
                if not lines:
                    of, first = kind, at
                lines.append(text)
            at = stop
        if lines:
            out.append(self._record(data, first, of, b"".join(lines)))
        self._rest = data[at:]
        return out

    def _record(self, data: bytes, at: int, kind: int, text: bytes) -> LogRecord:
        """A record with the time of the frame at ``at``."""
        stamp = data[at + _HEAD_SIZE : at + _HEAD_SIZE + _STAMP_LENGTH - 1]
        return LogRecord(self._clock.ns(stamp), _STREAMS.get(kind, Stream.STDOUT), text)

    def flush(self) -> list[LogRecord]:
        """The newlines of lines that ended with a full part. Half a frame at the end is not a record."""
        return [LogRecord(at_ns, stream, b"\n") for stream, at_ns in self._open.items()]

    def _add(self, out: list[LogRecord], at_ns: int, stream: Stream, text: bytes) -> None:
        if self._open:
            opened = self._open.pop(stream, None)
            if opened is not None and opened != at_ns:
                out.append(LogRecord(opened, stream, b"\n"))
        if not text.endswith(b"\n"):
            if len(text) >= PART:
                self._open[stream] = at_ns
            else:
                text += b"\n"
        out.append(LogRecord(at_ns, stream, text))


class BareDemuxer:
    """Turns frames without timestamps into as few records as there are changes of the stream; none has a time.

    Only for the `json-file` log driver, which keeps each newline as it was written. What `local` drops cannot
    be found without the times.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._open: set[Stream] = set()

    def feed(self, chunk: bytes) -> list[LogRecord]:
        """The records that are complete now."""
        data = self._rest + chunk if self._rest else chunk
        at, end = 0, len(data)
        out, texts, of = list[LogRecord](), list[bytes](), -1
        while end - at >= _HEAD_SIZE:
            kind, length = _unpack(data, at)
            stop = at + _HEAD_SIZE + length
            if end < stop:
                break
            if kind != of:
                self._add(out, of, texts)
                of, texts = kind, []
            texts.append(data[at + _HEAD_SIZE : stop])
            at = stop
        self._add(out, of, texts)
        self._rest = data[at:]
        return out

    def flush(self) -> list[LogRecord]:
        """The newlines of lines that ended with a full part, as a demuxer with times gives them."""
        return [LogRecord(0, stream, b"\n") for stream in self._open]

    def _add(self, out: list[LogRecord], kind: int, texts: list[bytes]) -> None:
        if texts:
            record = LogRecord(0, _STREAMS.get(kind, Stream.STDOUT), b"".join(texts))
            (self._open.discard if record.data.endswith(b"\n") else self._open.add)(record.stream)
            out.append(record)


class TtySplitter:
    """Turns a terminal's log into records: a timestamp begins each line, and each 16 KiB part of a long one."""

    def __init__(self) -> None:
        self._rest = b""
        self._clock = Clock()

    def feed(self, chunk: bytes) -> list[LogRecord]:
        """The records that are complete now."""
        data = self._rest + chunk
        out: list[LogRecord] = []
        at = 0
        while (end := self._end(data, at)) is not None:
            out.append(self._record(data[at:end]))
            at = end
        self._rest = data[at:]
        return out

    def flush(self) -> list[LogRecord]:
        """The last part, which does not end with a newline."""
        rest, self._rest = self._rest, b""
        return [self._record(rest)] if len(rest) >= _STAMP_LENGTH else []

    def _end(self, data: bytes, at: int) -> int | None:
        newline = data.find(b"\n", at + _STAMP_LENGTH)
        full = at + _STAMP_LENGTH + PART
        # A part is full only if the timestamp of the next one follows: a long line can be recognised in no other way.
        if (newline < 0 or newline >= full) and _STAMP.match(data, full):
            return full
        return newline + 1 if newline >= 0 else None

    def _record(self, text: bytes) -> LogRecord:
        return LogRecord(self._clock.ns(text[: _STAMP_LENGTH - 1]), Stream.TTY, text[_STAMP_LENGTH:])
