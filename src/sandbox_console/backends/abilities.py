"""What a backend may offer beyond ``base.Backend``: small protocols, each announced by a capability.

A backend that has the capability has the methods; one that has not says why in its Capabilities.
Errors, permits and cancellation are as in ``base``.
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
from sandbox_console.model.guest import FileInfo, GuestProcess, Happening, PathChange
from sandbox_console.model.image import Image, Prunable, Snapshot
from sandbox_console.model.sandbox import Diagnosis, Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

T = TypeVar("T")


def able(backend: base.Backend, ability: type[T], capability: Capability) -> T:
    """The backend as one that has ``ability``. Raises Unsupported with the backend's reason."""
    capabilities = backend.capabilities()
    if capabilities.has(capability) and isinstance(backend, ability):
        return backend
    raise Unsupported(f"{capability} is unsupported on {backend.name}: {capabilities.reason(capability)}")


@runtime_checkable
class Diagnosable(Protocol):
    """No capability: a backend that has nothing to look at lacks the method."""

    async def diagnose(self) -> Sequence[Diagnosis]:
        """What it finds on the machine it works on. Raises nothing but CancelledError."""
        ...


class RecordEnd(Protocol):
    """Puts on record that a sandbox is ended for a reason of its spec."""

    async def __call__(self, ref: SandboxRef, why: str, effect: Callable[[], Awaitable[None]] | None) -> bool:
        """Make ``effect`` between its attempt and its outcome; None where it was made before. Raises what it raises.

        A limit holds also while the log cannot be written: False tells that it is not on record.
        """
        ...


@runtime_checkable
class EnforcesLifetimes(Protocol):
    """No capability: a backend that ends sandboxes whose time ran out in a process beside every console."""

    async def keep(self, engine: str, record: RecordEnd) -> None:
        """Be that process for one engine, by its own id, until nothing is left to keep."""
        ...


@runtime_checkable
class Holding(Protocol):
    """No capability: a backend that can make the time limits of a sandbox wait."""

    async def hold(self, permit: Permit, ref: SandboxRef, held: bool) -> None:
        """Do not end it when its time has passed, for as long as it is ``held``."""
        ...


@runtime_checkable
class ListsQuickly(Protocol):
    """No capability: a backend that can list quicker than ``list`` does, which names need no details for."""

    async def brief(self) -> Sequence[Sandbox]:
        """All its sandboxes, with ref, name, status and who made them; the rest may be missing. Raises as ``list``."""
        ...


@runtime_checkable
class NamesFolders(Protocol):
    """No capability: a backend that can name its guests' folders sooner than its sandboxes; else those are listed."""

    async def shares(self) -> Sequence[str]:
        """Folders of this machine that a guest of any sandbox, running or not, can write. Raises BackendUnreachable."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """No capability: a backend whose live changes have bounds; one without the method has none."""

    async def out_of_bounds(self, ref: SandboxRef, spec: SandboxSpec) -> Mapping[str, str]:
        """Fields that cannot be brought to ``spec`` live as things are, with why and what to do. It changes nothing."""
        ...


@runtime_checkable
class Files(Protocol):
    """Capability.COPY. Guest paths are absolute; archives are tar streams (PAX or GNU, never compressed).

    Works on running and stopped sandboxes where the backend can; raises Conflict where it needs a running one.
    """

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        """One path, links followed. Raises NotFound."""
        ...

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        """A directory's entries by name. Raises NotFound, or Conflict where it is no directory."""
        ...

    def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncIterator[bytes]:
        """A tar of ``path`` whose first member is its last component, a link as such; a directory with all below it."""
        ...

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar into the directory ``path``. Raises NotFound where it is missing; no member leaves ``path``."""
        ...


@runtime_checkable
class Processes(Protocol):
    """Capability.PROCESSES."""

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        """What runs in it now. Raises Conflict when the sandbox does not run."""
        ...


@runtime_checkable
class Changes(Protocol):
    """Capability.DIFF."""

    async def changes(self, ref: SandboxRef) -> Sequence[PathChange]:
        """How its root differs from its image."""
        ...


@runtime_checkable
class Raw(Protocol):
    """Capability.RAW."""

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        """The provider's own description; values of environment variables and secrets are masked by the adapter."""
        ...


