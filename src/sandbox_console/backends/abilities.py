"""What a backend may offer beyond ``base.Backend``: small protocols, each announced by a capability.

A backend that has a capability has its methods; one that lacks it gives the reason in its Capabilities. Errors, permits
and cancellation work as in ``base``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from sandbox_console.backends import base
from sandbox_console.backends.base import Process, Progress, Secrets
from sandbox_console.errors import Unsupported
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.guest import FileInfo, GuestEvent, GuestProcess, PathChange
from sandbox_console.model.image import Image, Prunable, Snapshot
from sandbox_console.model.sandbox import Diagnosis, Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

T = TypeVar("T")


def able(backend: base.Backend, ability: type[T], capability: Capability) -> T:
    """Return the backend, typed as one with ``ability``. Raises Unsupported with the backend's reason."""
    capabilities = backend.capabilities()
    if capabilities.has(capability) and isinstance(backend, ability):
        return backend
    raise Unsupported(f"{capability} is unsupported on {backend.name}: {capabilities.reason(capability)}")


@runtime_checkable
class Diagnosable(Protocol):
    """Needs no capability: a backend with nothing to check does not have the method."""

    async def diagnose(self) -> Sequence[Diagnosis]:
        """The results of its checks of the machine that it works on. Raises nothing but CancelledError."""
        ...


class RecordEnd(Protocol):
    """Records in the audit log that a sandbox is ended for a reason in its spec."""

    async def __call__(self, ref: SandboxRef, reason: str, effect: Callable[[], Awaitable[None]] | None) -> bool:
        """Run ``effect`` between its attempt and its outcome; None if it has already run. Raises what it raises.

        A limit is enforced even if the log cannot be written. It then returns False, as the end is not on record.
        """
        ...


@runtime_checkable
class EnforcesLifetimes(Protocol):
    """Needs no capability: a backend whose time limits are enforced by a process that outlives every console."""

    async def enforce(self, engine: str, record: RecordEnd) -> None:
        """Run as that process for one engine, given by the engine's id, until there is nothing left to do."""
        ...


@runtime_checkable
class Holding(Protocol):
    """Needs no capability: a backend that can suspend the time limits of a sandbox."""

    async def hold(self, permit: Permit, ref: SandboxRef, held: bool) -> None:
        """While the sandbox is ``held``, do not end it when its time is over."""
        ...


@runtime_checkable
class ClosesPorts(Protocol):
    """Needs no capability: a backend that can close the published ports of a sandbox while it exists."""

    async def publish(self, permit: Permit, ref: SandboxRef, published: bool) -> None:
        """Close its published ports, or open them again at the same addresses.

        Raises Conflict if it does not run, BackendError if another program has taken an address.
        """
        ...


@runtime_checkable
class HasClock(Protocol):
    """Needs no capability: a backend whose host may have another clock than this machine."""

    async def clock(self) -> float | None:
        """The host's time in seconds since the epoch; None if it does not report one. Raises BackendUnreachable."""
        ...


@runtime_checkable
class EndsLostShells(Protocol):
    """Needs no capability: a backend whose shells go on when the console that opened them is killed."""

    async def end_lost_shell(self, permit: Permit, ref: SandboxRef, user: str | None, mark: str) -> None:
        """Kill what is left of the shell that was opened with ``mark``. Raises BackendUnreachable, BackendError.

        A sandbox that is gone or does not run has nothing left.
        """
        ...


@runtime_checkable
class ListsQuickly(Protocol):
    """Needs no capability: a list that is faster than ``list``, for callers that need only names and owners."""

    async def brief(self) -> Sequence[Sandbox]:
        """All its sandboxes with ref, name, status, labels and creator; the rest may be missing. Raises as ``list``."""
        ...


@runtime_checkable
class NamesFolders(Protocol):
    """Needs no capability: a backend that can name guests' folders without listing its sandboxes."""

    async def shares(self) -> Sequence[str]:
        """Folders of this machine that any sandbox's guest can write, running or not. Raises BackendUnreachable."""
        ...


