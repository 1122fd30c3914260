"""The filter line of the list: text, regular expressions, ``-l`` labels, ``-f`` fuzzy and field tests. Pure.

Words stand beside each other and must all hold; ``!`` before one turns it round. A word is a field test (``cpu>80``,
``state=exited``, ``name~"^web"``), ``-l key=value``, ``-f letters``, or text that is searched for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.filter_fields import MOVING, NAMES, Test, field_test
from sandbox_console.tui.filter_words import FilterError, Search, Word, searcher, words
from sandbox_console.tui.state import FleetState

_NOTHING_KNOWN = FleetState()
_TEXTS_MOST = 50_000


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. ``note`` says what is still missing; ``moving`` that samples or time change what it shows.

    ``begun``: the last word may be the beginning of a field test, which finds nothing while it is typed.
    """

    text: str
    tests: tuple[Test, ...] = ()
    note: str = ""
    moving: bool = False
    begun: bool = False

    def __bool__(self) -> bool:
        return bool(self.tests)

    def matches(self, sandbox: Sandbox, state: FleetState = _NOTHING_KNOWN, now: float = 0.0) -> bool:
        """Whether every word holds for a sandbox, with the samples of ``state`` and the time."""
        return all(test(sandbox, state, now) for test in self.tests)

    def select(self, sandboxes: Sequence[Sandbox], state: FleetState, now: float) -> Sequence[Sandbox]:
        """Those for which every word holds; where that is none and the last word is only begun, every other word."""
        before = sandboxes
        for test in self.tests:
            before, sandboxes = sandboxes, [one for one in sandboxes if test(one, state, now)]
        return sandboxes or before if self.begun else sandboxes


def parse_filter(line: str) -> Filter:
    """Understand a line. Raises FilterError, which says where it cannot be understood."""
    tests: list[Test] = []
    note, moving, begun = "", False, False
    rest = iter(list(words(line)))
    for word in rest:
        bare = word.text.lstrip("!") if word.quoted != 0 else word.text
        signs = len(word.text) - len(bare)
        begun = word.quoted is None and word.at + len(word.text) == len(line) and _begins_field(bare)
        inner = Word(bare, word.at + signs, None if word.quoted is None else word.quoted - signs)
        if bare in ("-l", "-f") and word.quoted is None:
            value = next(rest, None)
            test = None if value is None else _labels(value.text) if bare == "-l" else _fuzzy(value.text)
            note = note if test else f"{bare} needs {'key=value' if bare == '-l' else 'letters'}"
        elif bare:
            name, test = field_test(inner) or ("", _text(inner))
            moving = moving or name in MOVING
        else:
            test = None
        if test is not None:
            tests.append(_inverse(test) if signs % 2 else test)
    return Filter(line.strip(), tuple(tests), note, moving, begun)


def _begins_field(text: str) -> bool:
    return len(text) > 1 and any(name.startswith(text.lower()) for name in NAMES)


def _inverse(test: Test) -> Test:
    return lambda sandbox, state, now: not test(sandbox, state, now)


class _Texts:
    """What is searched of each sandbox, made once: the key is the object, which the entry keeps alive."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Sandbox, str]] = {}

    def of(self, sandbox: Sandbox) -> str:
        entry = self._made.get(id(sandbox))
        if entry is None:
            if len(self._made) >= _TEXTS_MOST:
                self._made.clear()
            ref = sandbox.ref
            parts = (sandbox.name, sandbox.image, sandbox.status, ref.backend, ref.host, ref.id, sandbox.maker)
            entry = self._made[id(sandbox)] = (sandbox, "\n".join(parts))
        return entry[1]


_texts = _Texts()


def _text(word: Word) -> Test:
    found: Search = searcher(word.text, word.at) if word.quoted is None else _literal(word.text)
    text_of = _texts.of
    return lambda sandbox, *_: bool(found(text_of(sandbox)))


def _literal(text: str) -> Search:
    if any(map(str.isupper, text)):
        return lambda found: text in found
    return lambda found: text in found.lower()


def _labels(text: str) -> Test:
    """``key`` is there, ``key=value`` is equal; several with commas must all hold."""
    wanted = [part.partition("=") for part in text.split(",") if part]

    def holds(sandbox: Sandbox, *_: object) -> bool:
        return all(
            sandbox.labels.get(key.strip()) == value.strip() if equals else key.strip() in sandbox.labels
            for key, equals, value in wanted
        )

    return holds


def _fuzzy(text: str) -> Test:
    """The characters in this order, whatever stands between."""
    found = re.compile("".join(f"[^{re.escape(char)}]*{re.escape(char)}" for char in text.lower()))
    return lambda sandbox, *_: found.match(sandbox.name.lower()) is not None


__all__ = ["Filter", "FilterError", "parse_filter"]
