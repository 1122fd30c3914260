"""The log lines that a view holds: raw bytes in chunks, capped, each line with its time and stream."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox_console.model.log import LogGap, LogItem, LogRecord, Stream

CHUNK_BYTES = 1 << 20
LINE_BYTES = 256 * 1024
"""A line longer than this is stored in pieces: a guest that never writes a newline fills no memory."""
DEFAULT_CAP = 64 * 1024 * 1024

STDOUT, STDERR, TTY, GAP = range(4)
_SPAN = 21
"""A chunk's offsets fit in this many bits; a line's position is ``chunk << _SPAN | offset``."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it was written, newline included; of a gap, its description."""

    number: int
    at_ns: int
    kind: int
    data: bytes
    partial: bool = False


@dataclass(slots=True)
class _Partial:
    at_ns: int
    data: bytearray


class LineStore:
    """Lines in the order in which they ended, the oldest dropped by whole chunks past ``cap_bytes``.

    Lines are numbered from 0 for ever: ``first`` is the oldest that is kept, ``end`` one past the newest. A record
    without its newline waits for the rest of its stream; until then it is in ``partials()``.
    """

    def __init__(self, cap_bytes: int = DEFAULT_CAP) -> None:
        self.cap_bytes = max(cap_bytes, 2 * CHUNK_BYTES)
        self.clear()

    def clear(self) -> None:
        """Forget everything; numbering begins anew."""
        self.first = 0
        self._starts = array("Q")
        self._times = array("q")
        self._kinds = bytearray()
        self._chunks: dict[int, bytearray] = {0: bytearray()}
        self._last = 0
        self._bytes = 0
        self._partials: dict[int, _Partial] = {}

    @property
    def end(self) -> int:
        """One past the number of the newest whole line."""
        return self.first + len(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def size_bytes(self) -> int:
        """Bytes of output held."""
        return self._bytes

    def append(self, items: Sequence[LogItem]) -> None:
        """Add what a sandbox wrote. 1 us a line; a part of a line is joined to the next part of its stream."""
        partials = self._partials
        for item in items:
            if isinstance(item, LogGap):
                self._gap(item)
                continue
            data = item.data
            stream = item.stream
            kind = STDOUT if stream is Stream.STDOUT else STDERR if stream is Stream.STDERR else TTY
            if kind not in partials and data.find(b"\n") == len(data) - 1 and 0 < len(data) <= LINE_BYTES:
                self._add(kind, item.at_ns, data)
            else:
                self._join(kind, item)
        if self._bytes > self.cap_bytes:
            self._drop()

    def _add(self, kind: int, at_ns: int, data: bytes | bytearray) -> None:
        chunk = self._chunks[self._last]
        at = len(chunk)
        if at + len(data) > CHUNK_BYTES:
            self._last += 1
            chunk = self._chunks[self._last] = bytearray()
            at = 0
        chunk += data
        self._bytes += len(data)
        self._starts.append(self._last << _SPAN | at)
        self._times.append(at_ns)
        self._kinds.append(kind)

    def _join(self, kind: int, item: LogRecord) -> None:
        """Add a record that is not one whole line: parts of one, or several."""
        for piece in item.data.splitlines(keepends=True) if b"\n" in item.data else [item.data]:
            for at in range(0, len(piece), LINE_BYTES):
                self._piece(kind, item.at_ns, piece[at : at + LINE_BYTES])

    def _piece(self, kind: int, at_ns: int, piece: bytes) -> None:
        waiting = self._partials.setdefault(kind, _Partial(at_ns, bytearray()))
        waiting.data += piece
        if piece.endswith(b"\n") or len(waiting.data) >= LINE_BYTES:
            del self._partials[kind]
            self._add(kind, waiting.at_ns, waiting.data)

    def _gap(self, gap: LogGap) -> None:
        lost = "output" if gap.lines is None else f"{gap.lines:,} line{'s' if gap.lines != 1 else ''}"
        self._add(GAP, gap.at_ns, f"[{lost} lost: {gap.reason}]\n".encode("utf-8", "replace")[:LINE_BYTES])

    def _drop(self) -> None:
        while self._bytes > self.cap_bytes and len(self._chunks) > 1:
            oldest = next(iter(self._chunks))
            gone = bisect_left(self._starts, (oldest + 1) << _SPAN)
            self._bytes -= len(self._chunks.pop(oldest))
            self.first += gone
            del self._starts[:gone], self._times[:gone], self._kinds[:gone]

    def line(self, number: int) -> Line:
        """A line by its number. Raises IndexError for one that is not kept."""
        at = number - self.first
        if not 0 <= at < len(self._starts):
            raise IndexError(number)
        start, end = self._bounds(at)
        chunk = self._chunks[self._starts[at] >> _SPAN]
        return Line(number, self._times[at], self._kinds[at], bytes(chunk[start:end]))

    def _bounds(self, at: int) -> tuple[int, int]:
        start = self._starts[at]
        chunk = start >> _SPAN
        following = self._starts[at + 1] if at + 1 < len(self._starts) else (chunk + 1) << _SPAN
        end = following & ((1 << _SPAN) - 1) if following >> _SPAN == chunk else len(self._chunks[chunk])
        return start & ((1 << _SPAN) - 1), end

    def partials(self) -> list[Line]:
        """The lines that have no end yet, numbered on from ``end``; at most one a stream."""
        waiting = sorted(self._partials.items(), key=lambda pair: pair[1].at_ns)
        return [
            Line(self.end + at, part.at_ns, kind, bytes(part.data), partial=True)
            for at, (kind, part) in enumerate(waiting)
        ]

    def since(self, at_ns: int) -> int:
        """The number of the first line at or after a time, taking times as rising."""
        return self.first + bisect_left(self._times, at_ns)

    def chunks(self, start: int = 0) -> Iterator[tuple[int, int, bytearray]]:
        """Each chunk with the numbers of its first line and one past its last, from line ``start`` on.

        The bytearray is the store's own: read it before the next append.
        """
        for chunk_id in list(self._chunks):
            if chunk_id not in self._chunks:
                continue  # dropped while the caller paused between two chunks
            first = self.first + bisect_left(self._starts, chunk_id << _SPAN)
            end = self.first + bisect_left(self._starts, (chunk_id + 1) << _SPAN)
            if end > max(first, start):
                yield first, end, self._chunks[chunk_id]

    def line_at(self, first: int, end: int, offset: int) -> tuple[int, int]:
        """The number of the line that holds a byte of the chunk of lines first..end, and where that line ends."""
        base = self._starts[first - self.first] >> _SPAN << _SPAN
        at = bisect_right(self._starts, base | offset, first - self.first, end - self.first) - 1
        return self.first + at, self._bounds(at)[1]

    def start_of(self, number: int) -> int:
        """Where a line begins in its chunk."""
        return self._starts[number - self.first] & ((1 << _SPAN) - 1)
