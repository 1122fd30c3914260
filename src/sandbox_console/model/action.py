"""Actions: everything that changes a sandbox or crosses its boundary, as data. Also the permit to carry one out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import Struct, field

from sandbox_console.model.egress import EgressRule
from sandbox_console.model.host_action import HostAction
from sandbox_console.model.ports import LOOPBACK, PublishedPort
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec


class Create(Struct, frozen=True):
    """Make a sandbox and, unless ``start`` is off, start it."""

    verb: ClassVar[str] = "create"
    spec: SandboxSpec
    backend: str
    host: str
    start: bool = True


class Start(Struct, frozen=True):
    """Start a sandbox that is not running."""

    verb: ClassVar[str] = "start"
    ref: SandboxRef


class Stop(Struct, frozen=True):
    """Send SIGTERM to the main process, and SIGKILL to every process after ``grace_s`` seconds."""

    verb: ClassVar[str] = "stop"
    ref: SandboxRef
    grace_s: float = 10.0


class Kill(Struct, frozen=True):
    """Send a signal to the main process; SIGKILL ends the whole sandbox."""

    verb: ClassVar[str] = "kill"
    ref: SandboxRef
    signal: str = "SIGKILL"


class Restart(Struct, frozen=True):
    """Stop a sandbox, then start it."""

    verb: ClassVar[str] = "restart"
    ref: SandboxRef
    grace_s: float = 10.0


class Pause(Struct, frozen=True):
    """Freeze every process of a sandbox."""

    verb: ClassVar[str] = "pause"
    ref: SandboxRef


class Resume(Struct, frozen=True):
    """Thaw the processes that ``Pause`` froze."""

    verb: ClassVar[str] = "resume"
    ref: SandboxRef


class Remove(Struct, frozen=True):
    """Remove a sandbox and what the backend stores for it; ``force`` even if it is running."""

    verb: ClassVar[str] = "remove"
    ref: SandboxRef
    force: bool = False


class Update(Struct, frozen=True):
    """Change a sandbox's spec: live if every change can be made live, else by recreating it.

    ``drift = "adopt"`` changes nothing about the sandbox: the spec, which it must be like already, is taken for what
    was asked. ``drift = "reapply"`` puts the rules of its egress back as well, which otherwise are changed by rules.
    """

    verb: ClassVar[str] = "update"
    ref: SandboxRef
    spec: SandboxSpec
    drift: Literal["", "reapply", "adopt"] = ""


class Exec(Struct, frozen=True):
    """Run a command beside the main process. ``timeout_s`` ends its whole process tree.

    With a ``mark``, the command is ended with what it started if the console that runs it is killed. With ``record`` it
    must be recorded, or it is not run.
    """

    verb: ClassVar[str] = "exec"
    ref: SandboxRef
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    user: str | None = None
    timeout_s: float | None = None
    mark: str = ""
    record: bool = False


class OpenShell(Struct, frozen=True):
    """Open an interactive shell on a PTY.

    With ``shell`` None it is the best shell in the sandbox, of `model.shells.SHELLS`. With ``record`` the shell must be
    recorded, or it is not opened.

    With ``keep`` a process of its own holds the shell under ``name``, so that it outlives the console; None is as
    configured. With ``attach``, the id of such a shell, that one is shown instead, and ``read_only`` types nothing.

    With ``command``, the shell runs that instead of asking for commands.

    ``mark`` is how a later console finds the shell's processes if this one is killed.
    """

    verb: ClassVar[str] = "shell"
    ref: SandboxRef
    shell: str | None = None
    user: str | None = None
    cols: int = 80
    rows: int = 24
    term: str = "xterm-256color"
    record: bool = False
    mark: str = ""
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    keep: bool | None = None
    name: str = ""
    attach: str = ""
    read_only: bool = False
    command: str | None = None

    def argv(self, shell: str) -> list[str]:
        """The command line that opens it with the shell at this path."""
        return [shell] if self.command is None else [shell, "-c", self.command]


class EndShell(Struct, frozen=True):
    """End a kept shell, given by its id, with everything that it started."""

    verb: ClassVar[str] = "shell-end"
    ref: SandboxRef
    id: str


class Rename(Struct, frozen=True):
    """Give a sandbox another name. Its id stays the same."""

    verb: ClassVar[str] = "rename"
    ref: SandboxRef
    name: str


class Upload(Struct, frozen=True):
    """Unpack a tar, read from the action's input, into the guest's directory ``path``."""

    verb: ClassVar[str] = "upload"
    ref: SandboxRef
    path: str


class Download(Struct, frozen=True):
    """Write the guest's ``path`` as a tar to the action's output."""

    verb: ClassVar[str] = "download"
    ref: SandboxRef
    path: str


class Attach(Struct, frozen=True):
    """Attach to the main process's input and output; detaching leaves the process alone."""

    verb: ClassVar[str] = "attach"
    ref: SandboxRef


