"""Reads that go deeper than the list: files, processes, changes, events, images, snapshots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from msgspec import structs

from sandbox_console.backends.abilities import (
    Changes,
    Files,
    GuestEvents,
    HasClock,
    Images,
    Processes,
    Raw,
    Snapshots,
    able,
)
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.access import access
from sandbox_console.model.capability import Capability
from sandbox_console.model.guest import FileInfo, FileKind, GuestEvent, GuestProcess, PathChange
from sandbox_console.model.image import Image, Prunable, Snapshot
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.shells import SHELLS, distinct
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.gate.redaction import masked
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet

T = TypeVar("T")
_CLOCKS_ALIKE_S = 0.5


async def _executable(backend: Files, ref: SandboxRef, path: str) -> bool:
    """Return whether a path is there and no folder. What a link points to is not followed."""
    try:
        info = await backend.stat(ref, path)
    except NotFound:
        return False
    return info.kind is not FileKind.DIRECTORY and (info.kind is FileKind.LINK or bool(info.mode & 0o111))


class Inspection:
    """What a backend can report beyond its list. Each read raises Unsupported, with the reason, if it cannot."""

    def __init__(self, fleet: Fleet, vault: Vault) -> None:
        self._fleet = fleet
        self._vault = vault

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        """The status of a path in a sandbox. Raises NotFound."""
        return await (await self._able(ref, Files, Capability.COPY)).stat(ref, path)

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        """A directory's entries. Raises NotFound, Conflict."""
        return await (await self._able(ref, Files, Capability.COPY)).list_dir(ref, path)

    async def shells(self, ref: SandboxRef) -> Sequence[str]:
        """The shells in a sandbox, the best first. Raises Unsupported, Conflict if it cannot be asked."""
        backend = await self._able(ref, Files, Capability.COPY)
        found = await asyncio.gather(*(_executable(backend, ref, path) for path in SHELLS))
        return distinct(path for path, there in zip(SHELLS, found, strict=True) if there)

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        """The processes that are running in a sandbox, with known secrets masked in their commands."""
        mask = await self.mask(ref)
        guest_processes = await (await self._able(ref, Processes, Capability.PROCESSES)).processes(ref)
        return [structs.replace(process, command=mask(process.command)) for process in guest_processes]

    async def changes(self, ref: SandboxRef) -> Sequence[PathChange]:
        """How a sandbox's root differs from its image, with known secrets masked in the paths."""
        mask = await self.mask(ref)
        path_changes = await (await self._able(ref, Changes, Capability.DIFF)).changes(ref)
        return [structs.replace(change, path=mask(change.path)) for change in path_changes]

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        """The provider's own description, with known secrets masked."""
        mask = await self.mask(ref)
        found: Mapping[str, Any] = masked(await (await self._able(ref, Raw, Capability.RAW)).raw(ref), mask)
        return found

    async def guest_events(
        self, ref: SandboxRef, *, since: float | None = None, follow: bool = False
    ) -> AsyncIterator[GuestEvent]:
        """The backend's events of a sandbox, oldest first, with known secrets masked."""
        mask = await self.mask(ref)
        backend = await self._able(ref, GuestEvents, Capability.EVENTS)
        async with aclosing(backend.guest_events(ref, since=since, follow=follow)) as events:  # type: ignore[type-var]
            async for event in events:
                yield structs.replace(
                    event,
                    detail=mask(event.detail),
                    attributes={key: mask(word) for key, word in event.attributes.items()},
                )

    async def clock_difference(self, backend: str, host: str) -> float:
        """How far a host's clock is ahead of this machine's, in seconds; 0 within what the way there takes.

        Raises BackendUnreachable.
        """
        found = await self._fleet.use(backend, host)
        if not isinstance(found, HasClock):
            return 0.0
        began, steady = time.time(), time.monotonic()
        there = await found.clock()
        took = time.monotonic() - steady
        ahead = 0.0 if there is None else there - began - took / 2
        return ahead if abs(ahead) > took / 2 + _CLOCKS_ALIKE_S else 0.0

    async def images(self, backend: str, host: str) -> Sequence[Image]:
        """The images that a backend has."""
        return await (await self._on(backend, host, Images, Capability.IMAGES)).images()

    async def prunable_images(self, backend: str, host: str, *, unused: bool) -> Prunable:
        """What a prune would remove."""
        return await (await self._on(backend, host, Images, Capability.IMAGES_CHANGE)).prunable_images(unused)

    async def snapshots(self, backend: str, host: str) -> Sequence[Snapshot]:
        """The snapshots that a backend has. They tell no labels, so who sees only some sandboxes sees none of them."""
        if access().labels:
            return ()
        return await (await self._on(backend, host, Snapshots, Capability.SNAPSHOT)).snapshots()

    async def snapshot(self, backend: str, host: str, name: str) -> Snapshot | None:
        """The snapshot of this name; None if there is none, or if the backend has no snapshots."""
        try:
            return next((one for one in await self.snapshots(backend, host) if one.name == name), None)
        except Unsupported:
            return None

    async def mask(self, ref: SandboxRef) -> Callable[[str], str]:
        """A mask for known secrets, including those of the sandbox."""
        return (await self.redactor(ref)).text

    async def redactor(self, ref: SandboxRef) -> Redactor:
        """A redactor for known secrets, including those of the sandbox, for output that arrives in parts."""
        await self._vault.learn_plain()
        with suppress(NotFound):  # the read itself reports that
            sandbox = await (await self._fleet.use(ref.backend, ref.host)).inspect(ref)
            await self._vault.learn(sandbox.spec.secrets if sandbox.spec else ())
        return self._vault.redactor

    async def _able(self, ref: SandboxRef, ability: type[T], capability: Capability) -> T:
        return await self._on(ref.backend, ref.host, ability, capability)

    async def _on(self, backend: str, host: str, ability: type[T], capability: Capability) -> T:
        return able(await self._fleet.use(backend, host), ability, capability)
