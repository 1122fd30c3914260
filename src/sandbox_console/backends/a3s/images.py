"""Images and snapshots of a runtime of A3S Box."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.a3s.client import Client, Place
from sandbox_console.backends.a3s.translate import BACKEND, GENERATION, restored, seconds
from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common.ledger import Entry, Ledger
from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.unsupported import UnchangedImages
from sandbox_console.errors import Conflict, NotFound, Unsupported, UsageError
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capability
from sandbox_console.model.image import Image, Prunable, Snapshot, tagged
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from a3s_box import AsyncSandbox, FilesystemSnapshotSummary, ImageInfo

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)


class A3sImages(UnchangedImages):
    """The part of the backend that is about images and snapshots."""

    host: str
    _client: Client
    _ledger: Ledger

    @abstractmethod
    async def list(self) -> list[Sandbox]: ...

    @abstractmethod
    async def _fence(self, ref: SandboxRef) -> Place: ...

    @abstractmethod
    async def _running(self, ref: SandboxRef) -> str: ...

    @abstractmethod
    async def _make_box(self, spec: SandboxSpec, snapshot: str = "") -> AsyncSandbox: ...

    async def images(self) -> Sequence[Image]:
        """All images that the runtime has. It stores one under each of its names."""
        found = await self._client.call("images", self._client.sdk().list_images())
        used = [tagged(one.image) for one in await self.list()]
        return [self._image(one, used) for one in found]

    def _image(self, one: ImageInfo, used: Sequence[str]) -> Image:
        return Image(
            BACKEND, self.host, one.digest or one.reference, (one.reference,), one.digest, one.size_bytes,
            seconds(one.pulled_at), used.count(tagged(one.reference)),
        )  # fmt: skip

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        need(permit)
        progress(f"pulling {name}")
        return (await self._client.call("pull", self._client.sdk().pull_image(name))).digest

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        need(permit)
        for one in await self.images():
            if name in (one.id, *one.names) or tagged(name) in map(tagged, one.names):
                if one.used_by and not force:
                    raise Conflict(f"image {name} is used by {one.used_by} sandboxes", hint="remove those first")
                await self._client.call("remove image", self._client.sdk().remove_image(one.names[0]))
                return
        raise NotFound(f"{self._client.label} has no image {name}", hint="sandbox-console images ls")

    async def prunable_images(self, unused: bool) -> Prunable:
        """An image of the runtime always has a name, so there are some only with ``unused``."""
        found = tuple(one for one in await self.images() if unused and not one.used_by)
        return Prunable(found, sum(one.size_bytes or 0 for one in found))

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        need(permit)
        found = await self.prunable_images(unused)
        for one in found.images:
            await self._client.call("remove image", self._client.sdk().remove_image(one.names[0]))
        return found

    async def snapshots(self) -> Sequence[Snapshot]:
        found = await self._client.call("snapshots", self._client.sdk().list_filesystem_snapshots())
        return [self._snapshot(one) for one in found]

    def _snapshot(self, one: FilesystemSnapshotSummary) -> Snapshot:
        source = one.source_sandbox_id
        return Snapshot(BACKEND, self.host, one.id, source, seconds(one.created_at), one.size_bytes)

    async def take_snapshot(self, permit: Permit, ref: SandboxRef, name: str, full: bool) -> Snapshot:
        """Save its files. The runtime saves no memory, so ``full`` is refused."""
        need(permit)
        if full:
            raise Unsupported("A3S Box saves the files of a sandbox, not its memory", hint="leave out --full")
        if not _NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a name for a snapshot", hint="up to 100 letters, digits, - _ .")
        await self._running(ref)
        if any(one.name == name for one in await self.snapshots()):
            raise Conflict(f"a snapshot called {name!r} exists already")
        box = await self._client.box(await self._fence(ref))
        await self._client.call("snapshot", box.create_filesystem_snapshot(name))
        return next((one for one in await self.snapshots() if one.name == name), Snapshot(BACKEND, self.host, name))

    async def restore_snapshot(self, permit: Permit, snapshot: str, name: str, secrets: Secrets) -> SandboxRef:  # noqa: ARG002 - as for create
        need(permit)
        found = await self._client.call("snapshot", self._client.sdk().get_filesystem_snapshot(snapshot))
        if found is None:
            raise _no_snapshot(snapshot)
        if any(one.name == name for one in await self.list()):
            raise name_taken(name)
        source = [one for one in (await self._ledger.every()).values() if one.place == found.source_sandbox_id]
        spec = restored(name, found, source[0].spec if source else None)
        made = await self._make_box(spec, snapshot)
        return await self._restored(spec, made)

    async def _restored(self, spec: SandboxSpec, made: Any) -> SandboxRef:
        import secrets
        import time

        now, id_ = time.time(), f"own-{secrets.token_hex(8)}"
        more = {GENERATION: str(made.generation)}
        await self._ledger.put(Entry(id_, made.id, spec.to_dict(), now, started_at=now, more=more))
        return SandboxRef(BACKEND, self.host, id_)

    async def remove_snapshot(self, permit: Permit, snapshot: str) -> None:
        from a3s_box import AsyncSandbox

        need(permit)
        asked = AsyncSandbox.delete_filesystem_snapshot(snapshot, runtime=self._client.runtime())
        if not await self._client.call("remove snapshot", asked):
            raise _no_snapshot(snapshot)

    async def fork(self, permit: Permit, ref: SandboxRef, name: str, secrets: Secrets) -> SandboxRef:  # noqa: ARG002 - as above
        raise self._refused(permit, Capability.FORK)


def _no_snapshot(name: str) -> NotFound:
    return NotFound(f"there is no snapshot called {name!r}", hint="sandbox-console snapshots ls")
