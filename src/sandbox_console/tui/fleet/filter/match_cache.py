"""Caches what each word of a filter matched while the line is typed, so that a longer line checks fewer rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import not_

from msgspec import Struct, structs

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.fleet.filter.field_tests import Test
from sandbox_console.tui.state.fleet_state import FleetState


class Part(Struct, frozen=True):
    """One word of a filter. ``said`` is its source: parts with an equal source match the same sandboxes.

    ``moving`` means that samples (if it is ``sampled``) or time change what it matches. A word that continues its
    ``letters`` matches less; they are empty if that does not hold. ``many`` tests many at once, if that is faster.
    """

    said: tuple[str, str, int | None]
    test: Test
    moving: bool = False
    sampled: bool = False
    letters: str = ""
    many: Callable[[Sequence[Sandbox]], Iterable[object]] | None = None

    def inverse(self) -> Part:
        """Return the word that matches what this one does not."""
        kind, text, quoted = self.said
        test, many = self.test, self.many
        return structs.replace(
            self,
            said=(f"!{kind}", text, quoted),
            test=lambda sandbox, state, now: not test(sandbox, state, now),
            letters="",
            many=None if many is None else lambda sandboxes: map(not_, many(sandboxes)),
        )

    def narrows(self, before: Part) -> bool:
        """Return whether this word can only match what the other one does."""
        same = self.said[0] == before.said[0] and bool(before.letters)
        return same and self.letters.startswith(before.letters)

    def matching(self, sandboxes: Sequence[Sandbox], state: FleetState, now: float) -> Sequence[Sandbox]:
        """Return the sandboxes that match."""
        if self.many is not None:
            return list(compress(sandboxes, self.many(sandboxes)))
        test = self.test
        return [sandbox for sandbox in sandboxes if test(sandbox, state, now)]


class MatchCache:
    """Selects by words, and remembers what each matched in the last list."""

    def __init__(self) -> None:
        self._of: Sequence[Sandbox] = ()
        self._steps: list[tuple[Part, Sequence[Sandbox]]] = []

    def select(
        self, parts: Sequence[Part], sandboxes: Sequence[Sandbox], state: FleetState, now: float, *, begun: bool = False
    ) -> Sequence[Sandbox]:
        """Return those that match every word. If none do and the last word is ``begun``, that word is ignored.

        A list object must keep its members as long as it is passed.
        """
        known = self._steps if sandboxes is self._of else []
        steps: list[tuple[Part, Sequence[Sandbox]]] = []
        before = found = sandboxes
        for at, part in enumerate(parts):
            before = found
            was = known[at] if at < len(known) else None
            if was is not None and was[0].said == part.said and not part.moving:
                found = was[1]
            else:
                found = part.matching(was[1] if was is not None and part.narrows(was[0]) else before, state, now)
                known = []  # the words after it were tested on other sandboxes
            steps.append((part, found))
        self._of, self._steps = sandboxes, steps
        return found or before if begun else found
