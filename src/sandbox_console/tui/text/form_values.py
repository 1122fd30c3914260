"""From the form's text to a spec and back, with a problem beside each field. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, structs

from sandbox_console.model import check
from sandbox_console.model.secret import shown_env
from sandbox_console.model.spec import SandboxSpec

BREAK = "␊"
"""What stands for the break of a line in a text of the form, whose fields have one line."""


class Field(Struct, frozen=True):
    """One line of the form: the spec's field, what stands before it, and what a person may write."""

    name: str
    label: str
    hint: str
    read: Callable[[str], Any]
    write: Callable[[Any], str]


def parse(texts: Mapping[str, str], base: SandboxSpec | None = None) -> tuple[SandboxSpec, dict[str, str]]:
    """The spec that the texts mean and the problems of those that mean nothing, by field.

    What the form does not show is taken from ``base``, and what was not changed in it, whatever it would be read as.
    A field with a problem keeps base's value in the spec.
    """
    values: dict[str, Any] = {}
    before = texts_of(base) if base else {}
    problems: dict[str, str] = {}
    for field in FIELDS:
        if field.name not in texts or texts[field.name] == before.get(field.name):
            continue
        try:
            values[field.name] = field.read(texts[field.name].replace(BREAK, "\n").strip())
        except ValueError as error:
            problems[field.name] = str(error)
    return structs.replace(base or SandboxSpec(name=""), **values), problems


def texts_of(spec: SandboxSpec) -> dict[str, str]:
    """What the form shows for a spec."""
    return {field.name: field.write(getattr(spec, field.name)).replace("\n", BREAK) for field in FIELDS}


def _number(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number; write 0.5 or 2") from None


def _count(text: str) -> int | None:
    if text and not text.isdecimal():
        raise ValueError(f"{text!r} is not a number of processes; write 100")
    return int(text) if text else None


def _memory(text: str) -> int | None:
    return check.parse_size_mib(text) if text else None


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{error}: quotes must be closed") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in _words(text):
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} has no '='; write key=value")
        found[key] = value
    return found


def _text(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _size(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value // 1024}G" if value % 1024 == 0 else f"{value}M"


def _joined(value: Mapping[str, str]) -> str:
    return shlex.join(f"{key}={text}" for key, text in value.items())


FIELDS = (
    Field("name", "Name", "letters, digits, - _ .", str, str),
    Field("image", "Image", "host, dir:/path or an image such as python:3.12", str, str),
    Field("command", "Command", "empty: the image's own", _words, shlex.join),
    Field("cpus", "CPUs", "vCPUs, such as 0.5; empty: no limit", _number, _text),
    Field("memory_mib", "Memory", "512M or 2G; empty: no limit", _memory, _size),
    Field("pids", "Processes", "how many at most; empty: no limit of yours", _count, _text),
    Field("egress", "Egress", "hosts, such as acme.org *.github.com; empty: no network", _list, " ".join),
    Field("ports", "Ports", "8080:80, or 80 for a free one of this host", _list, " ".join),
    Field("secrets", "Secrets", "names from the config", _list, " ".join),
    Field("workspace", "Workspace", "a folder of this host, at /workspace", lambda text: text or None, _text),
    Field("env", "Env", "KEY=value …", _pairs, _joined),
    Field("labels", "Labels", "key=value …", _pairs, _joined),
)  # fmt: skip
"""The fields in the order of the form."""


def shown_value(name: str, value: Any) -> str:
    """A spec's value as the plan shows it, variables as the model masks them."""
    if name == "env" and value:
        value = shown_env(value)
    for field in FIELDS:
        if field.name == name:
            return field.write(value) or "(none)"
    return str(value) if value not in (None, (), {}) else "(none)"
