"""``ls --format``: prints a sandbox's fields in a custom line, like ``docker ps --format``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sandbox_console.cli import json_output
from sandbox_console.cli.context import ID_SHOWN
from sandbox_console.cli.formatting import duration
from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean

_FIELD = re.compile(r"""\{\{\s*(?:json\s+\.(\w*)|\.(\w+)(?:\s+"([^"]*)")?)\s*\}\}""")
_ESCAPES = {"\\t": "\t", "\\n": "\n"}

Field = Callable[[Sandbox, float], str]

FIELDS: dict[str, Field] = {
    "Name": lambda one, _: one.name,
    "State": lambda one, _: str(one.status),
    "Status": lambda one, _: str(one.status),
    "Backend": lambda one, _: one.ref.backend,
    "Host": lambda one, _: one.ref.host,
    "Image": lambda one, _: one.image or "",
    "Age": lambda one, now: "" if one.created_at is None else duration(now - one.created_at),
    "Exit": lambda one, _: "" if one.exit is None or one.exit.code is None else str(one.exit.code),
    "ID": lambda one, _: one.ref.id[:ID_SHOWN],
    "Ref": lambda one, _: str(one.ref),
    "Maker": lambda one, _: "" if one.managed else one.maker or "another tool",
    "Labels": lambda one, _: ",".join(f"{key}={value}" for key, value in sorted(one.labels.items())),
}
"""Fields by name; ``{{.Label "KEY"}}``, ``{{json .}}`` and ``{{json .Labels}}`` go beside them."""


def formatter(template: str) -> Field:
    """A function that formats a sandbox by a template. Raises UsageError for an unknown field."""
    for encoded, name, key in _FIELD.findall(template):
        wanted = name or encoded
        if wanted and wanted not in FIELDS and (name != "Label" or not key):
            raise _unknown(wanted)
    left = _FIELD.sub("", template)
    if "{{" in left or "}}" in left:
        raise UsageError(f"--format: {template!r} has braces without a field", hint='as in "{{.Name}}\\t{{.State}}"')
    for escape, char in _ESCAPES.items():
        template = template.replace(escape, char)
    return lambda sandbox, now: _FIELD.sub(lambda match: _value(match, sandbox, now), template)


def _value(match: re.Match[str], sandbox: Sandbox, now: float) -> str:
    encoded, name, key = match.groups()
    if encoded is not None:
        return json_output.line(_encoded(encoded, sandbox, now))
    # Values are untrusted and must not draw or begin a line. The text of the template itself is the user's.
    return clean(sandbox.labels.get(key, "") if name == "Label" else FIELDS[name](sandbox, now))


def _encoded(name: str, sandbox: Sandbox, now: float) -> Any:
    """What ``{{json .NAME}}`` prints: without a name the whole sandbox, labels as an object, the rest as strings."""
    if not name:
        return json_output.sandbox(sandbox)
    return dict(sandbox.labels) if name == "Labels" else FIELDS[name](sandbox, now)


def _unknown(name: str) -> UsageError:
    known = [*FIELDS, "Label"]
    near = nearest(name, known)
    hint = f"did you mean .{near}?" if near else f"there is: {', '.join(known)}"
    if name == "Label":
        hint = 'as in {{.Label "team"}}'
    return UsageError(f"--format: there is no field .{name}", hint=hint)
