"""Parses the filter line of the list: text, regular expressions, ``-l`` labels, ``-f`` fuzzy and field tests. Pure.

Words are separated by spaces and must all match; ``!`` before a word negates it. A word is a field test (``cpu>80``,
``state=exited``, ``name~"^web"``), ``-l key=value``, ``-f letters``, or text to search for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.fleet.filter.field_tests import MOVING, NAMES, SAMPLED, Test, field_test
from sandbox_console.tui.fleet.filter.match_cache import MatchCache, Part
from sandbox_console.tui.fleet.filter.search_text import found_in, text_of
from sandbox_console.tui.fleet.filter.tokens import FilterError, Word, finder, words
from sandbox_console.tui.state.fleet_state import FleetState

_NOTHING_KNOWN = FleetState()
_SIGN = re.compile("(!=|==?)")


class Filter(Struct, frozen=True):
    """A parsed filter. ``note`` says what is still missing. ``moving`` means that samples or time change its result.

    ``begun`` means that the last word may be the beginning of a field test, which matches nothing while it is typed.
    Clear it when the line is left: a filter that matches nothing then has nothing to show.
    """

    text: str
    parts: tuple[Part, ...] = ()
    note: str = ""
    begun: bool = False

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def moving(self) -> bool:
        """Whether samples or time change its result."""
        return any(part.moving for part in self.parts)

    @property
    def sampled(self) -> bool:
        """Whether samples change its result."""
        return any(part.sampled for part in self.parts)

    def matches(self, sandbox: Sandbox, state: FleetState = _NOTHING_KNOWN, now: float = 0.0) -> bool:
        """Return whether every word matches a sandbox, given the samples in ``state`` and the time."""
        return all(part.test(sandbox, state, now) for part in self.parts)

    def select(self, sandboxes: Sequence[Sandbox], state: FleetState, now: float) -> Sequence[Sandbox]:
        """Return those that match every word. If none do and the last word is only begun, that word is ignored."""
        return MatchCache().select(self.parts, sandboxes, state, now, begun=self.begun)


def parse_filter(line: str) -> Filter:
    """Parse a line. Raises FilterError, which has the position of the error."""
    parts: list[Part] = []
    note, begun = "", False
    rest = iter(list(words(line)))
    for word in rest:
        bare = word.text.lstrip("!") if word.quoted != 0 else word.text
        signs = len(word.text) - len(bare)
        begun = word.quoted is None and word.at + len(word.text) == len(line) and _begins_field(bare)
        inner = Word(bare, word.at + signs, None if word.quoted is None else word.quoted - signs)
        if bare in ("-l", "-f") and word.quoted is None:
            value = next(rest, None)
            part = None if value is None else _labels(value.text) if bare == "-l" else _fuzzy(value.text)
            note = note if part else f"{bare} needs {'key=value' if bare == '-l' else 'letters'}"
        elif bare:
            part = _field(inner) or _text(inner)
        else:
            part = None
        if part is not None:
            parts.append(part.inverse() if signs % 2 else part)
    return Filter(line.strip(), tuple(parts), note, begun)


def _begins_field(text: str) -> bool:
    return len(text) > 1 and any(name.startswith(text.lower()) for name in NAMES)


def _field(word: Word) -> Part | None:
    found = field_test(word)
    if found is None:
        return None
    name, test = found
    return Part(("field", word.text, word.quoted), test, moving=name in MOVING, sampled=name in SAMPLED)


def _text(word: Word) -> Part:
    found = finder(word.text, word.at, literal=word.quoted is not None)
    return Part(
        ("text", word.text, word.quoted),
        lambda sandbox, *_: any(found.flags([text_of(sandbox, cased=found.cased)])),
        letters=word.text if found.plain else "",
        many=lambda sandboxes: found_in(sandboxes, found),
    )


def _labels(text: str) -> Part:
    """Parse labels: ``key`` exists, ``key=value`` is equal, ``key!=value`` is not. With commas, all must match."""
    tests = [_label(part) for part in text.split(",") if part]
    return Part(("labels", text, None), lambda sandbox, *_: all(holds(sandbox.labels) for holds in tests))


def _label(text: str) -> Callable[[Mapping[str, str]], bool]:
    key, sign, value = (*map(str.strip, _SIGN.split(text, maxsplit=1)), "", "")[:3]
    match sign:
        case "!=":  # as in Kubernetes' selectors, this also matches if there is no such label
            return lambda labels: labels.get(key) != value
        case "=" | "==":
            return lambda labels: labels.get(key) == value
        case _:
            return (lambda labels: key[1:] not in labels) if key.startswith("!") else (lambda labels: key in labels)


def _fuzzy(text: str) -> Part:
    """Match the characters in this order, whatever is between them."""
    pattern = re.compile("".join(f"[^{re.escape(char)}]*{re.escape(char)}" for char in text.lower()))
    test: Test = lambda sandbox, *_: pattern.match(sandbox.name.lower()) is not None  # noqa: E731
    return Part(("fuzzy", text, None), test, letters=text.lower())


__all__ = ["Filter", "FilterError", "parse_filter"]
