"""The result of an import, and what its sources share. All of them are read as hostile text."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from sandbox_console.errors import UsageError
from sandbox_console.model import ports
from sandbox_console.model.quantities import parse_size_mib
from sandbox_console.model.secret import shown_value
from sandbox_console.model.spec_fields import NAME_MAX

WORKSPACE = "/workspace"
NO_FIELD = "a spec has no field for it"
ANY_HOST = "it could reach any host; a sandbox reaches only those in egress, and has none yet"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgBKMG]?)(?:[iI]?[bB])?\Z")
_TOO_LARGE = 2.0**63
_UNIT = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Imported(Struct):
    """Fields of a spec file, and in words what could not be taken over (``left``: what, why)."""

    fields: dict[str, Any] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)

    def leave(self, flag: str, reason: str = NO_FIELD) -> None:
        """Note something that is not taken over."""
        self.left.append((flag, reason))

    def variable(self, name: str, value: str | None, flag: str = "env") -> None:
        """Take a variable over, unless it sounds secret or its value is in the environment of the tool."""
        if value is None:
            self.leave(f"{flag} {name}", "its value is in the environment: give it with --env, or define a secret")
        elif shown_value(name, value) != value:
            self.leave(f"{flag} {name}", "it sounds secret: define it in [secrets] and add it to secrets")
        else:
            self.fields.setdefault("env", {})[name] = value

    def label(self, key: str, value: str) -> None:
        """Take a label over."""
        self.fields.setdefault("labels", {})[key] = value

    def number(self, name: str, flag: str, text: object, kind: type[float | int]) -> None:
        """Take a number over, unless it is none, or means "no limit"."""
        try:
            value = kind(str(text))
        except ValueError:
            self.leave(f"{flag} {text}", "it is not a number")
            return
        if not math.isfinite(value):
            self.leave(f"{flag} {text}", "it is too large")
        elif value > 0:
            self.fields[name] = value

    def memory(self, flag: str, text: object) -> None:
        """Take a size over, in Docker's units: bytes, or k, m, g."""
        match = _SIZE.match(str(text).strip())
        if match is None:
            self.leave(f"{flag} {text}", "it is not a size")
            return
        size = float(match[1]) * _UNIT[match[2].lower()]
        if size >= _TOO_LARGE:
            self.leave(f"{flag} {match[0][:40]}", "it is too large")
        elif size := int(size):
            self.fields["memory_mib"] = parse_size_mib(f"{-(-size // (1 << 20))}M")

    def port(self, flag: str, text: str) -> None:
        """Take a published port over. Docker publishes on every address, a sandbox on 127.0.0.1."""
        base, _, protocol = text.partition("/")
        if protocol not in ("", "tcp"):
            self.leave(f"{flag} {text}", "only TCP ports are published")
            return
        if "-" in base:
            self.leave(f"{flag} {text}", "a range of ports: publish each one")
            return
        wide = base.rpartition(":")[0].count(":") == 0
        try:
            ports.parse(base)
        except ValueError as error:
            self.leave(f"{flag} {text}", str(error))
            return
        self.fields.setdefault("ports", []).append(base)
        if wide and ":" in base:
            self.leave(f"{flag} {text}", "taken over for 127.0.0.1 only; 0.0.0.0:PORT:PORT publishes on every address")

    def mount(self, flag: str, source: str, target: str, folder: Path, *, read_only: bool) -> None:
        """Take one folder of this machine over as the workspace, which a sandbox has at /workspace."""
        if not source.startswith(("/", "./", "../", "~")) and source != ".":
            self.leave(f"{flag} {source}:{target}", "a named volume: a sandbox has only its workspace")
        elif read_only:
            self.leave(f"{flag} {source}:{target}", "a read-only folder: a workspace can be written")
        elif "workspace" in self.fields:
            self.leave(f"{flag} {source}:{target}", "a sandbox has one workspace")
        elif not (path := _resolved(source, folder)):
            self.leave(f"{flag} {source}:{target}", "it is no path of this machine")
        else:
            self.fields["workspace"] = path
            if target.rstrip("/") != WORKSPACE:
                self.leave(f"{flag} {source}:{target}", f"taken over as the workspace, which is at {WORKSPACE}")
                if str(self.fields.get("workdir", "")).rstrip("/") == target.rstrip("/"):
                    self.fields["workdir"] = WORKSPACE

    def security(self, flag: str, option: str) -> None:
        """Take an option about system calls over."""
        if option.replace("=", ":", 1) == "seccomp:unconfined":
            self.fields["seccomp"] = "off"
        elif not option.startswith(("no-new-privileges", "label", "apparmor")):
            self.leave(f"{flag} {option}")


def _resolved(source: str, folder: Path) -> str:
    """A folder with links followed; empty for a path that cannot be one."""
    try:
        return str((folder / Path(source).expanduser()).resolve())
    except (OSError, RuntimeError, ValueError):  # the home of an unknown user, a loop of links, a NUL
        return ""


def names_in(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def words_of(value: object) -> list[str]:
    """A command as a list of words: a text is split as a shell does. Raises UsageError."""
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise UsageError(f"{value[:200]!r} cannot be split into words: {error}") from None
    if isinstance(value, Iterable):
        return [str(word) for word in value]
    return [str(value)]


def name_from(text: str) -> str:
    """A sandbox's name made of any text."""
    made = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")[:NAME_MAX]
    return made or "imported"


def texts(table: Mapping[Any, Any] | Iterable[Any]) -> list[tuple[str, str | None]]:
    """A table, or a list of KEY=VALUE, as pairs. A value is None if there is none."""
    if isinstance(table, Mapping):
        return [(str(key), None if value is None else _plain(value)) for key, value in table.items()]
    pairs = (str(item).partition("=") for item in table)
    return [(key, value if equals else None) for key, equals, value in pairs]


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
