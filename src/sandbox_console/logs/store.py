"""Stores the log lines of a view as raw bytes in chunks, up to a cap; each line has a time, stream and source."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy

from msgspec import Struct

from sandbox_console.model.log import LogGap, LogItem, LogRecord, Stream

CHUNK_BYTES = 1 << 20
LINE_BYTES = 256 * 1024
"""A longer line is stored in pieces, so that a guest that never writes a newline cannot fill the memory."""
DEFAULT_CAP = 64 * 1024 * 1024
UNREAD = "it came while nobody looked, and was not read"
NO_ROOM = "memory had no room for it: tui.log_memory_mib"

STDOUT, STDERR, TTY, GAP, MARK = range(5)
_SPAN = 21
"""A chunk's offsets fit in this many bits; a line's position is ``chunk << _SPAN | offset``."""
_OFFSET = (1 << _SPAN) - 1


class Line(Struct, frozen=True):
    """One line as it was written, including its newline; for a gap or a mark, its description."""

    number: int
    at_ns: int
    kind: int
    data: bytes
    partial: bool = False
    source: int = 0

    @property
    def marked(self) -> bool:
        """Whether the line is a mark of the reader's and not output."""
        return self.kind == MARK


class _Partial(Struct):
    at_ns: int
    data: bytearray


