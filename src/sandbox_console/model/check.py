"""Checks the values of a spec, whatever the backend: at most one problem for each field, in plain words."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping, Sequence

from sandbox_console.model import hosts, ports
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import NAME_MAX, NAME_PATTERN

_NAME = re.compile(NAME_PATTERN.replace("$", r"\Z"))
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,127}\Z")
_RESERVED_LABELS = "sandbox-console."


def problems(spec: SandboxSpec, *, allow_ip: bool = False) -> dict[str, str]:
    """What is wrong with a spec, by field; empty when nothing is."""
    found = {
        "name": name_problem(spec.name),
        "cpus": _positive(spec.cpus),
        "memory_mib": _memory(spec.memory_mib),
        "pids": _positive(spec.pids),
        "max_duration_s": _positive(spec.max_duration_s),
        "idle_timeout_s": _positive(spec.idle_timeout_s),
        "workdir": _absolute(spec.workdir),
        "workspace": _workspace(spec.workspace),
        "egress": _egress(spec.egress, allow_ip),
        "ports": _ports(spec.ports),
        "env": _env(spec),
        "labels": _labels(spec),
        "command": _words(spec.command),
        "image": "a NUL byte is in it" if "\0" in spec.image else "",
        "user": "a NUL byte is in it" if spec.user and "\0" in spec.user else "",
    }
    return {field: text for field, text in found.items() if text}


def command_problems(argv: Sequence[str], env: Mapping[str, str], workdir: str | None) -> dict[str, str]:
    """What is wrong with a command to run in a sandbox, by field; empty when nothing is."""
    found = {
        "command": _words(argv) if argv else "a command is needed",
        "env": _variables(env),
        "workdir": _absolute(workdir),
    }
    return {field: text for field, text in found.items() if text}


def name_problem(name: str) -> str:
    """What is wrong with a sandbox's name; empty when nothing is."""
    if not name:
        return "a name is needed"
    if len(name) > NAME_MAX:
        return f"it has {len(name)} characters; {NAME_MAX} are the most"
    if not _NAME.match(name):
        return "use letters, digits, '-', '_' and '.', beginning with a letter or digit"
    return ""


def _positive(value: float | None) -> str:
    if value is None or (math.isfinite(value) and value > 0):
        return ""
    return f"{value:g} is not above 0"


def _memory(value: int | None) -> str:
    return _positive(value) or ("" if value is None or value >= 4 else f"{value} MiB is below 4, the least that runs")


def _absolute(path: str | None) -> str:
    return "" if path is None or (path.startswith("/") and "\0" not in path) else f"{path!r} is not an absolute path"


def _workspace(path: str | None) -> str:
    if path is None:
        return ""
    return (
        _absolute(path)
        or _undecodable(path)
        or (
            "'/' would give the sandbox this whole host; name a folder"
            if not posixpath.normpath(path).strip("/")
            else ""
        )
    )


def _undecodable(path: str) -> str:
    """Neither an engine's API nor the list of guests' folders can hold bytes that are no text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8; rename the folder, or name another one"
    return ""


def _egress(patterns: tuple[str, ...], allow_ip: bool) -> str:
    for pattern in patterns:
        try:
            hosts.parse(pattern, allow_ip=allow_ip)
        except ValueError as error:
            return str(error)
    return ""


def _ports(texts: tuple[str, ...]) -> str:
    try:
        ports.parse_all(texts)
    except ValueError as error:
        return str(error)
    return ""


def _words(command: Sequence[str]) -> str:
    return "a command with a NUL byte cannot be run" if any("\0" in word for word in command) else ""


def _env(spec: SandboxSpec) -> str:
    both = next((key for key in spec.env if key in spec.secrets), "")
    return _variables(spec.env) or (f"{both} is also a secret; keep one of them" if both else "")


def _variables(env: Mapping[str, str]) -> str:
    for key, value in env.items():
        if not _VARIABLE.match(key):
            return f"{key!r} is not a variable's name"
        if "\0" in value:
            return f"{key} has a NUL byte"
    return ""


def _labels(spec: SandboxSpec) -> str:
    for key, value in spec.labels.items():
        if not _LABEL_KEY.match(key):
            return f"{key!r} is not a label's name"
        if key.startswith(_RESERVED_LABELS):
            return f"{key!r} begins with {_RESERVED_LABELS!r}, which the console keeps for itself"
        if "\0" in value:
            return f"{key} has a NUL byte"
    return ""