@runtime_checkable
class Adopts(Protocol):
    """Needs no capability: a backend that keeps what was asked for apart from what it finds (``Sandbox.found``)."""

    async def adopt(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Take a spec for what was asked for. Changes nothing else. Raises NotFound, BackendError."""
        ...


@runtime_checkable
class Rejoins(Protocol):
    """Needs no capability: a backend whose sandboxes other tools can change in what is no field of a spec.

    ``sandbox_console.model.drift.MADE`` lists it, as networks and the restart policy, and ``LASTING`` what stays.
    """

    async def rejoin(self, permit: Permit, ref: SandboxRef) -> None:
        """Put a sandbox back on the network that it was created in, and on no other; undo the rest as well.

        Raises NotFound, BackendError.
        """
        ...


@runtime_checkable
class Bounded(Protocol):
    """Needs no capability: a backend whose live changes are limited; one without the method has no such limits."""

    async def out_of_bounds(self, ref: SandboxRef, spec: SandboxSpec) -> Mapping[str, str]:
        """The fields that cannot be changed to ``spec`` live now, with the reason and a hint. Changes nothing."""
        ...


@runtime_checkable
class Files(Protocol):
    """Capability.COPY. Guest paths are absolute; archives are tar streams (PAX or GNU, never compressed).

    Works on running sandboxes, and on stopped ones where the backend can; raises Conflict where it needs a running one.
    """

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        """The status of a path. Links are followed. Raises NotFound."""
        ...

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        """A directory's entries, sorted by name. Raises NotFound, or Conflict if it is not a directory."""
        ...

    def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncIterator[bytes]:
        """A tar of ``path`` and all below it. Its first member is named by the last component; links stay links."""
        ...

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar into the directory ``path``. Raises NotFound if it is missing; no member can leave ``path``."""
        ...


@runtime_checkable
class Connects(Protocol):
    """Needs no capability: a backend that reaches the ports of a sandbox without a program of its image."""

    async def connect(self, permit: Permit, ref: SandboxRef, port: int) -> Process:
        """Connect to a port inside. What is written goes to it, its answers are the output, its end is an exit.

        Raises Conflict if the sandbox does not run. A port where nothing listens ends with a code that is not 0.
        """
        ...


@runtime_checkable
class Processes(Protocol):
    """Capability.PROCESSES."""

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        """The processes that are running in it. Raises Conflict if the sandbox is not running."""
        ...


@runtime_checkable
class Changes(Protocol):
    """Capability.DIFF."""

    async def changes(self, ref: SandboxRef) -> Sequence[PathChange]:
        """The differences between its root and its image."""
        ...


@runtime_checkable
class Raw(Protocol):
    """Capability.RAW."""

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        """The provider's own description; the adapter masks the values of environment variables and secrets."""
        ...


@runtime_checkable
class GuestEvents(Protocol):
    """Capability.EVENTS."""

    def guest_events(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[GuestEvent]:
        """What happened to it, oldest first; with ``follow``, for as long as the caller iterates."""
        ...


@runtime_checkable
class Attachable(Protocol):
    """Capability.ATTACH."""

    async def attach(self, permit: Permit, ref: SandboxRef) -> Process:
        """The main process's streams from now on. ``kill`` and closing only detach: the process goes on."""
        ...


@runtime_checkable
class OnTerminal(Protocol):
    """What ``Attachable.attach`` may return: a Process that knows its streams. Any other has pipes and no stdin."""

    tty: bool
    """Whether its streams are a single terminal."""
    takes_input: bool
    """Whether it reads what is written to it."""

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of its terminal; does nothing if it has none."""
        ...


@runtime_checkable
class Committing(Protocol):
    """Capability.COMMIT."""

    async def commit(self, permit: Permit, ref: SandboxRef, image: str) -> str:
        """Make an image called ``image`` of its root; returns the image's id. It must contain no secret's value."""
        ...


@runtime_checkable
class Images(Protocol):
    """Capability.IMAGES; ``load_image`` and ``save_image`` also need Capability.IMAGE_FILES."""

    async def images(self) -> Sequence[Image]:
        """All images that the backend has."""
        ...

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        """Pull an image from its registry; returns its id. Cancelling ends the transfer."""
        ...

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        """Remove an image, or one of its names. Raises Conflict if a sandbox uses it, unless ``force``."""
        ...

    async def prunable_images(self, unused: bool) -> Prunable:
        """What ``prune_images`` would remove: images without a name; with ``unused``, all that no sandbox uses."""
        ...

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        """Remove them; returns what was removed."""
        ...

    async def load_image(self, permit: Permit, archive: AsyncIterator[bytes]) -> str:
        """Load an image from an archive that ``save_image`` wrote; returns its name."""
        ...

    def save_image(self, permit: Permit, name: str) -> AsyncIterator[bytes]:
        """An image as an archive."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """Capability.SNAPSHOT; ``fork`` needs Capability.FORK."""

    async def snapshots(self) -> Sequence[Snapshot]:
        """All snapshots of the backend."""
        ...

    async def take_snapshot(self, permit: Permit, ref: SandboxRef, name: str, full: bool) -> Snapshot:
        """Save a sandbox's state."""
        ...

    async def restore_snapshot(self, permit: Permit, snapshot: str, name: str, secrets: Secrets) -> SandboxRef:
        """Make a running sandbox called ``name`` from a snapshot."""
        ...

    async def remove_snapshot(self, permit: Permit, snapshot: str) -> None:
        """Remove a snapshot. Raises Conflict if others are built on it."""
        ...

    async def fork(self, permit: Permit, ref: SandboxRef, name: str, secrets: Secrets) -> SandboxRef:
        """Make a running copy called ``name`` of a running sandbox."""
        ...


@runtime_checkable
class Egress(Protocol):
    """Capability.EGRESS_ALLOWLIST: traffic leaves a sandbox through a gateway, which applies rules.

    ``set_egress`` is Capability.EGRESS_UPDATE. ``egress_records`` also exists without Capability.EGRESS_RECORDS, and
    then reports only some of the decisions.
    """

    async def egress(self, ref: SandboxRef) -> EgressState:
        """The rules in force, and whether the gateway answers."""
        ...

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        """Put rules in force without a restart, and store them with the sandbox.

        Tunnels that are no longer allowed are cut.

        Raises Unsupported for a sandbox that was made without a gateway.
        """
        ...

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        """Ask the running gateway, from inside the sandbox, what it would decide now; nothing is connected."""
        ...

    def egress_records(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[EgressRecord]:
        """Recorded decisions, oldest first; with ``follow``, for as long as the caller iterates."""
        ...


@runtime_checkable
class EgressFiles(Protocol):
    """Besides Egress: a backend whose records are files of this machine, as ``egress.records`` writes them.

    One watch then follows the records of all sandboxes; without it each sandbox is followed on its own.
    """

    async def egress_folder(self, ref: SandboxRef) -> Path | None:
        """The folder of a sandbox's records, which may not exist yet; None if it has no gateway."""
        ...
