"""What each word of a filter matched, kept while the line is typed: a longer line checks fewer rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from operator import not_

from msgspec import Struct, structs

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.fleet.filter.field_tests import Test
from sandbox_console.tui.state.fleet_state import FleetState


class Part(Struct, frozen=True):
    """One word of a filter. ``said`` is what it was made of: equal ones let through the same.

    ``moving``: samples (where it is ``sampled``) or time change what it lets through. With more ``letters`` behind its
    own it finds less; empty where that is not so. ``many`` is the test of many at once, where that is quicker.
    """

    said: tuple[str, str, int | None]
    test: Test
    moving: bool = False
    sampled: bool = False
    letters: str = ""
    many: Callable[[Sequence[Sandbox]], Iterable[object]] | None = None

    def inverse(self) -> Part:
        """The word that holds where this one does not."""
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
        """Whether it can only hold where the other one does."""
        same = self.said[0] == before.said[0] and bool(before.letters)
        return same and self.letters.startswith(before.letters)

    def keep(self, sandboxes: Sequence[Sandbox], state: FleetState, now: float) -> Sequence[Sandbox]:
        """Those for which it holds."""
        if self.many is not None:
            return list(compress(sandboxes, self.many(sandboxes)))
        test = self.test
        return [one for one in sandboxes if test(one, state, now)]


class MatchCache:
    """Selects by words, and remembers what each let through of the list it was given last."""

    def __init__(self) -> None:
        self._of: Sequence[Sandbox] = ()
        self._steps: list[tuple[Part, Sequence[Sandbox]]] = []

    def select(
        self, parts: Sequence[Part], sandboxes: Sequence[Sandbox], state: FleetState, now: float, *, begun: bool = False
    ) -> Sequence[Sandbox]:
        """Those for which every word holds; where that is none and the last word is ``begun``, every other word.

        The same list object must have the same members, as long as it is given.
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
                found = part.keep(was[1] if was is not None and part.narrows(was[0]) else before, state, now)
                known = []  # the words behind it were asked of others
            steps.append((part, found))
        self._of, self._steps = sandboxes, steps
        return found or before if begun else found