class LineStore:
    """Lines in the order in which they ended. Beyond ``cap_bytes`` the oldest are dropped, in whole chunks.

    Each line keeps its number: ``first`` is the number of the oldest line (below 0 once older lines were prepended),
    ``end`` is one past the newest. A record without its newline waits for the rest of its line and is in ``partials()``
    until then. ``source`` distinguishes several sandboxes. ``begins`` says that there is no older output. ``holes`` are
    the gaps that stand for lines which the reader left out, with their numbers of lines.
    """

    def __init__(self, cap_bytes: int = DEFAULT_CAP) -> None:
        self.cap_bytes = max(cap_bytes, 2 * CHUNK_BYTES)
        self.holding = False
        self.clear()

    def clear(self) -> None:
        """Forget all lines. Numbering starts again."""
        self.first = 0
        self.dropped = 0
        self._starts = array("q")
        self._times = array("q")
        self._kinds = bytearray()
        self._sources = array("H")
        self._chunks: dict[int, bytearray] = {0: bytearray()}
        self._last = 0
        self._bytes = 0
        self._partials: dict[tuple[int, int], _Partial] = {}
        self.marks: list[int] = []
        self.holes: dict[int, int | None] = {}
        self.begins = False

    @property
    def end(self) -> int:
        """One past the number of the newest complete line."""
        return self.first + len(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def size_bytes(self) -> int:
        """Bytes of output held."""
        return self._bytes

    @property
    def room_bytes(self) -> int:
        """How many bytes of older output can still be prepended. While older lines are read, the cap is doubled."""
        return max(0, 2 * self.cap_bytes - self._bytes)

    def append(self, items: Sequence[LogItem], source: int = 0) -> None:
        """Add output of a sandbox, in 1 us a line. Part of a line is joined to the next part of its stream.

        While ``holding`` is set (somebody reads old lines), nothing is dropped until twice the cap is reached.
        """
        partials = self._partials
        for item in items:
            if isinstance(item, LogGap):
                self._gap(item, source)
                continue
            data = item.data
            stream = item.stream
            kind = STDOUT if stream is Stream.STDOUT else STDERR if stream is Stream.STDERR else TTY
            if data.find(b"\n") == len(data) - 1 and 0 < len(data) <= LINE_BYTES and (source, kind) not in partials:
                self._add(kind, item.at_ns, data, source)
            else:
                self._join(kind, item, source)
        limit = self.cap_bytes * (2 if self.holding else 1)
        if self._bytes > limit:
            self._drop(limit)

    def mark(self, at_ns: int, text: str) -> None:
        """Add a line of the reader's own."""
        self.marks.append(self.end)
        self._add(MARK, at_ns, f"{text}\n".encode("utf-8", "replace"), 0)

    @classmethod
    def of(cls, items: Sequence[LogItem], source: int = 0) -> LineStore:
        """A store of some output, for `prepend`. A last line without its end counts, too. This may run in a thread."""
        store = cls(1 << 62)
        store.append(items, source)
        store.end_partials()
        return store

    def end_partials(self) -> None:
        """Treat lines that have no end as complete."""
        for part in self.partials():
            self._add(part.kind, part.at_ns, part.data, part.source)
        self._partials.clear()

    def prepend(self, older: LineStore) -> int:
        """Put older output before the oldest line, and return the number of lines. The other store is emptied."""
        shift = next(iter(self._chunks)) - 1 - older._last
        self._starts = array("q", (start + (shift << _SPAN) for start in older._starts)) + self._starts
        self._times = older._times + self._times
        self._kinds = older._kinds + self._kinds
        self._sources = older._sources + self._sources
        self._chunks = {at + shift: chunk for at, chunk in older._chunks.items()} | self._chunks
        self._bytes += older._bytes
        self.holes |= {number + self.first - older.end: lines for number, lines in older.holes.items()}
        self.begins |= older.begins
        self.first -= len(older)
        self.dropped = max(0, self.dropped - len(older))
        return len(older)

    def _add(self, kind: int, at_ns: int, data: bytes | bytearray, source: int) -> None:
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
        self._sources.append(source)

    def _join(self, kind: int, item: LogRecord, source: int) -> None:
        """Add a record that is not exactly one line: part of a line, or several lines."""
        for piece in item.data.splitlines(keepends=True) if b"\n" in item.data else [item.data]:
            for at in range(0, len(piece), LINE_BYTES):
                self._piece((source, kind), item.at_ns, piece[at : at + LINE_BYTES])

    def _piece(self, key: tuple[int, int], at_ns: int, piece: bytes) -> None:
        waiting = self._partials.setdefault(key, _Partial(at_ns, bytearray()))
        waiting.data += piece
        if piece.endswith(b"\n") or len(waiting.data) >= LINE_BYTES:
            del self._partials[key]
            self._add(key[1], waiting.at_ns, waiting.data, key[0])

    def _gap(self, gap: LogGap, source: int) -> None:
        lost = "output" if gap.lines is None else f"{gap.lines:,} line{'s' if gap.lines != 1 else ''}"
        if gap.reason in (UNREAD, NO_ROOM):
            self.holes[self.end] = gap.lines
        self._add(GAP, gap.at_ns, f"[{lost} lost: {gap.reason}]\n".encode("utf-8", "replace")[:LINE_BYTES], source)

    def _drop(self, limit: int) -> None:
        while self._bytes > limit and len(self._chunks) > 1:
            oldest = next(iter(self._chunks))
            gone = bisect_left(self._starts, (oldest + 1) << _SPAN)
            self._bytes -= len(self._chunks.pop(oldest))
            self.first += gone
            self.dropped += gone
            del self._starts[:gone], self._times[:gone], self._kinds[:gone], self._sources[:gone]
            self.begins = False
        self.holes = {number: lines for number, lines in self.holes.items() if number >= self.first}
        self.marks = [number for number in self.marks if number >= self.first]

    def frozen(self) -> LineStore:
        """A snapshot of the lines that can be read in a thread. It takes 10 ms for a million lines."""
        store = copy(self)
        vars(store).update(
            _starts=self._starts[:],
            _times=self._times[:],
            _kinds=self._kinds[:],
            _sources=self._sources[:],
            _chunks=self._chunks | {self._last: self._chunks[self._last][:]},  # only the last one grows
            _partials={key: _Partial(part.at_ns, part.data[:]) for key, part in self._partials.items()},
            marks=self.marks[:],
        )
        return store

    def of_source(self, source: int) -> LineStore:
        """A store with only the lines of one source. It takes 1 us a line."""
        store = LineStore(self.cap_bytes)
        for at, (one, kind) in enumerate(zip(self._sources, self._kinds, strict=True)):
            if one == source and kind != MARK:
                line = self.line(self.first + at)
                store._add(kind, line.at_ns, line.data, 0)
        for part in self.partials():
            if part.source == source:
                store._add(part.kind, part.at_ns, part.data, 0)
        return store

    def raw(self) -> Iterator[bytes]:
        """The output in pieces of up to a chunk, without the reader's marks. Lines that have no end yet come last."""
        start = self.first
        for end in (*self.marks, self.end):
            while start < end:
                _, last, chunk = self.chunk_of(start)
                stop = min(end, last)
                yield bytes(chunk[self.start_of(start) : self.stop_of(stop - 1)])
                start = stop
            start = end + 1
        for part in self.partials():
            yield part.data

    def line(self, number: int) -> Line:
        """A line by its number. Raises IndexError if it is not in the store."""
        at = number - self.first
        if not 0 <= at < len(self._starts):
            raise IndexError(number)
        start, end = self._bounds(at)
        chunk = self._chunks[self._starts[at] >> _SPAN]
        return Line(number, self._times[at], self._kinds[at], bytes(chunk[start:end]), source=self._sources[at])

    def _bounds(self, at: int) -> tuple[int, int]:
        start = self._starts[at]
        chunk = start >> _SPAN
        following = self._starts[at + 1] if at + 1 < len(self._starts) else (chunk + 1) << _SPAN
        end = following & _OFFSET if following >> _SPAN == chunk else len(self._chunks[chunk])
        return start & _OFFSET, end

    def partials(self) -> list[Line]:
        """The lines that have no end yet, at most one for each stream, with numbers from ``end`` on."""
        waiting = sorted(self._partials.items(), key=lambda pair: pair[1].at_ns)
        return [
            Line(self.end + at, part.at_ns, kind, bytes(part.data), partial=True, source=source)
            for at, ((source, kind), part) in enumerate(waiting)
        ]

    def take_partials(self, source: int = 0) -> int | None:
        """Forget a source's lines that have no end yet, so they can be read again. Returns when the first one began."""
        mine = [key for key in self._partials if key[0] == source]
        return min((self._partials.pop(key).at_ns for key in mine), default=None)

    @property
    def oldest_ns(self) -> int | None:
        """The time of the oldest line."""
        return self._times[0] if self._times else None

    @property
    def newest_ns(self) -> int | None:
        """The time of the newest complete line."""
        return self._times[-1] if self._times else None

    def at_oldest(self) -> int:
        """How many lines have exactly the time of the oldest one."""
        return bisect_right(self._times, self._times[0]) if self._times else 0

    def since(self, at_ns: int) -> int:
        """The number of the first line at or after a time, assuming that times rise."""
        return self.first + bisect_left(self._times, at_ns)

    def chunk_of(self, number: int) -> tuple[int, int, bytearray]:
        """The chunk with a line (not a copy), the number of its first line, and one past that of its last."""
        chunk_id = self._starts[number - self.first] >> _SPAN
        first = self.first + bisect_left(self._starts, chunk_id << _SPAN)
        end = self.first + bisect_left(self._starts, (chunk_id + 1) << _SPAN)
        return first, end, self._chunks[chunk_id]

    def numbers(self, start: int, end: int) -> Callable[[int, int], int]:
        """A function that finds the line in which a byte of a chunk is, from a given line on (or less if before it).

        It is valid until the next append.
        """
        first, starts = self.first, self._starts
        base, last = starts[start - first] >> _SPAN << _SPAN, end - first
        return lambda offset, since: first + bisect_right(starts, base | offset, since - first, last) - 1

    def start_of(self, number: int) -> int:
        """The offset at which a line begins in its chunk."""
        return self._starts[number - self.first] & _OFFSET

    def stop_of(self, number: int) -> int:
        """The offset at which a line ends in its chunk."""
        return self._bounds(number - self.first)[1]
