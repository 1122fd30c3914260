"""What a user asks for: one spec for every backend.

The fields of a2a_pack's ``SandboxSpec`` keep their names and meaning, so that an agent's
spec can be passed on as it is; the others are this console's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from sandbox_console.errors import InvalidSpec
from sandbox_console.model.did_you_mean import nearest

Limits = Literal["strict", "best-effort"]


class SandboxSpec(Struct, frozen=True):
    """A sandbox as asked for. None means "not asked for"; an empty ``egress`` denies all.

    ``cpus`` are vCPUs and may be a fraction; ``memory_mib`` is MiB; durations are seconds;
    ``workspace`` is a folder of this host, mounted read-write at /workspace; ``secrets`` are
    logical names, never values; ``ports`` are published on this host, each as
    :mod:`sandbox_console.model.ports` reads it. ``limits = "best-effort"`` accepts a limit that the backend
    cannot enforce, and shows it as not enforced. ``seccomp = "off"`` asks for no filter of system calls, ``ptrace``
    for one that lets debuggers work, ``nested_userns`` for user namespaces of the guest's own (bwrap in a sandbox);
    each needs the policy's leave.
    """

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    cpus: float | None = None
    memory_mib: int | None = None
    pids: int | None = None
    workspace: str | None = None
    secrets: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    max_duration_s: float | None = None
    idle_timeout_s: float | None = None
    runtime: str | None = None
    read_only_root: bool = False
    limits: Limits = "strict"
    seccomp: Literal["off"] | None = None
    ptrace: bool = False
    nested_userns: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, TOML or a label: fields at their default are left out."""
        out: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value in (None, (), {}, False) or (name == "limits" and value == "strict"):
                continue
            out[name] = (
                list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            )
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SandboxSpec:
        """Read plain data back.

        Raises InvalidSpec for an unknown field (naming the nearest), a missing name, or a
        value of the wrong type; what the values may be is :func:`sandbox_console.model.check.problems`.
        """
        problems = {key: _unknown(key) for key in data if key not in _SHAPES}
        if "name" not in data:
            problems["name"] = "a name is needed"
        values: dict[str, Any] = {}
        for key in data.keys() & _SHAPES.keys():
            try:
                values[key] = _SHAPES[key](data[key])
            except (TypeError, ValueError) as error:
                problems[key] = str(error)
        if problems:
            raise InvalidSpec(problems)
        return cls(**values)


def _unknown(key: str) -> str:
    near = nearest(key, _SHAPES)
    return f"unknown field; did you mean {near!r}?" if near else "unknown field"


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


def _limits(value: object) -> Limits:
    if value == "strict":
        return "strict"
    if value == "best-effort":
        return "best-effort"
    raise ValueError('"strict" or "best-effort" is needed')


def _filter(value: object) -> Literal["off"] | None:
    if value in ("on", "off"):
        return "off" if value == "off" else None
    raise ValueError('"on" or "off" is needed')


_SHAPES: dict[str, Any] = {
    "name": _text,
    "image": _text,
    "command": _texts,
    "env": _table,
    "workdir": _text,
    "user": _text,
    "cpus": _number,
    "memory_mib": _whole,
    "pids": _whole,
    "workspace": _text,
    "secrets": _texts,
    "egress": _texts,
    "ports": _texts,
    "labels": _table,
    "max_duration_s": _number,
    "idle_timeout_s": _number,
    "runtime": _text,
    "read_only_root": _flag,
    "limits": _limits,
    "seccomp": _filter,
    "ptrace": _flag,
    "nested_userns": _flag,
}
