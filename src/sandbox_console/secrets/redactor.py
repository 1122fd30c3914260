"""Masks known secrets in output, in all forms in which they usually leak, across chunks and invisible codes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import groupby
from typing import Any

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from sandbox_console.secrets import control_strings, visible_text
from sandbox_console.secrets.beginnings import Beginnings
from sandbox_console.secrets.canonical_codes import CanonicalCodes
from sandbox_console.secrets.encodings import Edges, edges, forms
from sandbox_console.secrets.screen import Screen, roams
from sandbox_console.secrets.screen_cells import Form, form_of
from sandbox_console.secrets.terminal_line import Line
from sandbox_console.secrets.visible_text import COLUMNS_MOST

MASK = b"[secret]"

Span = tuple[int, int]
Size = tuple[int, int]
"""Columns and rows of a terminal."""


class Tally:
    """Counts the values that are masked while it is set in ``TALLY``. A plain class: a holder imports no msgspec."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> int:
        """Return the count so far and reset it to 0."""
        taken, self.count = self.count, 0
        return taken


TALLY: ContextVar[Tally | None] = ContextVar("tally", default=None)
"""Counts the masks of the current task and of the threads that it uses."""

_COLOURS = re.compile(rb"\x1b\[[0-9;:]*m")
_ROUNDS = 4
_HELD_MOST = 64 * 1024
_CODE_KEPT = 16
"""The bytes that are kept of a control string that is too long: what begins it, and no character of a value."""


