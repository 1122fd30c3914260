"""The filter line of the list: text or a regular expression, ``!`` inverse, ``-l`` labels, ``-f`` fuzzy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_console.model.sandbox import Sandbox

Test = Callable[[Sandbox], bool]


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter. ``note`` says how it was understood where that is not plain."""

    text: str
    matches: Test
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


def parse_filter(text: str) -> Filter:
    """Understand what is typed, at every stroke: what is no regular expression (yet) is searched as plain text."""
    text = text.strip()
    if text in {"", "!", "-l", "-f"}:
        return Filter("", lambda _: True)
    if text.startswith("!"):
        inner = parse_filter(text[1:])
        return Filter(text, lambda sandbox: not inner.matches(sandbox), inner.note)
    if text.startswith("-l "):
        return Filter(text, _labels(text[3:].strip()))
    if text.startswith("-f "):
        return Filter(text, _fuzzy(text[3:].strip()))
    return _pattern(text)


def _pattern(text: str) -> Filter:
    flags = 0 if any(char.isupper() for char in text) else re.IGNORECASE
    note = ""
    try:
        found = re.compile(text, flags)
    except (re.error, OverflowError, RecursionError):
        found, note = re.compile(re.escape(text), flags), "as plain text"
    return Filter(text, lambda sandbox: any(found.search(value) for value in _searched(sandbox)), note)


def _searched(sandbox: Sandbox) -> tuple[str, ...]:
    ref = sandbox.ref
    return (sandbox.name, sandbox.image, str(sandbox.status), ref.backend, ref.host, ref.id)


def _labels(text: str) -> Test:
    """``key`` is there, ``key=value`` is equal; several with commas must all hold."""
    wanted = [part.partition("=") for part in text.split(",") if part]

    def holds(sandbox: Sandbox) -> bool:
        return all(
            sandbox.labels.get(key.strip()) == value.strip() if equals else key.strip() in sandbox.labels
            for key, equals, value in wanted
        )

    return holds


def _fuzzy(text: str) -> Test:
    """The characters in this order, whatever stands between."""
    found = re.compile(".*?".join(map(re.escape, text)), re.IGNORECASE)
    return lambda sandbox: found.search(sandbox.name) is not None
