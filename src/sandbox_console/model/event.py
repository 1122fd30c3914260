"""What flows from backends to faces, in one direction."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef, Stats


@dataclass(frozen=True, slots=True)
class Listed:
    """The whole list of one backend on one host: what is not in it is gone."""

    backend: str
    host: str
    sandboxes: tuple[Sandbox, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """A sandbox is new or is not as it was."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Removed:
    """A sandbox is gone."""

    ref: SandboxRef


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """A backend came up, went down, or says why it cannot work."""

    health: BackendHealth


@dataclass(frozen=True, slots=True)
class Sampled:
    """A stats sample of one sandbox."""

    ref: SandboxRef
    stats: Stats


@dataclass(frozen=True, slots=True)
class Acted:
    """An action has ended: its row in the audit log, for whoever shows it."""

    audit_id: int
    verb: str
    target: str
    outcome: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class AuditChanged:
    """The audit log became writable or unwritable; ``reason`` is empty while it works."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gap:
    """``count`` events were dropped for this viewer, which was slow."""

    count: int


BackendEvent = Listed | Changed | Removed | HealthChanged
Event = Listed | Changed | Removed | HealthChanged | Sampled | Acted | AuditChanged | Gap
