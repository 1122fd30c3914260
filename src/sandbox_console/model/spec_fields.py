"""Declares each field of a spec once: what it means, how it is written, and which capability it needs.

The form, the options of ``create`` and ``update``, spec files, the JSON Schema, docs/spec.md and the policy's needs are
all made from `FIELDS`. The Python type of each field is in `sandbox_console.model.spec.SandboxSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from sandbox_console.model.quantities import parse_duration_s, parse_size_mib

NAME_MAX = 63
NAME_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class Section(StrEnum):
    """A group of fields, with the title that the form and docs/spec.md show."""

    BASICS = "Basics"
    RESOURCES = "Resources"
    NETWORK = "Network"
    SECRETS = "Secrets"
    FILES = "Files and user"
    ENVIRONMENT = "Environment"
    TIME = "Time limits"
    WALLS = "Isolation"


class Kind(StrEnum):
    """The shape of a value in TOML and JSON."""

    TEXT = "text"
    WORDS = "command line"  # a list of words; a person writes them in one line
    LIST = "list of texts"
    TABLE = "table of texts"
    NUMBER = "number"
    COUNT = "whole number"
    SIZE = "size"  # whole MiB, or a text such as 512M
    DURATION = "duration"  # seconds, or a text such as 15m
    FLAG = "true or false"
    CHOICE = "one of"


class SpecField(NamedTuple):
    """One field of a spec. It is not a Struct, since `--help` reads the fields and msgspec takes long to import.

    ``option`` is the command line's, without dashes, and ``letter`` its short form; ``hint`` says in the form what an
    empty field means, or gives an example. Setting a field to its ``default`` is the same as leaving it out. ``needs``
    is the value of the `Capability` that the field needs; a ``limit`` is accepted without it by ``limits =
    "best-effort"``. ``least`` is the smallest number allowed or, with ``above``, the largest that is too small.
    ``pattern`` is a regular expression of JSON Schema for a text, and ``longest`` its maximum length in characters (0
    for no limit).
    """

    name: str
    label: str
    section: Section
    kind: Kind
    help: str
    hint: str = ""
    option: str = ""
    letter: str = ""
    metavar: str = ""
    example: Any = None
    unit: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    needs: str = ""
    limit: bool = False
    least: float | None = None
    above: float | None = None
    pattern: str = ""
    longest: int = 0

    @property
    def argument(self) -> str:
        """The attribute under which argparse stores the option."""
        return self.option.replace("-", "_")

    def read(self, value: object) -> Any:
        """A value of TOML or JSON as the spec holds it. Raises TypeError or ValueError, which say what is needed."""
        match self.kind:
            case Kind.TEXT:
                return _text(value)
            case Kind.WORDS | Kind.LIST:
                return _texts(value)
            case Kind.TABLE:
                return _table(value)
            case Kind.NUMBER:
                return _number(value)
            case Kind.COUNT:
                return _whole(value)
            case Kind.SIZE:
                return parse_size_mib(value) if isinstance(value, str) else _whole(value)
            case Kind.DURATION:
                return parse_duration_s(value) if isinstance(value, str) else _number(value)
            case Kind.FLAG:
                return _flag(value)
            case Kind.CHOICE:
                return self._choice(value)

    def _choice(self, value: object) -> Any:
        if value not in self.choices:
            raise ValueError(" or ".join(f'"{choice}"' for choice in self.choices) + " is needed")
        return None if self.name == "seccomp" and value == "on" else value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is needed, not {type(value).__name__}")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise TypeError("a list of texts is needed")
    return tuple(_text(item) for item in value)


def _table(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError("a table of texts is needed")
    return {_text(key): _text(item) for key, item in value.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a number is needed, not {value!r}")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number is needed, not {value!r}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("true or false is needed")
    return value


_K, _S = Kind, Section

FIELDS: tuple[SpecField, ...] = (
    SpecField("name", "Name", _S.BASICS, _K.TEXT, "the sandbox's name, unique on its host",
              hint="letters, digits, - _ .", example="agent-1", pattern=NAME_PATTERN, longest=NAME_MAX),
    SpecField("image", "Image", _S.BASICS, _K.TEXT,
              "what is in it: host or dir:PATH for bubblewrap, an image's name for docker",
              hint="host, dir:/path or an image such as python:3.12", option="image", metavar="I", example="host"),
    SpecField("command", "Command", _S.BASICS, _K.WORDS, "the command to run; without one, the image's own",
              hint="empty: the image's own", example=["python3", "-m", "http.server"]),
    SpecField("labels", "Labels", _S.BASICS, _K.TABLE, "a label", hint="key=value …",
              option="label", letter="l", metavar="K=V", example={"team": "core"}),
    SpecField("cpus", "CPUs", _S.RESOURCES, _K.NUMBER, "number of vCPUs, may be a fraction",
              hint="vCPUs, such as 0.5; empty: no limit", option="cpus", metavar="N", example=0.5, unit="vCPUs",
              needs="limit.cpu", limit=True, above=0),
    SpecField("memory_mib", "Memory", _S.RESOURCES, _K.SIZE, "the most memory, 512M or 2G",
              hint="512M or 2G; empty: no limit", option="memory", metavar="SIZE", example=512, unit="MiB",
              needs="limit.memory", limit=True, least=4),
    SpecField("pids", "Processes", _S.RESOURCES, _K.COUNT, "maximum number of processes",
              hint="at most this many; empty: no limit of yours", option="pids", metavar="N", example=100,
              needs="limit.pids", limit=True, above=0),
    SpecField("limits", "Limits", _S.RESOURCES, _K.CHOICE, "best-effort accepts limits that cannot be enforced",
              hint="accept limits that cannot be enforced here",
              option="limits", metavar="HOW", default="strict", choices=("strict", "best-effort")),
    SpecField("egress", "Egress", _S.NETWORK, _K.LIST, "host, host:port or *.suffix; without it, no network",
              hint="acme.org, *.github.com …; empty: no network", option="egress", metavar="PATTERN",
              example=["api.example.com", "*.example.org"]),
    SpecField("ports", "Ports", _S.NETWORK, _K.LIST,
              "[ADDRESS:][HOST_PORT:]PORT (TCP): 8080:80, or 80 for a free port of 127.0.0.1",
              hint="8080:80, or 80 for a free one of this host", option="publish", letter="p", metavar="PORT",
              example=["8080:80"], needs="ports"),
    SpecField("secrets", "Secrets", _S.SECRETS, _K.LIST, "a secret from the configuration",
              hint="names from the config", option="secret", metavar="NAME", example=["GITHUB_TOKEN"]),
    SpecField("workspace", "Workspace", _S.FILES, _K.TEXT, "a folder of this host, mounted at /workspace",
              hint="a folder of this host, at /workspace", option="workspace", metavar="DIR", example="/srv/agent-1",
              pattern="^/", needs="workspace"),
    SpecField("workdir", "Folder", _S.FILES, _K.TEXT, "the folder in which the command runs",
              hint="empty: the image's own", option="workdir", metavar="D", example="/srv", pattern="^/"),
    SpecField("user", "User", _S.FILES, _K.TEXT, "the user that runs the command", hint="empty: the image's own",
              option="user", metavar="U", example="app", needs="user"),
    SpecField("read_only_root", "Read-only", _S.FILES, _K.FLAG, "make the root file system read-only",
              option="read-only-root", needs="read_only_root"),
    SpecField("env", "Variables", _S.ENVIRONMENT, _K.TABLE, "an environment variable", hint="KEY=value …",
              option="env", metavar="K=V", example={"LANG": "C.UTF-8"}),
    SpecField("max_duration_s", "Longest life", _S.TIME, _K.DURATION, "end it after this time: 90s, 15m, 2h",
              hint="90s, 15m, 2h; empty: no limit", option="max-duration", metavar="T", example=3600, unit="s",
              needs="limit.max_duration", limit=True, above=0),
    SpecField("idle_timeout_s", "Idle time", _S.TIME, _K.DURATION, "end it after it has been idle for this time",
              hint="15m; empty: no limit", option="idle-timeout", metavar="T", example=900, unit="s",
              needs="limit.idle_timeout", limit=True, above=0),
    SpecField("runtime", "Runtime", _S.WALLS, _K.TEXT, "a runtime of the engine", hint="empty: the engine's default",
              option="runtime", metavar="R", example="runsc", needs="runtime"),
    SpecField("seccomp", "System calls", _S.WALLS, _K.CHOICE,
              "off: do not filter system calls, if the policy allows it", hint="allow every system call",
              option="seccomp", metavar="HOW", default="on", choices=("on", "off"), needs="system_calls"),
    SpecField("ptrace", "Debuggers", _S.WALLS, _K.FLAG, "let debuggers work in it, if the policy allows it",
              hint="allow debuggers inside", option="ptrace", needs="system_calls"),
    SpecField("nested_userns", "Nesting", _S.WALLS, _K.FLAG, "let sandboxes work in it, if the policy allows it",
              hint="allow sandboxes inside", option="nested-userns", needs="system_calls"),
)  # fmt: skip
"""Every field, by section, in the order of the form."""

BY_NAME: Mapping[str, SpecField] = {field.name: field for field in FIELDS}
