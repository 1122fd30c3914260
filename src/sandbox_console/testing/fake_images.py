"""Images and snapshots of a fake backend, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from msgspec import structs

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.errors import Conflict, NotFound, UsageError
from sandbox_console.model.action import Permit
from sandbox_console.model.image import Image, Prunable, Snapshot
from sandbox_console.model.ports import freed
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.fake_core import FakeCore, FakeImageStore, image_id
from sandbox_console.testing.fake_files import Tree

_MAGIC = b"fake-image\n"
_LAYERS = 3


class FakeImages(FakeCore):
    """``Committing``, ``Images`` and ``Snapshots``."""

    async def commit(self, permit: Permit, ref: SandboxRef, image: str) -> str:
        await self._meet(permit, "commit")
        self._get(ref)
        return self._have(image, self._tree(ref.id).copy()).id

    async def images(self) -> Sequence[Image]:
        await self.faults.meet("images")
        return [structs.replace(image, used_by=len(self._users(image))) for image in self._images.values()]

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        """Pull an image. A name that ends in ``:missing`` does not exist, as if no registry had it."""
        await self._meet(permit, "pull_image")
        if name.endswith(":missing"):
            raise NotFound(f"no registry has {name}", hint="look at the name and the tag")
        for layer in range(1, _LAYERS + 1):
            progress(f"layer {layer} of {_LAYERS}: done")
            await asyncio.sleep(0)
        return self._have(name).id

    async def remove_image(self, permit: Permit, name: str, force: bool) -> None:
        await self._meet(permit, "remove_image")
        image = self._image(name)
        if (users := self._users(image)) and not force:
            raise Conflict(f"{name} is used by {', '.join(users)}", hint="remove those first, or use --force")
        rest = tuple(one for one in image.names if one != name)
        if rest and name != image.id:
            self._images[image.id] = structs.replace(image, names=rest)
        else:
            del self._images[image.id]

    async def prunable_images(self, unused: bool) -> Prunable:
        await self.faults.meet("prunable_images")
        free = [image for image in self._images.values() if not self._users(image) and (unused or not image.names)]
        return Prunable(tuple(free), sum(image.size_bytes or 0 for image in free))

    async def prune_images(self, permit: Permit, unused: bool) -> Prunable:
        await self._meet(permit, "prune_images")
        gone = await self.prunable_images(unused)
        for image in gone.images:
            del self._images[image.id]
        return gone

    async def load_image(self, permit: Permit, archive: AsyncIterator[bytes]) -> str:
        await self._meet(permit, "load_image")
        found = bytearray()
        async for chunk in archive:
            found += chunk
        magic, _, rest = bytes(found).partition(b"\n")
        if magic + b"\n" != _MAGIC:
            raise UsageError("this is not an archive of an image", hint="make it with images save")
        name, _, packed = rest.partition(b"\n")
        tree = Tree(at=self._clock())
        tree.unpack("/", packed)
        self._have(name.decode(), tree)
        return name.decode()

    async def save_image(self, permit: Permit, name: str) -> AsyncIterator[bytes]:
        await self._meet(permit, "save_image")
        image = self._image(name)
        yield _MAGIC + name.encode() + b"\n"
        for chunk in self._image_trees.get(image.id, Tree()).pack("/"):
            yield chunk

    async def snapshots(self) -> Sequence[Snapshot]:
        await self.faults.meet("snapshots")
        return [one.snapshot for one in self._snapshots.values()]

    async def take_snapshot(self, permit: Permit, ref: SandboxRef, name: str, full: bool) -> Snapshot:
        await self._meet(permit, "take_snapshot")
        sandbox = self._get(ref)
        if name in self._snapshots:
            raise Conflict(f"a snapshot is called {name!r} already", hint="choose another name, or remove that one")
        tree = self._tree(ref.id).copy()
        spec = sandbox.spec or SandboxSpec(sandbox.name)
        snapshot = Snapshot(
            self.name, self.host, name, sandbox.name, self._clock(), tree.size, full, spec.secrets, spec.workspace or ""
        )
        self._snapshots[name] = FakeImageStore(snapshot, sandbox, tree)
        return snapshot

    async def restore_snapshot(self, permit: Permit, snapshot: str, name: str, secrets: Secrets) -> SandboxRef:  # noqa: ARG002
        await self._meet(permit, "restore_snapshot")
        kept = self._kept(snapshot)
        if kept.sandbox is None or kept.tree is None:
            raise Conflict(f"the snapshot {snapshot!r} holds nothing to restore")
        return await self._copy(kept.sandbox, kept.tree, name)

    async def remove_snapshot(self, permit: Permit, snapshot: str) -> None:
        await self._meet(permit, "remove_snapshot")
        self._kept(snapshot)
        del self._snapshots[snapshot]

    async def fork(self, permit: Permit, ref: SandboxRef, name: str, secrets: Secrets) -> SandboxRef:  # noqa: ARG002
        await self._meet(permit, "fork")
        return await self._copy(self._require(ref, Status.RUNNING), self._tree(ref.id), name)

    async def _copy(self, sandbox: Sandbox, tree: Tree, name: str) -> SandboxRef:
        self._free(name)
        ref = SandboxRef(self.name, self.host, self._ids())
        asked = sandbox.spec
        spec = structs.replace(asked, name=name, ports=freed(asked.ports)) if asked else None
        now = self._clock()
        copy = Sandbox(ref, name, Status.RUNNING, sandbox.image, now, now, labels=dict(sandbox.labels), spec=spec)
        self._trees[ref.id] = tree.copy()
        await self._put(copy)
        await self.happen(ref, "start", f"from {sandbox.name}")
        return ref

    def _kept(self, name: str) -> FakeImageStore:
        if name not in self._snapshots:
            raise NotFound(f"no snapshot is called {name!r}", hint="sandbox-console snapshot ls")
        return self._snapshots[name]

    def _image(self, name: str) -> Image:
        for image in self._images.values():
            if name in image.names or name == image.id:
                return image
        raise NotFound(f"there is no image {name}", hint="sandbox-console images ls")

    def _users(self, image: Image) -> list[str]:
        return [
            sandbox.name
            for sandbox in self.sandboxes.values()
            if sandbox.image in image.names or image_id(sandbox.image) == image.id
        ]
