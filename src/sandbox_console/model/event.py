"""Events, which flow in one direction: from backends to faces."""

from __future__ import annotations

from msgspec import Struct

from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef, Stats


class Listed(Struct, frozen=True):
    """The whole list of one backend on one host. A sandbox that is not in it is gone."""

    backend: str
    host: str
    sandboxes: tuple[Sandbox, ...]


class Changed(Struct, frozen=True, gc=False):
    """A sandbox is new or has changed."""

    sandbox: Sandbox


class Removed(Struct, frozen=True, gc=False):
    """A sandbox is gone."""

    ref: SandboxRef


class HealthChanged(Struct, frozen=True):
    """A backend came up, went down, or reports why it cannot work."""

    health: BackendHealth


class Sampled(Struct, frozen=True, gc=False):
    """A sample of one sandbox's stats."""

    ref: SandboxRef
    stats: Stats


class Denied(Struct, frozen=True, gc=False):
    """How often a sandbox was refused a connection so far, and the last ``host``. ``at`` is seconds since the epoch.

    Names that did not resolve and connections that failed do not count as refusals.
    """

    ref: SandboxRef
    count: int
    host: str
    at: float
    unresolved: int = 0
    failed: int = 0


class Acted(Struct, frozen=True):
    """An action has ended. The event carries its row in the audit log, for views that show it."""

    audit_id: int
    verb: str
    target: str
    outcome: str
    message: str = ""


class AuditChanged(Struct, frozen=True):
    """The audit log became writable or unwritable; ``reason`` is empty while it works."""

    reason: str


class ConfigChanged(Struct, frozen=True):
    """The configuration's file has changed. With a ``problem`` it cannot be used, and the one before stays in force.

    ``now`` are the tables whose changes apply at once, ``later`` those that apply from the next start on. ``own`` means
    that this console wrote the file, as its user asked.
    """

    problem: str = ""
    hint: str = ""
    now: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    own: bool = False


class Gap(Struct, frozen=True):
    """``count`` events were dropped for this viewer, because it was slow."""

    count: int


BackendEvent = Listed | Changed | Removed | HealthChanged
Event = Listed | Changed | Removed | HealthChanged | Sampled | Denied | Acted | AuditChanged | ConfigChanged | Gap
