"""Known secret values taken out of output, in every form they usually leak in, also across chunks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from sandbox_console.secrets.forms import forms

MASK = b"[secret]"


class Redactor:
    """Knows values; hands out masked bytes. Values are added as they are resolved, and never shown."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: set[bytes] = set()
        self._prefixes: frozenset[bytes] = frozenset()
        self._longest = 0
        self._automaton: BytesAhoCorasick | None = None
        self.add(values)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    @property
    def active(self) -> bool:
        """Whether it knows any value."""
        return self._automaton is not None

    def add(self, values: Iterable[str]) -> None:
        """Know more values."""
        new = {form for value in values for form in forms(value)} - self._forms
        if not new:
            return
        self._forms |= new
        self._automaton = BytesAhoCorasick(sorted(self._forms), matchkind=MatchKind.LeftmostLongest)
        self._longest = max(map(len, self._forms))
        self._prefixes = frozenset(form[:size] for form in self._forms for size in range(1, len(form)))

    def split(self, data: bytes) -> tuple[bytes, bytes]:
        """What is certain of a stream so far, masked, and the rest, which may begin a value.

        A match that begins within the rest waits with it: a longer one may be on its way there.
        """
        if self._automaton is None:
            return data, b""
        hold = len(data) - self.held_back(data)
        parts: list[bytes] = []
        at = 0
        for _, start, end in self._automaton.find_matches_as_indexes(data):
            if start >= hold:
                break
            parts += data[at:start], MASK
            at = end
            if end > hold:
                hold = len(data) - self.held_back(data[end:])
        return b"".join((*parts, data[at:hold])), data[max(at, hold) :]

    def apply(self, data: bytes) -> bytes:
        """All of ``data`` with the known values masked."""
        if self._automaton is None:
            return data
        parts: list[bytes] = []
        at = 0
        for _, start, end in self._automaton.find_matches_as_indexes(data):
            parts += data[at:start], MASK
            at = end
        return b"".join((*parts, data[at:])) if parts else data

    def text(self, text: str) -> str:
        """The same for text."""
        if self._automaton is None:
            return text
        return self.apply(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def across(self, parts: list[str]) -> list[str]:
        """The same for a text in parts, also where a value lies over several of them: the mask stands in the first."""
        if self._automaton is None:
            return parts
        data = [part.encode("utf-8", "surrogatepass") for part in parts]
        spans = [(start, end) for _, start, end in self._automaton.find_matches_as_indexes(b"".join(data))]
        return [part.decode("utf-8", "replace") for part in _without(data, spans)] if spans else parts

    def held_back(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of a value."""
        if self._automaton is None or not data:
            return 0
        for size in range(min(self._longest - 1, len(data)), 0, -1):
            if data[-size:] in self._prefixes:
                return size
        return 0


class StreamRedactor:
    """One stream's bytes, masked also where a value is split across chunks."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    @property
    def holding(self) -> bool:
        """Whether bytes are kept back."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """What may be shown so far: the last bytes are kept back while they may begin a value."""
        shown, self._held = self._redactor.split(self._held + data if self._held else data)
        return shown

    def flush(self) -> bytes:
        """The rest, at the stream's end."""
        held, self._held = self._held, b""
        return self._redactor.apply(held)


def _without(parts: Iterable[bytes], spans: Iterable[tuple[int, int]]) -> list[bytes]:
    """The parts of a text without its spans, in order; each has its mask where it begins."""
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
