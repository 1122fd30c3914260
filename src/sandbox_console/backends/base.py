"""The protocols that a backend implements. Methods that change something take a Permit; others do not.

A guest command's failure is a result; a provider's failure is one of ``sandbox_console.errors``.
``asyncio.CancelledError`` is never swallowed. Nothing here cleans text: ids, names and output are passed on as they
are, and each interface cleans what it shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from sandbox_console.errors import SecretError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.log import LogItem, LogQuery, Stream
from sandbox_console.model.sandbox import BackendHealth, Exit, Sandbox, SandboxRef, Stats
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

Secrets = Sequence[ResolvedSecret]
Progress = Callable[[str], None]


ReadKey = Callable[[str], Awaitable[str]]
"""Returns the value of a ``[secrets.NAME]`` table, which is masked in all output from then on. Raises SecretError."""


async def _no_key(name: str) -> str:
    raise SecretError(f"secret {name!r} is not defined", hint=f"add a [secrets.{name}] table to the config")


class BackendSettings(Struct, frozen=True):
    """The settings of a provider: a folder of its own (0700, created on first use) and its config table.

    ``guests`` reads which folders of this machine guests can change, as far as is known without asking backends.
    ``key`` reads the key of a server, by the name of its secret; a backend asks for it when it first needs it. ``mask``
    hides a key that comes from elsewhere in all output.
    """

    state_dir: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    guests: Callable[[], GuestFolders] = GuestFolders
    key: ReadKey = _no_key
    mask: Callable[[str], object] = len


@runtime_checkable
class Process(Protocol):
    """A command that runs in a sandbox.

    A process that knows its pid has it as ``pid`` once it has ended: the pid inside the sandbox if known, else the one
    on the backend's host.
    """

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Chunks as they come, until both streams end. If nobody reads, the guest is held back, never the loop."""
        ...

    async def write(self, data: bytes) -> None:
        """Write bytes to stdin; returns when they are accepted. A guest that closed its stdin is not an error."""
        ...

    async def close_stdin(self) -> None:
        """End stdin."""
        ...

    async def wait(self) -> Exit:
        """Wait for its end; returns how it ended. 126: not executable; 127: not found; 128 + n: killed by signal n."""
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
        """Send bytes as typed input."""
        ...

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the PTY."""
        ...

    async def wait(self) -> Exit:
        """Wait for the shell's end; returns how it ended."""
        ...

    async def close(self) -> None:
        """Hang up, then kill what is left of the shell's process tree. Safe to call twice."""
        ...


class PassedShell(Struct, frozen=True, kw_only=True):
    """What another process needs to hold a shell. The ``files`` are duplicates that the receiver closes.

    A ``pty`` is its master and the socket on which its end is reported. An ``engine``'s shell is a connection,
    with the engine's socket and the id of the exec. ``pending`` is what was read and not shown.
    """

    kind: Literal["pty", "engine"]
    files: tuple[int, ...]
    pending: bytes = b""
    engine: str = ""
    exec: str = ""


@runtime_checkable
class PassableTerminal(Terminal, Protocol):
    """A terminal that another process can hold. A backend with ``shell.keep`` returns such terminals."""

    def passed(self) -> PassedShell:
        """Stop reading, and return what the other process needs."""
        ...

    def release(self) -> None:
        """Close this process's end. The shell goes on, as another process has the files."""
        ...


@runtime_checkable
class Backend(Protocol):
    """One backend on one host. ``ref.backend == name`` and ``ref.host == host`` for everything it lists."""

    name: str
    host: str

    async def open(self) -> None:
        """Prepare. Never raises because the provider is down: health() reports that."""
        ...

    async def close(self) -> None:
        """Release sockets and tasks. Sandboxes stay as they are."""
        ...

    def capabilities(self) -> Capabilities:
        """What it can do here, as far as is known after open(); cheap to call."""
        ...

    async def health(self) -> BackendHealth:
        """Check whether the provider answers. Raises nothing but CancelledError."""
        ...

    async def list(self) -> list[Sandbox]:
        """All its sandboxes in every state, including those of others.

        Raises BackendUnreachable if it is down; it never returns an empty list then.
        """
        ...

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One sandbox in its current state. Raises NotFound."""
        ...

    def watch(self) -> AsyncIterator[BackendEvent]:
        """First Listed and HealthChanged, then each change, for as long as the caller iterates.

        It reconnects by itself, with back-off; after each reconnect it sends a HealthChanged and a Listed.
        """
        ...

    def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        """Batches of the main process's output, oldest first; within a stream, in the order written."""
        ...

    def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        """A sample about every ``interval_s`` seconds until the sandbox stops."""
        ...

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        """Problems that this backend has with the values, by field, such as a missing image or too many cpus.

        It may check the host (files, cpu count) but must not wait for the network.
        """
        ...

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        """Create a sandbox, not started. Raises Conflict if the name is taken. Leaves nothing behind on failure."""
        ...

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        """Start it. Does nothing if it is running. Raises BackendError if it cannot run at all."""
        ...

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        """Send SIGTERM, then SIGKILL after the grace, and wait for its end. Does nothing if it is stopped."""
        ...

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        """Send the main process a signal by name; with SIGKILL, returns when the sandbox has ended."""
        ...

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        """Pause it. Raises Unsupported if that is not possible."""
        ...

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        """Resume it."""
        ...

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        """Rename it; the id stays."""
        ...

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        """Remove it with all its data. Raises Conflict if it is running, unless ``force``; NotFound if it is gone."""
        ...

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Change the live-editable fields of a sandbox to ``spec``. The caller makes sure that only those differ."""
        ...

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        """Start a command beside the main process. Raises Conflict if the sandbox is not running."""
        ...

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        """Open a shell on a PTY. Raises Conflict if the sandbox is not running."""
        ...


class Provider(Protocol):
    """What an entry point of ``sandbox_console.backends`` refers to. Importing it imports no SDK."""

    name: ClassVar[str]

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend for each host in the settings. Raises ConfigError for an unknown option."""
        ...
