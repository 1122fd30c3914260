"""Builds a spec from a file and options, and reports every problem at once, by field."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox_console.errors import InvalidSpec, UsageError
from sandbox_console.hostfs.files import read_small
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.model import check
from sandbox_console.model.quantities import parse_duration_s, parse_size_mib
from sandbox_console.model.safe_toml import parse_toml
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import FIELDS, Kind, SpecField


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None


def whole(text: str) -> int:
    """Read a whole number. Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


_FIELDS = SandboxSpec.__struct_fields__
_LONGEST = 1 << 20
"""The most bytes of a spec or a draft: a person writes no more, and /dev/zero has no end."""


def from_args(
    args: argparse.Namespace, base: dict[str, Any], *, name: str | None = None, ground: GuestFolders = NOBODYS
) -> SandboxSpec:
    """A spec from ``base``, the file, the options and ``name``. Raises InvalidSpec with every problem, UsageError.

    ``ground`` is what guests can change, and is used to check the file.
    """
    values = dict(base)
    if args.file:
        values |= read_file(args.file, ground)
    problems: dict[str, str] = {}
    for field in FIELDS:
        given = getattr(args, field.argument) if field.option else None
        if given is None:
            continue
        try:
            values[field.name] = _read(field, given, values.get(field.name))
        except ValueError as error:
            problems[field.name] = str(error)
    if args.command:
        values["command"] = args.command
    if name:
        values["name"] = name
    if problems:
        raise InvalidSpec(_others(values) | problems)
    return SandboxSpec.from_dict(values)


def _read(field: SpecField, given: Any, before: Any) -> Any:
    """A field's value from an option; pairs are added to earlier ones. Raises ValueError, UsageError for no pair."""
    match field.kind:
        case Kind.TABLE:
            return {**(before or {}), **pairs(given, field.option)}
        case Kind.LIST:
            return tuple(given)
        case Kind.NUMBER:
            return _number(given)
        case Kind.COUNT:
            return whole(given)
        case Kind.SIZE:
            return parse_size_mib(given)
        case Kind.DURATION:
            return parse_duration_s(given)
        case _ if field.name == "workspace":
            return str(Path(os.path.abspath(Path(given).expanduser())))  # noqa: PTH100 - .. goes too
        case _:
            return field.read(given)


def _others(values: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong apart from the fields that could not be read, so that all problems are reported at once."""
    try:
        return check.problems(SandboxSpec.from_dict(values))
    except InvalidSpec as error:
        return error.problems


def without(values: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The fields without those of ``--unset``. Raises UsageError for one that does not exist."""
    for name in names:
        if name not in _FIELDS or name == "name":
            known = ", ".join(field for field in _FIELDS if field != "name")
            raise UsageError(f"--unset {name}: no such field", hint=f"fields: {known}")
    return {key: value for key, value in values.items() if key not in set(names)}


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """Parse ``KEY=VALUE`` words. Raises UsageError for one without ``=``."""
    found: dict[str, str] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"--{option} {word!r} is not KEY=VALUE", hint=f"write --{option} {word or 'KEY'}=VALUE")
        found[key] = value
    return found


def read_text(name: str, guest_folders: GuestFolders) -> str:
    """Read a small text file or stdin (``-``). Raises UsageError, Conflict for a file that a guest planted."""
    try:
        return (_stdin() if name == "-" else read_small(name, guest_folders, _LONGEST)).decode(
            "utf-8-sig"
        )  # a mark is Windows'
    except (OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", 0) == errno.EFBIG:
            raise UsageError(
                f"{name} is over {_LONGEST >> 20} MiB: too long for a spec", hint="name a file in TOML or JSON"
            ) from None
        cause = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"{name} cannot be read: {cause}", hint="name a file of UTF-8 text") from None


def _stdin() -> bytes:
    data = sys.stdin.buffer.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise OSError(errno.EFBIG, f"it is longer than {_LONGEST >> 10} KiB")
    return data


def read_file(name: str, guest_folders: GuestFolders = NOBODYS) -> dict[str, Any]:
    """A spec file's fields, from JSON if it begins with ``{``, else from TOML. Raises UsageError, Conflict."""
    return parsed(name, read_text(name, guest_folders))


def parsed(name: str, text: str) -> dict[str, Any]:
    """The fields of a spec file from its text. Raises UsageError."""
    try:
        values = json.loads(text) if text.lstrip().startswith("{") else parse_toml(text)
    except RecursionError:
        raise UsageError(f"{name} is nested too deep for a spec", hint="show --toml prints an example") from None
    except ValueError as error:  # both decoders' errors are ValueErrors
        raise UsageError(f"{name} is neither TOML nor JSON: {error}", hint="show --toml prints an example") from None
    fields: dict[str, Any] = values
    return fields
