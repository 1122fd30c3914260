"""Parses the logs of Podman, which has Docker's frames with other timestamps.

They are in whole seconds and in the service's own time zone (RFC 3339), so their length is not fixed.
"""

from __future__ import annotations

import struct
from datetime import datetime

from sandbox_console.model.log import LogRecord, Stream

_HEAD_SIZE = 8
_unpack = struct.Struct(">BxxxL").unpack_from


class _Stamps:
    """Splits a timestamp off a line; each second is parsed once."""

    def __init__(self) -> None:
        self._last = b""
        self._ns = 0

    @property
    def last_ns(self) -> int:
        """The last time that was parsed, 0 before the first."""
        return self._ns

    def split(self, line: bytes) -> tuple[int, bytes]:
        """The time in ns since the epoch, and the text. Raises ValueError if it begins with no timestamp."""
        stamp, _, text = line.partition(b" ")
        if stamp != self._last:
            self._ns = int(datetime.fromisoformat(stamp.decode("ascii")).timestamp()) * 10**9
            self._last = stamp
        return self._ns, text


class PodmanDemuxer:
    """Turns frames into records, one a line or a part of a line; a frame that is cut waits for the next chunk."""

    def __init__(self) -> None:
        self._rest = b""
        self._stamps = _Stamps()

    def feed(self, chunk: bytes) -> list[LogRecord]:
        """The records that are complete now."""
        data, at, out = self._rest + chunk, 0, list[LogRecord]()
        while len(data) - at >= _HEAD_SIZE:
            kind, length = _unpack(data, at)
            stop = at + _HEAD_SIZE + length
            if len(data) < stop:
                break
            at_ns, text = self._stamps.split(data[at + _HEAD_SIZE : stop])
            out.append(LogRecord(at_ns, Stream.STDERR if kind == 2 else Stream.STDOUT, text))
            at = stop
        self._rest = data[at:]
        return out

    def flush(self) -> list[LogRecord]:
        """Return nothing: half a frame at the end is not a record."""
        return []


class PodmanTtySplitter:
    """Turns a terminal's log into records: a timestamp begins each line."""

    def __init__(self) -> None:
        self._rest = b""
        self._stamps = _Stamps()

    def feed(self, chunk: bytes) -> list[LogRecord]:
        """The records that are complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [self._record(line + b"\n") for line in lines]

    def flush(self) -> list[LogRecord]:
        """The last line, which does not end with a newline."""
        rest, self._rest = self._rest, b""
        return [self._record(rest)] if rest else []

    def _record(self, line: bytes) -> LogRecord:
        try:
            at_ns, text = self._stamps.split(line)
        except ValueError:  # the guest's text that is no line of its own
            return LogRecord(self._stamps.last_ns, Stream.TTY, line)
        return LogRecord(at_ns, Stream.TTY, text)