@runtime_checkable
class Happenings(Protocol):
    """Capability.EVENTS."""

    def happenings(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[Happening]:
        """What happened to it, oldest first; with ``follow`` for as long as it is iterated."""
        ...


@runtime_checkable
class Attachable(Protocol):
    """Capability.ATTACH."""

    async def attach(self, permit: Permit, ref: SandboxRef) -> Process:
        """The main process's streams from now on. ``kill`` and closing let go of it: the process lives on."""
        ...


@runtime_checkable
class OnTerminal(Protocol):
    """What ``Attachable.attach`` may give: a Process that knows what its streams are. Without it: pipes, no stdin."""

    tty: bool
    """Whether its streams are one terminal."""
    takes_input: bool
    """Whether what is written to it is read."""

    async def resize(self, cols: int, rows: int) -> None:
        """Tell its terminal the size; nothing where it has none."""
        ...


@runtime_checkable
class Committing(Protocol):
    """Capability.COMMIT."""

    async def commit(self, permit: Permit, ref: SandboxRef, image: str) -> str:
        """Make an image of its root, called ``image``; gives the image's id. No secret's value may be in it."""
        ...


@runtime_checkable
class Images(Protocol):
    """Capability.IMAGES; ``load_image`` and ``save_image`` also need Capability.IMAGE_FILES."""

    async def images(self) -> Sequence[Image]:
        """All images that the backend has."""
        ...

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        """Get an image from its registry; gives its id. Cancelling ends the transfer."""
        ...

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        """Remove an image, or a name of it. Raises Conflict where a sandbox uses it and not ``force``."""
        ...

    async def prunable_images(self, unused: bool) -> Prunable:
        """What ``prune_images`` would remove: images without a name, with ``unused`` all that no sandbox uses."""
        ...

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        """Remove them; tells what was removed."""
        ...

    async def load_image(self, permit: Permit, archive: AsyncIterator[bytes]) -> str:
        """Take an image from an archive as ``save_image`` writes it; gives its name."""
        ...

    def save_image(self, permit: Permit, name: str) -> AsyncIterator[bytes]:
        """An image as an archive."""
        ...


@runtime_checkable
class Snapshots(Protocol):
    """Capability.SNAPSHOT; ``fork`` needs Capability.FORK."""

    async def snapshots(self) -> Sequence[Snapshot]:
        """All snapshots that the backend keeps."""
        ...

    async def take_snapshot(self, permit: Permit, ref: SandboxRef, name: str, full: bool) -> Snapshot:
        """Save a sandbox's state."""
        ...

    async def restore_snapshot(self, permit: Permit, snapshot: str, name: str, secrets: Secrets) -> SandboxRef:
        """Make a sandbox called ``name`` from a snapshot, running."""
        ...

    async def remove_snapshot(self, permit: Permit, snapshot: str) -> None:
        """Remove a snapshot. Raises Conflict where others are built on it."""
        ...

    async def fork(self, permit: Permit, ref: SandboxRef, name: str, secrets: Secrets) -> SandboxRef:
        """Make a running copy called ``name`` of a running sandbox."""
        ...


@runtime_checkable
class Egress(Protocol):
    """Capability.EGRESS_ALLOWLIST: what leaves a sandbox goes through a gateway by rules.

    ``set_egress`` is Capability.EGRESS_UPDATE. ``egress_records`` is there without Capability.EGRESS_RECORDS, too, and
    then tells of less than every decision.
    """

    async def egress(self, ref: SandboxRef) -> EgressState:
        """The rules in force, and whether the gateway answers."""
        ...

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        """Put rules in force, without a restart; tunnels that they no longer allow are cut. Kept with the sandbox.

        Raises Unsupported for a sandbox that was made without a gateway.
        """
        ...

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        """Ask the running gateway, over the sandbox's own door to it, what it decides now; nothing is connected."""
        ...

    def egress_records(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[EgressRecord]:
        """Decisions on record, oldest first; with ``follow`` for as long as it is iterated."""
        ...


@runtime_checkable
class EgressFiles(Protocol):
    """Beside Egress, where the records are files of this machine, as ``egress.records`` writes them.

    The records of all sandboxes are then followed by one watch; without it each is asked in turn.
    """

    async def egress_folder(self, ref: SandboxRef) -> Path | None:
        """The folder of a sandbox's records, which may not be there yet; None where it has no gateway."""
        ...