class Redactor:
    """Masks the values that it knows. Values are added as they are resolved."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: list[bytes] = []
        self._edges: dict[bytes, Edges] = {}
        self._beginnings = Beginnings((), (), ())
        self._lefts: frozenset[int] = frozenset()
        self._longest = 0
        self._automaton: BytesAhoCorasick | None = None
        self._cells: list[Form] | None = None
        self.add(values)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    @property
    def active(self) -> bool:
        """Whether any value is known."""
        return self._automaton is not None

    def add(self, values: Iterable[str]) -> bool:
        """Add values to be masked. Returns whether any was not known."""
        values = list(values)
        new = {form for value in values for form in forms(value)}.difference(self._forms)
        if new:
            self._learn(new, (beside for value in values for beside in edges(value).items()))
        return bool(new)

    def state(self) -> dict[str, list[Any]]:
        """What it looks for, as JSON: for another process, which has to keep it to itself. See ``from_state``."""
        return {
            "forms": [form.decode("latin-1") for form in self._forms],
            "edges": [[form.decode("latin-1"), *map(sorted, sides)] for form, sides in self._edges.items()],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, list[Any]]) -> Redactor:
        """A redactor that looks for the same as the one whose ``state`` this was."""
        found = cls()
        beside = [(form, (frozenset(left), frozenset(right))) for form, left, right in state["edges"]]
        known = {form.encode("latin-1") for form in state["forms"]}
        if known:
            found._learn(known, ((form.encode("latin-1"), sides) for form, sides in beside))
        return found

    def _learn(self, new: set[bytes], beside: Iterable[tuple[bytes, Edges]]) -> None:
        for form, (left, right) in beside:
            known = self._edges.get(form, (frozenset(), frozenset()))
            self._edges[form] = (known[0] | left, known[1] | right)
        self._forms = sorted(new.union(self._forms))
        self._automaton = BytesAhoCorasick(self._forms, matchkind=MatchKind.LeftmostLongest)
        self._longest = max(map(len, self._forms))
        ended = {form for form, (_, right) in self._edges.items() if right}  # the next byte decides how much is masked
        self._beginnings = Beginnings(self._forms, ended, {form for form, (left, _) in self._edges.items() if left})
        self._lefts = frozenset().union(*(left for left, _ in self._edges.values()))
        self._cells = None

    def cells(self) -> list[Form]:
        """All forms of the values, as a screen has them."""
        if self._cells is None:
            self._cells = [form_of(form) for form in self._forms if len(form) <= 4 * COLUMNS_MOST]  # no row is longer
        return self._cells

    # -- what is certain of a stream

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """Split plain bytes of a stream into a masked part that is certain, and a rest that may begin a value.

        A match that begins within the rest waits with it, because a longer one may follow.
        """
        if self._automaton is None:
            return data, b""
        return self._parted(data, self.hits(data), self.held_back)

    def split_seen(self, data: bytes, line: Line) -> tuple[bytes, bytes]:
        """Split bytes that look different to a reader; ``line`` is the line that was shown before them."""
        if self._automaton is None:
            return data, b""
        spans = self.spans(data, line)
        shown, rest = self._parted(data, spans, lambda part: self._unsure(part, line))
        if len(rest) > self._longest + _HELD_MOST:  # endless codes, within the beginning of a value or alone
            more, rest = (rest, b"") if visible_text.begun(rest) == len(rest) else self._shortened(rest)
            shown += more
        return self.settled(shown, line) if spans else shown, rest

    def _shortened(self, rest: bytes) -> tuple[bytes, bytes]:
        """Bytes that may begin a value, without what readers do not see between its characters, such as an image.

        Returns what may be shown, and what still waits, so that the rest of the value is recognised.
        """
        size = visible_text.begun(rest)
        head, code = rest[: len(rest) - size], rest[len(rest) - size :][:_CODE_KEPT]
        views = [visible_text.seen(one) for one in (head, *control_strings.readings(head))]
        if visible_text.moves(head):
            views.append(Line().write(head).view(to_cursor=True))
        begun = max((view.data[len(view.data) - self.held_back(view.data) :] for view in views), key=len)
        return (b"", begun + code) if begun else (MASK, b"")

    def _parted(self, data: bytes, spans: Iterable[Span], unsure: Callable[[bytes], int]) -> tuple[bytes, bytes]:
        hold = len(data) - unsure(data)
        known = []
        for start, end in spans:
            if start >= hold:
                break
            known.append((start, end))
            if end > hold:
                hold = len(data) - unsure(data[end:])
        return (_replaced(data[:hold], known), data[hold:]) if known or hold < len(data) else (data, b"")

    def held_back(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a value."""
        if self._automaton is None or not data:
            return 0
        tail = data[-self._longest :]
        size, is_left = self._beginnings.longest(tail)
        if size:
            beside = data[-size - 1 :][:1] if len(data) > size else b""
            return size + bool(is_left and beside and beside[0] in self._lefts)
        return int(data[-1] in self._lefts)

    def _unsure(self, data: bytes, line: Line) -> int:
        """How many of the last bytes may begin a value, as a reader sees them."""
        head = data[: len(data) - visible_text.begun(data)]
        hold, begin = [self.held_back(data), len(data) - len(head)], head.rfind(b"\n") + 1
        if size := self._unseen(head):
            hold.append(size + len(data) - len(head))
        before = line.below(head[:begin]) if begin else line
        if before.moved or before.moves(head[begin:]):
            now = before.past().write(head[begin:], begin).view(to_cursor=True)
            if size := self.held_back(now.data):
                hold.append(len(data) - max(begin, now.span(len(now.data) - size, len(now.data))[0]))
        size = max(hold)
        return size + visible_text.begun(data, len(data) - size)  # never cut a code: its rest would show

    def _unseen(self, head: bytes) -> int:
        """How many of the last bytes may begin a value, ignoring invisible codes."""
        short = 4 * self._longest + visible_text.CODE_MOST
        within = len(head) > short and visible_text.begun(head, len(head) - short)  # the short tail begins in a code
        for tail in (head if within else head[-short:], head):
            views = [visible_text.seen(one) for one in (tail, *control_strings.readings(tail))]
            if all(len(view.data) > self._longest for view in views):
                break
        sizes = [(view, self.held_back(view.data)) for view in views]
        return max((len(tail) - view.place(len(view.data) - size) for view, size in sizes if size), default=0)

    # -- what is masked

    def spans(self, data: bytes, line: Line | None = None) -> list[Span]:
        """Where values are in ``data``, as bytes and as seen after ``line``; in order and without overlaps."""
        hits = self.hits(data)
        if line is None and visible_text.plain(data):
            return hits
        if others := list(control_strings.readings(data)):
            hits = _apart([*hits, *(span for other in others for span in self._as_read(other, line))])
        if not (_moves(data, line) or self._found(visible_text.bare(data))):
            return hits
        return _apart([*hits, *self._as_read(data, line)])

    def _as_read(self, data: bytes, line: Line | None) -> Iterator[Span]:
        """Where values are without invisible codes, and as a terminal shows them."""
        view = visible_text.seen(data)
        yield from (view.span(start, end) for start, end in self.hits(view.data))
        yield from self._written(data, line)

    def _written(self, data: bytes, line: Line | None) -> Iterator[Span]:
        """Where values are in the text as a terminal shows it, line by line, if a cursor goes back."""
        if not _moves(data, line):
            return
        at, now = 0, line.past() if line else Line()
        for part in data.split(b"\n"):
            rest = b"\n"
            if not (now.moved or now.moves(part)):
                rest = part + rest
            else:
                view = now.write(part, at).view()
                for start, end in self.hits(view.data):
                    begin, stop = view.span(start, end)
                    if stop > 0:
                        yield max(begin, at), stop
                    elif not (line and self._found(line.view().data)):  # only the codes of this part make it a value
                        yield at, at + len(part)
            at, now = at + len(part) + 1, now.below(rest)

    def hits(self, data: bytes) -> list[Span]:
        """Where values are in bytes, with the neighbours that hold some of their bits."""
        if self._automaton is None:
            return []
        found, past = [], 0
        for index, start, end in self._automaton.find_matches_as_indexes(data):
            left, right = self._edges.get(self._forms[index], ((), ()))
            before = start > past and data[start - 1] in left
            behind = end < len(data) and data[end] in right
            found.append((max(start - before, past), end + behind))
            past = end + behind
        return found

    def _found(self, data: bytes) -> bool:
        """Whether ``data`` contains a value."""
        return self._automaton is not None and bool(self._automaton.find_matches_as_indexes(data))

    def settled(self, data: bytes, line: Line | None = None) -> bytes:
        """``data`` masked, and masked again for values that masking another one has completed."""
        for _ in range(_ROUNDS):
            if not (found := self.spans(data, line)):
                return data
            data = _replaced(data, found)
        lines = data.split(b"\n")  # only somebody who wants to evade the mask writes like this
        columns = line.columns if line else 0
        return b"\n".join(
            MASK if self.spans(one, line if not at else Line(columns)) else one for at, one in enumerate(lines)
        )

    def apply(self, data: bytes) -> bytes:
        """All of ``data`` with the known values masked."""
        if self._automaton is None:
            return data
        if visible_text.plain(data):
            return _replaced(data, self.hits(data))
        data = self.settled(data)
        return self.masked_on(Screen(self), data) if roams(data) else data

    def masked_on(self, screen: Screen, data: bytes) -> bytes:
        """``data`` without what the codes in it put together on a screen."""
        before = screen.masked
        data = screen.mask(data)
        if (tally := TALLY.get()) is not None:
            tally.count += screen.masked - before
        return data

    def text(self, text: str) -> str:
        """Mask values in text."""
        if self._automaton is None:
            return text
        return self.apply(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def across(self, parts: list[str], sizes: Sequence[Size] = ()) -> list[str]:
        """Mask values in text that comes in parts. If a value spans several parts, its mask goes into the first one.

        ``sizes`` has the size of the terminal for each part, if it is known.
        """
        if self._automaton is None:
            return parts
        parts = self._within(_canonical(parts) if sizes else parts, sizes)
        if not any(roams(part.encode("utf-8", "replace")) for part in parts):
            return parts
        screen, done = Screen(self, sizes[0] if sizes else None), []
        for at, part in enumerate(parts):
            if at and sizes and sizes[at] != sizes[at - 1]:
                screen.resize(*sizes[at])
            data = part.encode("utf-8", "surrogatepass")
            done.append(self.masked_on(screen, data).decode("utf-8", "surrogatepass"))
        return done

    def _in_rows(self, parts: list[bytes], sizes: Sequence[Size]) -> Iterator[Span]:
        """Where values are in output as terminals of known sizes show it, whose rows end at their width."""
        at, line = 0, Line()
        for (columns, _), group in groupby(zip(sizes, parts, strict=False), key=lambda pair: pair[0]):
            data = b"".join(part for _, part in group)
            line = line.resized(columns) if line.columns else Line(columns)
            yield from ((at + start, at + end) for start, end in self._written(data, line))
            yield from self._as_text(data, at) if b"\b" in data else ()
            end = data.rfind(b"\n") + 1
            line, at = line.below(data[:end]) if end else line, at + len(data)
            line.write(data[end:])

    def _as_text(self, data: bytes, at: int) -> Iterator[Span]:
        """Where values are in the text of a recording, which is exported and searched."""
        for line in data.split(b"\n"):
            if b"\b" in line:
                view = visible_text.backspaced(line, at)
                yield from (view.span(start, end) for start, end in self.hits(view.data))
            at += len(line) + 1

    def _within(self, parts: list[str], sizes: Sequence[Size]) -> list[str]:
        for _ in range(_ROUNDS):
            data = [part.encode("utf-8", "surrogatepass") for part in parts]
            if not (spans := _apart([*self.spans(b"".join(data)), *self._in_rows(data, sizes)])):
                return parts
            parts = [part.decode("utf-8", "replace") for part in _without(data, spans)]
        return [self.text("".join(parts)), *("" for _ in parts[1:])]


def _canonical(parts: list[str]) -> list[str]:
    """What a terminal of a known size gets, with codes that all terminals obey in the same way."""
    codes = CanonicalCodes()
    return [codes.feed(part.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass") for part in parts]


def _moves(data: bytes, line: Line | None) -> bool:
    """Whether some of the text, which follows ``line``, is written elsewhere than behind what is before it."""
    if line is None:
        return visible_text.moves(data)
    return line.moved or line.moves(data)


def _replaced(data: bytes, spans: Iterable[Span]) -> bytes:
    """Replace each span by a mask. Colours that are set within a span are kept after its mask."""
    parts: list[bytes] = []
    at = count = 0
    for start, end in spans:
        parts += data[at:start], MASK, *_COLOURS.findall(data, start, end)
        at = end
        count += 1
    if count and (tally := TALLY.get()) is not None:
        tally.count += count
    return b"".join((*parts, data[at:])) if parts else data


def _apart(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, with overlapping ones joined."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _without(parts: Iterable[bytes], spans: Iterable[Span]) -> list[bytes]:
    """The parts of a text without the spans, and with a mask where each span begins."""
    left = deque(spans)
    done: list[bytes] = []
    at = 0
    for part in parts:
        kept, end, position = [], at + len(part), at
        while left and left[0][0] < end:
            start, stop = left[0]
            if start >= at:
                kept += [part[position - at : start - at], MASK]
            position = min(stop, end)
            if stop > end:
                break
            left.popleft()
        kept.append(part[position - at :])
        done.append(b"".join(kept))
        at = end
    return done