class Forward(Struct, frozen=True):
    """Publish a port of a running sandbox at ``address`` and ``host_port`` of this machine (0 picks a free port).

    A command inside the sandbox carries each connection, so the sandbox needs no network. The port stays published
    until the forward is closed. With ``listens`` false nothing listens here: whoever holds the forward brings the
    connections.
    """

    verb: ClassVar[str] = "forward"
    ref: SandboxRef
    port: int
    address: str = LOOPBACK
    host_port: int = 0
    listens: bool = True

    @property
    def published(self) -> PublishedPort:
        """The forwarded port, in the form of a spec's published port."""
        return PublishedPort(self.address, self.host_port, self.port)


class Commit(Struct, frozen=True):
    """Make an image of a sandbox's root file system."""

    verb: ClassVar[str] = "commit"
    ref: SandboxRef
    image: str


class TakeSnapshot(Struct, frozen=True):
    """Save a sandbox's state: its disk and, with ``full``, its memory."""

    verb: ClassVar[str] = "snapshot"
    ref: SandboxRef
    name: str
    full: bool = False


class Fork(Struct, frozen=True):
    """Make a running copy called ``name`` of a running sandbox."""

    verb: ClassVar[str] = "fork"
    ref: SandboxRef
    name: str


class ChangeEgress(Struct, frozen=True):
    """Change a sandbox's egress while it runs: remove the rules of some patterns, then add others.

    An added rule replaces those of the same pattern, but a deny rule leaves the allow rule in place.
    """

    verb: ClassVar[str] = "egress"
    ref: SandboxRef
    add: tuple[EgressRule, ...] = ()
    remove: tuple[str, ...] = ()


class DenyEgress(Struct, frozen=True):
    """Deny patterns while the sandbox runs, and cut its open tunnels to them.

    ``until`` is seconds since the epoch; None denies them for good. This action only takes access away, so it has a
    verb of its own: the policy and the audit log's reserve treat it like ``stop``.
    """

    verb: ClassVar[str] = "egress-deny"
    ref: SandboxRef
    patterns: tuple[str, ...]
    until: float | None = None


class Bundle(Struct, frozen=True):
    """Write what is known about a sandbox into an evidence bundle.

    Changed files are included up to ``files_most`` bytes.
    """

    verb: ClassVar[str] = "bundle"
    ref: SandboxRef
    files_most: int = 1 << 20


class Quarantine(Struct, frozen=True):
    """Hold a sandbox for an investigation.

    End its shells and forwards, deny all egress, freeze it, and refuse actions that enter or remove it.
    """

    verb: ClassVar[str] = "quarantine"
    ref: SandboxRef
    reason: str = ""


class Release(Struct, frozen=True):
    """End a quarantine: restore the egress rules, thaw it, and allow what was refused."""

    verb: ClassVar[str] = "release"
    ref: SandboxRef


EgressAction = ChangeEgress | DenyEgress

CopyAction = Upload | Download | Commit | TakeSnapshot | Fork | Bundle
InnerAction = CopyAction | Rename | Attach | Forward | EgressAction | Quarantine | Release
"""Actions on a sandbox that need one of ``backends.abilities``."""

Lifecycle = Create | Start | Stop | Kill | Restart | Pause | Resume | Remove | Update | Exec | OpenShell | EndShell

Action = Lifecycle | InnerAction | HostAction

VERBS: tuple[str, ...] = tuple(kind.verb for kind in Action.__args__)


def ref_of(action: Action) -> SandboxRef | None:
    """The sandbox that an action is about; None if it creates one or acts on a host."""
    if isinstance(action, Create) or isinstance(action, HostAction):  # noqa: SIM101 - as mypy narrows it
        return None
    return action.ref


def place_of(action: Action) -> tuple[str, str]:
    """Where an action happens: (backend, host)."""
    if isinstance(action, Create) or isinstance(action, HostAction):  # noqa: SIM101 - as mypy narrows it
        return action.backend, action.host
    return action.ref.backend, action.ref.host


class Permit(Struct, frozen=True):
    """Proof that an attempt has been committed to the audit log.

    Every method of a backend that changes something takes one. It is constructed in audit/journal.py and nowhere else
    (tests/unit/test_architecture.py reads the syntax tree to hold that).
    """

    audit_id: int
    verb: str
