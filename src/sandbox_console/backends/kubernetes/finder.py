"""Finds the object behind a reference, and reads it as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import structs

from sandbox_console.backends.kubernetes import claims, lists, objects
from sandbox_console.backends.kubernetes.causes import containers_of
from sandbox_console.backends.kubernetes.claims import CLAIMS, EXTENSIONS, Claim
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.inventory import Inventory, Target, box_of
from sandbox_console.backends.kubernetes.objects import Box, Pod
from sandbox_console.errors import BackendError, NotFound
from sandbox_console.model.sandbox import Sandbox, SandboxRef

T = TypeVar("T")

POD_NAME = "agents.x-k8s.io/pod-name"
"""The annotation with the name of a Pod that came from a warm pool; any other has the Sandbox's name."""


class Finder:
    """The rows of one backend."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        self._cluster = cluster
        self.inventory = inventory

    async def list(self) -> list[Sandbox]:
        """All rows, read now. Raises BackendUnreachable, Forbidden."""
        found = await lists.read(self._cluster)
        self.inventory.replace(found.boxes, found.tracked, found.selected, found.claims)
        return await asyncio.to_thread(self.inventory.rows)

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One row, read now. Raises NotFound."""
        return self.inventory.of(await self.target(ref))

    async def target(self, ref: SandboxRef) -> Target:
        """The objects behind a reference, read now. An object of the same name with another uid is another sandbox."""
        known = await self._known(ref)
        if known.box is None and known.claim is not None:
            return await self._claim(known.claim, ref)
        if known.box is None:
            found = Target(None, await self._pod(known.meta.name, ref, known.meta.namespace))
        else:
            box = await self._box(known, ref)
            found = Target(box, await self._pod_of(box, known.pod), known.claim)
        return structs.replace(found, container=_container(found, ref.container))

    async def _claim(self, known: Claim, ref: SandboxRef) -> Target:
        meta = known.metadata
        path = await self._cluster.extensions(CLAIMS, meta.name, namespace=meta.namespace)
        claim = await self._read(path, f"get {CLAIMS}.{EXTENSIONS} {meta.namespace}/{meta.name}", claims.claim)
        if claim.metadata.uid != ref.id:
            raise NotFound(f"claim {meta.namespace}/{meta.name} is gone; another one has its name")
        return Target(None, None, claim)

    async def _known(self, ref: SandboxRef) -> Target:
        if (target := self.inventory.target(ref.id)) is None:
            await self.list()
            target = self.inventory.target(ref.id)
        if target is None:
            raise NotFound(f"{self._cluster.scope.host} has no sandbox {ref.id}", hint="sandbox-console ls shows them")
        return target

    async def _box(self, known: Target, ref: SandboxRef) -> Box:
        meta = known.meta
        path = await self._cluster.boxes(meta.name, namespace=meta.namespace)
        box = await self._read(path, f"get sandboxes.agents.x-k8s.io {meta.namespace}/{meta.name}", objects.box)
        if box.metadata.uid != ref.id:
            raise NotFound(f"sandbox {meta.namespace}/{meta.name} is gone; another one has its name")
        return box

    async def _pod(self, name: str, ref: SandboxRef, namespace: str) -> Pod:
        path = await self._cluster.core("pods", name, namespace=namespace)
        pod = await self._read(path, f"get pods {namespace}/{name}", objects.pod)
        if pod.metadata.uid != ref.id:
            raise NotFound(f"pod {namespace}/{name} is gone; another one has its name")
        return pod

    async def _pod_of(self, box: Box, known: Pod | None) -> Pod | None:
        """The Pod of a Sandbox, read now; None if there is none."""
        names = [known.metadata.name] if known is not None else []
        names += [(box.metadata.annotations or {}).get(POD_NAME, ""), box.metadata.name]
        for name in dict.fromkeys(filter(None, names)):
            path = await self._cluster.core("pods", name, namespace=box.metadata.namespace)
            try:
                pod = await self._read(path, f"get pods {box.metadata.namespace}/{name}", objects.pod)
            except NotFound:
                continue
            if box_of(pod) == box.metadata.uid:
                return pod
        return None

    async def raw(self, ref: SandboxRef) -> tuple[bytes, bytes | None]:
        """The whole objects: of the Sandbox and its Pod, or of a Pod alone."""
        target = await self.target(ref)
        pod = await self._bytes_of_pod(target.pod) if target.pod is not None else None
        if target.box is None and target.claim is not None:
            path = await self._cluster.extensions(CLAIMS, target.meta.name, namespace=target.meta.namespace)
            return await self._cluster.call("GET", path, f"get {CLAIMS}.{EXTENSIONS} {target.meta.name}"), None
        if target.box is None:
            return pod or b"{}", None
        path = await self._cluster.boxes(target.meta.name, namespace=target.meta.namespace)
        return await self._cluster.call("GET", path, f"get sandboxes.agents.x-k8s.io {target.meta.name}"), pod

    async def _bytes_of_pod(self, pod: Pod) -> bytes:
        path = await self._cluster.core("pods", pod.metadata.name, namespace=pod.metadata.namespace)
        return await self._cluster.call("GET", path, f"get pods {pod.metadata.name}")

    async def _read(self, path: str, request: str, decode: Callable[[bytes], T]) -> T:
        data = await self._cluster.call("GET", path, request)
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            raise BackendError(f"{request}: the answer cannot be read: {error}") from None


def _container(target: Target, name: str) -> str:
    """A container's name. Raises NotFound if its Pod has none of that name."""
    if not name or target.pod is None:
        return name
    there = [one.name for one in containers_of(target.pod.spec)]
    if name not in there:
        hint = f"there is: {', '.join(there)}"
        raise NotFound(f"{target.meta.name} has no container {name!r}", hint=hint)
    return name
