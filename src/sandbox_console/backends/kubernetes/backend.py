"""The Kubernetes backend: Sandboxes of agents.x-k8s.io with their Pods, and Pods that a selector names."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.kubernetes import access, diagnosis, events, raw, watch
from sandbox_console.backends.kubernetes.access import Right
from sandbox_console.backends.kubernetes.capabilities import RIGHTS, capabilities
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.failures import Forbidden, Unusable
from sandbox_console.backends.kubernetes.finder import Finder
from sandbox_console.backends.kubernetes.inventory import Inventory
from sandbox_console.backends.kubernetes.refusals import Refusing
from sandbox_console.backends.kubernetes.scope import Scope
from sandbox_console.backends.kubernetes.translate import BACKEND
from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Sandbox, SandboxRef

OPEN_S = 3.0
"""How long opening waits for the answers about rights. A cluster that is silent is told by health."""


class KubernetesBackend(Refusing):
    """The Sandboxes and Pods of one context and namespace."""

    name = BACKEND

    def __init__(self, scope: Scope, folder: Path) -> None:
        self.host = scope.host
        self._cluster = Cluster(scope)
        self._finder = Finder(self._cluster, Inventory(scope.host))
        self._installation = Installation(folder)
        self._forbidden: frozenset[Right] = frozenset()

    async def open(self) -> None:
        """Log in and ask what is allowed."""
        self._finder.inventory.ours = await asyncio.to_thread(lambda: self._installation.id)
        try:
            async with asyncio.timeout(OPEN_S):
                self._forbidden = await access.missing(self._cluster, RIGHTS)
        except (ConsoleError, TimeoutError):
            return

    async def close(self) -> None:
        await self._cluster.close()

    def capabilities(self) -> Capabilities:
        return capabilities(self._forbidden)

    async def health(self) -> BackendHealth:
        return await diagnosis.health(self._cluster)

    async def diagnose(self) -> Sequence[Diagnosis]:
        return await diagnosis.look(self._cluster)

    async def list(self) -> builtins.list[Sandbox]:
        try:
            return await self._finder.list()
        except Forbidden as error:
            raise Unusable(error.message, hint=error.hint) from None

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        return await self._finder.inspect(ref)

    async def watch(self) -> AsyncGenerator[BackendEvent, None]:
        found = watch.watch(
            self._cluster, self._finder.inventory, self.health, lambda error: diagnosis.down(self._cluster, error)
        )
        async with aclosing(found) as changes:
            async for event in changes:
                yield event

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        one, pod = await self._finder.raw(ref)
        shown = raw.public(one)
        return {**shown, "pod": raw.public(pod)} if pod is not None else shown

    async def guest_events(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncGenerator[GuestEvent, None]:
        place = await self._finder.place(ref)
        uids = [one.metadata.uid for one in (place.box, place.pod) if one is not None]
        found = events.guest_events(self._cluster, place.meta.namespace, uids, since=since, follow=follow)
        async with aclosing(found) as told:
            async for event in told:
                yield event


__all__ = ["KubernetesBackend"]
