"""Starts, stops and removes. ``operatingMode: Suspended`` stops a Sandbox, and ``Running`` starts it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sandbox_console.backends.common.messages import not_stopped
from sandbox_console.backends.kubernetes import annotations as own
from sandbox_console.backends.kubernetes import manifests, objects
from sandbox_console.backends.kubernetes.causes import judge
from sandbox_console.backends.kubernetes.claims import CLAIMS, EXTENSIONS, Claim
from sandbox_console.backends.kubernetes.cluster import MERGE, Cluster
from sandbox_console.backends.kubernetes.finder import Finder
from sandbox_console.backends.kubernetes.inventory import Source, Target
from sandbox_console.errors import BackendError, Conflict, NotFound, TimedOut, Unsupported
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

LOOK_S = 0.25
"""Between two looks at a Sandbox that is to change."""

START_S = 90.0
"""A node may have to pull the image. After this long a start is left to the cluster, and the sandbox stays starting."""

STOP_S = 40.0
"""Beyond the grace: the kubelet and the controller look every few seconds."""

_POD_STOP = "a Pod is not started again: rm deletes it; a Sandbox of agents.x-k8s.io can be stopped and started"


class Lifecycle:
    """Changes of one backend's Sandboxes and Pods."""

    def __init__(self, cluster: Cluster, finder: Finder) -> None:
        self._cluster = cluster
        self._finder = finder

    async def start(self, ref: SandboxRef) -> None:
        """Resume a Sandbox, and wait until it runs or cannot. One whose command has ended gets a new Pod."""
        target = await self._finder.target(ref)
        row = self._finder.inventory.of(target)
        if row.status in (Status.RUNNING, Status.STARTING):
            return
        if target.box is None:
            raise Unsupported(f"{row.name}: {_POD_STOP}")
        if target.box.spec.operating_mode != "Suspended":
            await self._suspend(ref, target, 1.0)
        await self._patch(target, "Running", {own.STARTED: datetime.now(UTC).isoformat()})
        await self._until(ref, START_S, _begun, late_is_error=False)
        row = await self._finder.inspect(ref)
        if row.status is Status.FAILED:
            raise BackendError(f"{row.name} cannot start: {row.detail}", hint=f"sandbox-console events {row.name}")

    async def stop(self, ref: SandboxRef, grace_s: float) -> None:
        """Suspend a Sandbox: its Pod gets SIGTERM, and SIGKILL after the grace. Waits until the Pod is gone."""
        target = await self._finder.target(ref)
        row = self._finder.inventory.of(target)
        if not row.status.live:
            return
        if target.box is None:
            raise Unsupported(f"{row.name}: {_POD_STOP}")
        await self._suspend(ref, target, grace_s)

    async def _suspend(self, ref: SandboxRef, target: Target, grace_s: float) -> None:
        await self._patch(target, "Suspended", {own.STOPPED: datetime.now(UTC).isoformat()})
        if target.pod is not None:  # the controller deletes it too, but knows nothing of the grace
            await self._delete_pod(target, max(1, math.ceil(grace_s)))
        await self._until(ref, grace_s + STOP_S, lambda now: now.pod is None, late_is_error=True)

    async def remove(self, ref: SandboxRef, *, force: bool) -> None:
        """Delete the object; its Pod goes with it. Raises Conflict if it is running, unless ``force``."""
        target = await self._finder.target(ref)
        row = self._finder.inventory.of(target)
        if row.status.live and not force:
            raise not_stopped(row.name, row.status)
        if target.pod is not None and (force or target.box is None):
            await self._delete_pod(target, 1)
        if target.claim is not None:
            await self._delete_claim(target.claim)
        elif target.box is not None:
            await self._delete(target)
        await self._gone(ref)

    async def relabel(self, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Store a spec with other labels. The labels of a running Pod stay."""
        target = await self._finder.target(ref)
        if target.box is None or own.SPEC not in (target.meta.annotations or {}):
            raise Unsupported("only a Sandbox that the console made can be changed")
        old: dict[str, str | None] = dict.fromkeys(target.meta.labels or {})
        labels = {**{key: None for key in old if key not in spec.labels}, **manifests.labels_of(spec)}
        await self._merge(target, {"metadata": {"labels": labels, "annotations": {own.SPEC: manifests.stored(spec)}}})

    async def _patch(self, target: Target, mode: str, notes: dict[str, str]) -> None:
        await self._merge(target, {"metadata": {"annotations": notes}, "spec": {"operatingMode": mode}})

    async def _merge(self, target: Target, body: dict[str, Any]) -> None:
        """Change a Sandbox, if it is still the same one."""
        body["metadata"]["uid"] = target.meta.uid
        path = await self._cluster.boxes(target.meta.name, namespace=target.meta.namespace)
        request = f"patch {_BOXES} {target.meta.namespace}/{target.meta.name}"
        data = await self._cluster.send("PATCH", path, request, body, MERGE)
        self._finder.inventory.put_box(objects.box(data))

    async def _delete(self, target: Target) -> None:
        path = await self._cluster.boxes(target.meta.name, namespace=target.meta.namespace)
        request = f"delete {_BOXES} {target.meta.namespace}/{target.meta.name}"
        await self._cluster.send("DELETE", path, request, {"preconditions": {"uid": target.meta.uid}})

    async def _delete_claim(self, claim: Claim) -> None:
        """Delete a Claim; its Sandbox goes with it. A Sandbox alone would be made again."""
        meta = claim.metadata
        path = await self._cluster.extensions(CLAIMS, meta.name, namespace=meta.namespace)
        request = f"delete {CLAIMS}.{EXTENSIONS} {meta.namespace}/{meta.name}"
        await self._cluster.send("DELETE", path, request, {"preconditions": {"uid": meta.uid}})

    async def _delete_pod(self, target: Target, grace_s: int) -> None:
        pod = target.pod
        if pod is None:
            return
        path = await self._cluster.core("pods", pod.metadata.name, namespace=pod.metadata.namespace)
        request = f"delete pods {pod.metadata.namespace}/{pod.metadata.name}"
        body = {"gracePeriodSeconds": grace_s, "preconditions": {"uid": pod.metadata.uid}}
        try:
            await self._cluster.send("DELETE", path, request, body)
        except (NotFound, Conflict):  # it is gone already
            return

    async def _until(
        self, ref: SandboxRef, seconds: float, fits: Callable[[Target], bool], *, late_is_error: bool
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not fits(await self._finder.target(ref)):  # noqa: ASYNC110 - the cluster changes, nothing here
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            if late_is_error:
                raise TimedOut(
                    f"{ref.id} did not change within {seconds:g} s", hint="is agent-sandbox's controller running?"
                ) from None

    async def _gone(self, ref: SandboxRef) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                while True:
                    await self._finder.target(ref)
                    await asyncio.sleep(LOOK_S)
        except NotFound:
            for source in _LISTED:
                self._finder.inventory.drop(source, ref.id)
        except TimeoutError:
            hint = "a finalizer may hold it: kubectl get -o yaml"
            raise TimedOut(f"{ref.id} is still being deleted", hint=hint) from None


_BOXES = "sandboxes.agents.x-k8s.io"
_LISTED: tuple[Source, ...] = ("boxes", "selected", "claims")


def _begun(target: Target) -> bool:
    return target.pod is not None and judge(target.pod).status is not Status.STARTING
