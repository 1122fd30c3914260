"""Chooses sandboxes by their fields, as ``image=python:* state!=exited``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from sandbox_console.model.sandbox import Sandbox

FIELDS = ("name", "state", "backend", "host", "image", "maker", "exit", "quarantine")
"""The fields that can be tested, besides ``label.KEY``."""
SYNTAX = f"FIELD=PATTERN or FIELD!=PATTERN, all of which must fit; fields: {', '.join(FIELDS)}, label.KEY"


class FieldTest(Struct, frozen=True):
    """A shell pattern that a field must match, or with ``fits`` off must not match."""

    field: str
    fits: bool
    pattern: str


def parse_filter(text: str) -> tuple[FieldTest, ...]:
    """Read the tests of a filter, separated by spaces. Raises ValueError for a word that is no test."""
    tests = []
    for word in text.split():
        field, sign, pattern = word.partition("=")
        fits = not field.endswith("!")
        field = field.removesuffix("!")
        if not sign or not (field in FIELDS or field.startswith("label.")):
            raise ValueError(f"{word!r} is no test of a field")
        tests.append(FieldTest(field, fits, pattern))
    return tuple(tests)


def fits(sandbox: Sandbox, tests: Sequence[FieldTest]) -> bool:
    """Whether a sandbox passes every test. A field that it does not have is empty."""
    return all(fnmatchcase(_value(sandbox, test.field), test.pattern) is test.fits for test in tests)


def _value(sandbox: Sandbox, field: str) -> str:
    match field:
        case "state":
            return str(sandbox.status)
        case "backend":
            return sandbox.ref.backend
        case "host":
            return sandbox.ref.host
        case "exit":
            return "" if sandbox.exit is None or sandbox.exit.code is None else str(sandbox.exit.code)
        case "name" | "image" | "maker" | "quarantine":
            return str(getattr(sandbox, field))
        case _:
            return sandbox.labels.get(field.removeprefix("label."), "")
