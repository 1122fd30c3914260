"""What a backend must offer. Methods that change something take a Permit; those that only read do not.

A guest command's failure is a result; a provider's failure is one of ``sandbox_console.errors``.
``asyncio.CancelledError`` is never swallowed. Nothing here cleans text: ids, names and output
are passed on as they are, and the faces clean what they show.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import Struct, field

from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.log import LogItem, LogQuery, Stream
from sandbox_console.model.sandbox import BackendHealth, Exit, Sandbox, SandboxRef, Stats
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

Secrets = Sequence[ResolvedSecret]
Progress = Callable[[str], None]


class BackendSettings(Struct, frozen=True):
    """What a provider is given: a folder of its own (0700, made when first used) and its config table."""

    state_dir: Path
    options: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Process(Protocol):
    """A command running in a sandbox.

    One that knows its process tells it as ``pid`` once it has ended: inside where it can, else on the backend's host.
    """

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Chunks as they come, until both streams end. Not reading holds the guest back, never the loop."""
        ...

    async def write(self, data: bytes) -> None:
        """Pass bytes to stdin; returns when they are accepted. A guest that closed its stdin is not an error."""
        ...

    async def close_stdin(self) -> None:
        """End stdin."""
        ...

    async def wait(self) -> Exit:
        """How it ended. 126: found but not executable; 127: not found; 128 + n: killed by signal n."""
        ...

    async def kill(self) -> None:
        """End the command and every process that it started. Safe to call twice."""
        ...


@runtime_checkable
class Terminal(Protocol):
    """A shell on a PTY in a sandbox."""

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Type bytes."""
        ...

    async def resize(self, cols: int, rows: int) -> None:
        """Tell the PTY its size."""
        ...

    async def wait(self) -> Exit:
        """How the shell ended."""
        ...

    async def close(self) -> None:
        """Hang up, then kill what is left of the shell's whole process tree. Safe to call twice."""
        ...


@runtime_checkable
class Backend(Protocol):
    """One backend on one host. ``ref.backend == name`` and ``ref.host == host`` for all it lists."""

    name: str
    host: str

    async def open(self) -> None:
        """Prepare. Never raises because the provider is down: health() tells that."""
        ...

    async def close(self) -> None:
        """Let go of sockets and tasks. Sandboxes live on."""
        ...

    def capabilities(self) -> Capabilities:
        """What it can do here, as far as is known after open(); cheap to call."""
        ...

    async def health(self) -> BackendHealth:
        """Ask the provider whether it answers. Raises nothing but CancelledError."""
        ...

    async def list(self) -> list[Sandbox]:
        """All its sandboxes in every state, others' included. Raises BackendUnreachable: a dead one is never []."""
        ...

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One sandbox, as it is now. Raises NotFound."""
        ...

    def watch(self) -> AsyncIterator[BackendEvent]:
        """Listed and HealthChanged first, then what changes, for as long as it is iterated.

        Reconnects by itself with back-off; after each reconnect a HealthChanged and a Listed come.
        """
        ...

    def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        """Batches of the main process's output, oldest first, in the order written within a stream."""
        ...

    def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        """A sample about every ``interval_s`` seconds until the sandbox stops running."""
        ...

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        """Problems of the values for this backend, by field: an image that is not there, cpus above the host.

        May look at the host (files, cpu count) but not wait for the network.
        """
        ...

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        """Make a sandbox, not started. Raises Conflict when the name is taken. Leaves nothing behind on failure."""
        ...

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        """Start it. A no-op on a running one. Raises BackendError when it cannot run at all."""
        ...

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after the grace; returns when it has ended. A no-op on a stopped one."""
        ...

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        """Send the main process a signal, by name; with SIGKILL it returns when the sandbox has ended."""
        ...

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        """Freeze. Raises Unsupported where it cannot."""
        ...

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        """Thaw."""
        ...

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        """Give another name; the id stays."""
        ...

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        """Remove it and all that is kept of it. Raises Conflict where it runs and not ``force``; NotFound when gone."""
        ...

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Bring the live-editable fields of a sandbox to ``spec``; the caller has planned that only those differ."""
        ...

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        """Start a command beside the main process. Raises Conflict when the sandbox does not run."""
        ...

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        """Open a shell on a PTY. Raises Conflict when the sandbox does not run."""
        ...


class Provider(Protocol):
    """What an entry point of ``sandbox_console.backends`` names. Importing it imports no SDK."""

    name: ClassVar[str]

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend for each host that the settings name. Raises ConfigError for an option it does not know."""
        ...
