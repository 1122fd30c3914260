"""Events: they flow from backends to faces, in one direction."""

from __future__ import annotations

from msgspec import Struct

from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef, Stats


class Listed(Struct, frozen=True):
    """The whole list of one backend on one host: what is not in it is gone."""

    backend: str
    host: str
    sandboxes: tuple[Sandbox, ...]


class Changed(Struct, frozen=True, gc=False):
    """A sandbox is new or is not as it was."""

    sandbox: Sandbox


class Removed(Struct, frozen=True, gc=False):
    """A sandbox is gone."""

    ref: SandboxRef


class HealthChanged(Struct, frozen=True):
    """A backend came up, went down, or says why it cannot work."""

    health: BackendHealth


class Sampled(Struct, frozen=True, gc=False):
    """A stats sample of one sandbox."""

    ref: SandboxRef
    stats: Stats


class Denied(Struct, frozen=True, gc=False):
    """What a sandbox was refused so far: how often, and the last ``host``, ``at`` Unix seconds.

    ``unresolved`` names and ``failed`` connections are not refusals.
    """

    ref: SandboxRef
    count: int
    host: str
    at: float
    unresolved: int = 0
    failed: int = 0


class Acted(Struct, frozen=True):
    """An action has ended: its row in the audit log, for views that show it."""

    audit_id: int
    verb: str
    target: str
    outcome: str
    message: str = ""


class AuditChanged(Struct, frozen=True):
    """The audit log became writable or unwritable; ``reason`` is empty while it works."""

    reason: str


class Gap(Struct, frozen=True):
    """``count`` events were dropped for this viewer, because it was slow."""

    count: int


BackendEvent = Listed | Changed | Removed | HealthChanged
Event = Listed | Changed | Removed | HealthChanged | Sampled | Denied | Acted | AuditChanged | Gap
