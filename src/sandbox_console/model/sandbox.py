"""A sandbox as its backend reports it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field, structs

from sandbox_console.model.spec import SandboxSpec


class Status(StrEnum):
    """A sandbox's state, in the console's words; a backend translates its own into these."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    EXITED = "exited"
    FAILED = "failed"  # it never ran: booting or starting it failed
    LOST = "lost"  # it should run but does not: its supervisor or its host went away
    UNKNOWN = "unknown"

    @property
    def live(self) -> bool:
        """Whether processes of the sandbox may exist."""
        return self in (Status.STARTING, Status.RUNNING, Status.PAUSED, Status.STOPPING)


HostKey = tuple[str, str]
"""A host: the name of its backend, and its own name there."""


class SandboxRef(Struct, frozen=True, order=True, cache_hash=True, gc=False, omit_defaults=True):
    """Where a sandbox is: the three parts that a call needs, as they are. Clean them before showing them.

    ``container`` names one of several containers for logs, commands and files; empty is the main one. As text, and for
    all that concerns the whole sandbox, it makes no difference.
    """

    backend: str
    host: str
    id: str
    container: str = ""

    @property
    def whole(self) -> SandboxRef:
        """The sandbox, whichever container is meant."""
        return structs.replace(self, container="") if self.container else self

    def __str__(self) -> str:
        return f"{self.backend}/{self.host}/{self.id}"


def parse_ref(text: str) -> SandboxRef:
    """The reference in ``backend/host/id``; a host may have slashes. Raises ValueError."""
    backend, _, rest = text.partition("/")
    host, _, id_ = rest.rpartition("/")
    if not (backend and host and id_):
        raise ValueError(f"{text!r} is not backend/host/id")
    return SandboxRef(backend, host, id_)


class Exit(Struct, frozen=True, gc=False):
    """How a main process or a command ended.

    ``code`` follows the shell's convention: 0-255, or 128 + the number of the signal that killed it. ``oom`` is None if
    the backend cannot know whether memory ran out.
    """

    code: int | None = None
    signal: int | None = None
    oom: bool | None = None
    reason: str = ""


class Fact(Struct, frozen=True):
    """One line of the effective spec: what is in effect for a field, and how it is enforced or why it is not."""

    field: str
    value: str
    note: str = ""
    enforced: bool = True


class Sandbox(Struct, frozen=True, gc=False):
    """One sandbox as its backend reports it. Times are seconds since the epoch.

    ``spec`` is what was asked for, and ``found`` those of its fields that the backend can read back, as they are now;
    ``untold`` says for other fields why it cannot. ``sandbox_console.model.drift`` compares them.
    """

    ref: SandboxRef
    name: str
    status: Status
    image: str = ""
    created_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None
    exit: Exit | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    managed: bool = True
    maker: str = ""
    spec: SandboxSpec | None = None
    effective: tuple[Fact, ...] = ()
    found: Mapping[str, Any] = field(default_factory=dict)
    untold: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None
    restarts: int | None = None
    detail: str = ""  # one line for a person: why it is lost, failed or unhealthy
    quarantine: str = ""  # by whom and why it is held, as the console has recorded


def spec_of(sandbox: Sandbox) -> SandboxSpec:
    """A sandbox's spec as asked for, with its present name.

    For a sandbox of another tool it is what its backend reports: name, image and limits.
    """
    if sandbox.spec is not None:  # another tool may have renamed it
        return sandbox.spec if sandbox.spec.name == sandbox.name else structs.replace(sandbox.spec, name=sandbox.name)
    in_effect = {fact.field: fact.value for fact in sandbox.effective}
    return SandboxSpec(
        sandbox.name,
        image=sandbox.image,
        cpus=_number(in_effect.get("cpus")),
        memory_mib=_whole(in_effect.get("memory_mib")),
        pids=_whole(in_effect.get("pids")),
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:  # "unlimited", or not enforced
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


class HealthState(StrEnum):
    """Whether a backend answers."""

    CONNECTING = "connecting"
    OK = "ok"
    UNREACHABLE = "unreachable"  # it should answer but does not
    UNAVAILABLE = "unavailable"  # it cannot work here: KVM missing, not installed


class BackendHealth(Struct, frozen=True):
    """The health of one backend on one host: whether it answers and, if not, why and what to do.

    ``silent`` means that something is there but does not answer as it should, so it may well have sandboxes. ``since``
    is when it was noticed that it no longer answers, in seconds since the epoch, if it did before.
    """

    backend: str
    host: str
    state: HealthState
    reason: str = ""
    hint: str = ""
    version: str = ""
    silent: bool = False
    since: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether it answers."""
        return self.state is HealthState.OK


class Stats(Struct, frozen=True, gc=False):
    """One sample of a running sandbox. Rates are per second; None means that the value cannot be known here.

    ``cpu_percent`` is relative to one vCPU, so two busy ones make 200. ``memory_bytes`` excludes the page cache.
    ``log_rate`` is in bytes of the log file as its backend stores it.
    """

    at: float
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit: int | None = None
    pids: int | None = None
    net_rx: float | None = None
    net_tx: float | None = None
    block_read: float | None = None
    block_write: float | None = None
    log_rate: float | None = None


class Diagnosis(Struct, frozen=True):
    """The result of one check: ``what`` was checked, its state, and the next step if something is wrong."""

    what: str
    state: Literal["ok", "warning", "problem"]
    text: str
    hint: str = ""
