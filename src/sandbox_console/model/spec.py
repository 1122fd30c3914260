"""The spec of a sandbox, for every backend.

The fields of a2a_pack's ``SandboxSpec`` keep their names and meaning, so an agent's spec can be passed on as it is. The
other fields are this console's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from sandbox_console.errors import InvalidSpec
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.spec_fields import BY_NAME

Limits = Literal["strict", "best-effort"]

MADE_BY = "up.file"
"""The label of sandboxes that ``up`` made: it names their file, so no template has it."""


class SandboxSpec(Struct, frozen=True):
    """A sandbox as requested. None means "not requested"; an empty ``egress`` denies all connections.

    ``cpus`` are vCPUs and may be a fraction; ``memory_mib`` is MiB; durations are seconds; ``workspace`` is a folder of
    this host, mounted read-write at /workspace; ``secrets`` are logical names, never values; ``ports`` are published on
    this host, each as :mod:`sandbox_console.model.ports` reads it. ``limits = "best-effort"`` accepts a limit that the
    backend cannot enforce, and shows it as not enforced. ``seccomp = "off"`` turns the filter of system calls off;
    ``ptrace`` requests one that allows debuggers, ``nested_userns`` one that allows the guest its own user namespaces
    (bwrap in a sandbox). The policy must allow each of them.
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

        A size may be a text such as ``2G``, a duration one such as ``15m``; ``$schema``, which names a schema for
        editors, is ignored.

        Raises InvalidSpec for an unknown field (and names the nearest one), a missing name, or a value of the wrong
        type. Whether the values are allowed is checked by :func:`sandbox_console.model.check.problems`.
        """
        data = {key: value for key, value in data.items() if key != "$schema"}
        problems = {key: _unknown(key) for key in data if key not in BY_NAME}
        if "name" not in data:
            problems["name"] = "a name is needed"
        values: dict[str, Any] = {}
        for key in data.keys() & BY_NAME.keys():
            try:
                values[key] = BY_NAME[key].read(data[key])
            except (TypeError, ValueError) as error:
                problems[key] = str(error)
        if problems:
            raise InvalidSpec(problems)
        return cls(**values)


def _unknown(key: str) -> str:
    near = nearest(key, BY_NAME)
    return f"unknown field; did you mean {near!r}?" if near else "unknown field"
