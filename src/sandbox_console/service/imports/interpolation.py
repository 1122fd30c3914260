"""Replaces ``$NAME`` and ``${NAME:-default}`` in the values of a compose file (compose-spec, "Interpolation")."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sandbox_console.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIGN = re.compile(r":?[-?+]")
_DEEPEST = 10
_LONGEST = 1 << 16

Lookup = Callable[[str], str | None]
"""The value of a variable; None if it is not set."""


def interpolated(value: Any, lookup: Lookup) -> Any:
    """A value with all its texts replaced; keys are not. Raises UsageError."""
    match value:
        case str():
            return replace(value, lookup) if "$" in value else value
        case dict():
            return {key: interpolated(one, lookup) for key, one in value.items()}
        case list():
            return [interpolated(one, lookup) for one in value]
    return value


def replace(text: str, lookup: Lookup, depth: int = 0) -> str:
    """One text with its variables replaced. Raises UsageError for a malformed or a required one."""
    if depth > _DEEPEST:
        raise UsageError("a default is nested too deep", hint="write ${NAME:-default}")
    parts: list[str] = []
    at = size = 0
    while (sign := text.find("$", at)) >= 0:
        parts.append(text[at:sign])
        put, at = _one(text, sign + 1, lookup, depth)
        parts.append(put)
        size += len(put)
        if size > _LONGEST:
            raise UsageError("the values of its variables are too long")
    return "".join([*parts, text[at:]])


def _one(text: str, at: int, lookup: Lookup, depth: int) -> tuple[str, int]:
    """What stands for the variable after a ``$``, and where the text goes on."""
    if text.startswith("$", at):
        return "$", at + 1
    if text.startswith("{", at):
        end = _closing(text, at + 1)
        return _braced(text[at + 1 : end], lookup, depth), end + 1
    name = _NAME.match(text, at)
    if name is None:
        raise UsageError(f"{text[:100]!r}: a name is missing after $", hint="write $$ for a dollar sign")
    return lookup(name[0]) or "", name.end()


def _closing(text: str, at: int) -> int:
    depth = 1
    for here in range(at, len(text)):
        depth += text.startswith("${", here) - (text[here] == "}")
        if depth == 0:
            return here
    raise UsageError(f"{text[:100]!r}: a closing brace is missing", hint="write ${NAME}")


def _braced(inner: str, lookup: Lookup, depth: int) -> str:
    name = _NAME.match(inner)
    if name is None:
        raise UsageError(f"${{{inner[:100]}}} has no name", hint="write ${NAME:-default}")
    value, rest = lookup(name[0]), inner[name.end() :]
    if not rest:
        return value or ""
    sign = _SIGN.match(rest)
    if sign is None:
        raise UsageError(f"${{{inner[:100]}}} is not understood", hint="write ${NAME:-default}")
    there = bool(value) if sign[0].startswith(":") else value is not None
    other = rest[sign.end() :]
    match sign[0][-1]:
        case "-":
            return (value or "") if there else replace(other, lookup, depth + 1)
        case "+":
            return replace(other, lookup, depth + 1) if there else ""
    if there:
        return value or ""
    raise UsageError(f"the variable {name[0]} is required: {replace(other, lookup, depth + 1)[:200]}")
