"""Finds the beginning of a value at the end of a text, for values of any length in linear time and memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from sandbox_console.secrets.encodings import LEAST


class Beginnings:
    """The beginnings of the forms of the values. No form is shorter than ``LEAST``."""

    def __init__(self, forms: Iterable[bytes], ended: Collection[bytes], lefts: Collection[bytes]) -> None:
        """``ended`` has the forms that count as a beginning when they are complete, as the next byte belongs to some.

        ``lefts`` has those of which the byte before them may hold some bits.
        """
        self._ended = ended
        self._by_head: dict[bytes, list[tuple[bytes, bool]]] = {}
        self._short: dict[bytes, bool] = {}
        for form in forms:
            left = form in lefts
            self._by_head.setdefault(form[:LEAST], []).append((form, left))
            for size in range(1, LEAST):
                self._short[form[:size]] = left or self._short.get(form[:size], False)
        self._heads = list(self._by_head)
        self._automaton = BytesAhoCorasick(self._heads, matchkind=MatchKind.Standard) if self._heads else None

    def longest(self, text: bytes) -> tuple[int, bool]:
        """How many bytes at the end of ``text`` begin a form, at most, and whether it is one of ``lefts``."""
        view = memoryview(text)
        found = self._automaton.find_matches_as_indexes(text, overlapping=True) if self._automaton else ()
        for head, start, _ in found:
            size = len(text) - start
            begun = [
                left
                for form, left in self._by_head[self._heads[head]]
                if (size < len(form) or (size == len(form) and form in self._ended))
                and view[start:] == memoryview(form)[:size]
            ]
            if begun:
                return size, any(begun)
        for size in range(min(LEAST - 1, len(text)), 0, -1):
            if (left := self._short.get(text[-size:])) is not None:
                return size, left
        return 0, False
