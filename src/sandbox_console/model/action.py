"""Whatever changes a sandbox or crosses its wall, as data; and the permit that an attempt is on record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec


@dataclass(frozen=True, slots=True)
class Create:
    """Make a sandbox and, unless ``start`` is off, start it."""

    verb: ClassVar[str] = "create"
    spec: SandboxSpec
    backend: str
    host: str
    start: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """Start a sandbox that is not running."""

    verb: ClassVar[str] = "start"
    ref: SandboxRef


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM to the main process, SIGKILL to all after ``grace_s`` seconds."""

    verb: ClassVar[str] = "stop"
    ref: SandboxRef
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Kill:
    """Send a signal to the main process; SIGKILL ends the whole sandbox."""

    verb: ClassVar[str] = "kill"
    ref: SandboxRef
    signal: str = "SIGKILL"


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop, then start."""

    verb: ClassVar[str] = "restart"
    ref: SandboxRef
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Freeze every process."""

    verb: ClassVar[str] = "pause"
    ref: SandboxRef


@dataclass(frozen=True, slots=True)
class Resume:
    """Thaw what Pause froze."""

    verb: ClassVar[str] = "resume"
    ref: SandboxRef


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a sandbox and what the backend keeps of it; ``force`` also where it runs."""

    verb: ClassVar[str] = "remove"
    ref: SandboxRef
    force: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """Bring a sandbox to another spec: live where every change can be, else by recreating it."""

    verb: ClassVar[str] = "update"
    ref: SandboxRef
    spec: SandboxSpec


@dataclass(frozen=True, slots=True)
class Exec:
    """Run a command beside the main process. ``timeout_s`` ends its whole process tree."""

    verb: ClassVar[str] = "exec"
    ref: SandboxRef
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class OpenShell:
    """Open an interactive shell on a PTY. ``shell`` None: the best one that is there."""

    verb: ClassVar[str] = "shell"
    ref: SandboxRef
    shell: str | None = None
    user: str | None = None
    cols: int = 80
    rows: int = 24
    term: str = "xterm-256color"


Action = Create | Start | Stop | Kill | Restart | Pause | Resume | Remove | Update | Exec | OpenShell

VERBS: tuple[str, ...] = tuple(kind.verb for kind in Action.__args__)


@dataclass(frozen=True, slots=True)
class Permit:
    """Proof that an attempt is committed to the audit log.

    Every changing method of a backend takes one. It is constructed in audit/journal.py and
    nowhere else (tests/unit/test_architecture.py reads the syntax tree to hold that).
    """

    audit_id: int
    verb: str
