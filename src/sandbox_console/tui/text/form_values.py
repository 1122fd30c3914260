"""Converts the form's texts to a spec and back, with the problem of each field. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import structs

from sandbox_console.model.quantities import duration_text, parse_duration_s, parse_size_mib, size_text
from sandbox_console.model.secret import shown_env
from sandbox_console.model.shell_words import shell_words
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import BY_NAME, FIELDS, Kind, SpecField

BREAK = "⏎"
"""The sign for a line break in the form, whose fields have one line."""

TICKED = "yes"
"""The text of a ticked box."""


def parse(texts: Mapping[str, str], base: SandboxSpec | None = None) -> tuple[SandboxSpec, dict[str, str]]:
    """Return the spec that the texts describe, and the problems of invalid texts, by field.

    Fields that the form does not show are taken from ``base``, as are unchanged ones, however they would be parsed.
    A field with a problem keeps the value of ``base`` in the spec.
    """
    values: dict[str, Any] = {}
    before = texts_of(base) if base else {}
    problems: dict[str, str] = {}
    for field in FIELDS:
        if field.name not in texts or texts[field.name] == before.get(field.name):
            continue
        try:
            values[field.name] = _read(field, texts[field.name].replace(BREAK, "\n").strip())
        except ValueError as error:
            problems[field.name] = str(error)
    return structs.replace(base or SandboxSpec(name=""), **values), problems


def texts_of(spec: SandboxSpec) -> dict[str, str]:
    """Return the form's texts for a spec."""
    return {field.name: _written(field, getattr(spec, field.name)).replace("\n", BREAK) for field in FIELDS}


def with_entries_of(text: str, base: str, names: Collection[str]) -> str:
    """Return a table's text with the entries of these names taken from another table's text."""
    kept = {name: value for name, value in pairs(base.replace(BREAK, "\n")).items() if name in names}
    return shlex.join([*shell_words(text), *(f"{name}={value}" for name, value in kept.items())]).replace("\n", BREAK)


def two_valued(field: SpecField) -> bool:
    """Return whether the form shows a check box for a field."""
    return field.kind in (Kind.FLAG, Kind.CHOICE)


def shown_value(name: str, value: Any) -> str:
    """Return a spec's value as the plan shows it, with variables masked as in the model."""
    field = BY_NAME.get(name)
    if name == "env" and value:
        value = shown_env(value)
    if field is None:
        return str(value) if value not in (None, (), {}) else "(none)"
    if field.kind is Kind.FLAG:
        return "yes" if value else "no"
    if field.kind is Kind.CHOICE:
        return str(value or field.default)
    return _written(field, value) or "(none)"


def _read(field: SpecField, text: str) -> Any:
    """Parse a field's text. Raises ValueError, which says what to write instead."""
    match field.kind:
        case Kind.TEXT:
            return text if field.name in ("name", "image") else text or None
        case Kind.WORDS:
            return _words(text)
        case Kind.LIST:
            return tuple(dict.fromkeys(text.replace(",", " ").split()))
        case Kind.TABLE:
            return pairs(text)
        case Kind.FLAG:
            return text == TICKED
        case Kind.CHOICE:
            return field.read(_other(field) if text == TICKED else field.default)
        case _:
            return _quantity(field, text) if text else None


def _quantity(field: SpecField, text: str) -> float:
    match field.kind:
        case Kind.SIZE:
            return parse_size_mib(text)
        case Kind.DURATION:
            return parse_duration_s(text)
        case Kind.COUNT if text.isdecimal():
            return int(text)
        case Kind.COUNT:
            raise ValueError(f"{text!r} is not a number of processes; write 100")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number; write 0.5 or 2") from None


def _written(field: SpecField, value: Any) -> str:
    match field.kind:
        case Kind.WORDS:
            return shlex.join(value)
        case Kind.LIST:
            return " ".join(value)
        case Kind.TABLE:
            return shlex.join(f"{key}={text}" for key, text in value.items())
        case Kind.FLAG:
            return TICKED if value else ""
        case Kind.CHOICE:
            return TICKED if value == _other(field) else ""
        case _ if value is None:
            return ""
        case Kind.SIZE:
            return size_text(value)
        case Kind.DURATION:
            return duration_text(value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _other(field: SpecField) -> str:
    """Return the choice that is not the default."""
    return next(choice for choice in field.choices if choice != field.default)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shell_words(text))
    except ValueError as error:
        raise ValueError(f"{error}: quotes must be closed") from None


def pairs(text: str) -> dict[str, str]:
    """Return the words ``key=value`` of a text as a table. Raises ValueError, which says what to write instead."""
    found: dict[str, str] = {}
    for word in _words(text):
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} has no '='; write key=value")
        found[key] = value
    return found
