"""The Kubernetes backend: Sandboxes of agents.x-k8s.io with their Pods, and Pods that a selector names."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common.guest_files import GuestFiles
from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.queued_process import ProcessTerminal
from sandbox_console.backends.common.unsupported import UnchangedImages
from sandbox_console.backends.kubernetes import (
    access,
    catalogue,
    connect,
    diagnosis,
    events,
    logs,
    manifests,
    raw_object,
    stats,
    watch,
)
from sandbox_console.backends.kubernetes.access import Right
from sandbox_console.backends.kubernetes.capabilities import RIGHTS, capabilities
from sandbox_console.backends.kubernetes.causes import seconds
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.commands import Guest, guest
from sandbox_console.backends.kubernetes.creation import Creation
from sandbox_console.backends.kubernetes.failures import Forbidden, Unusable
from sandbox_console.backends.kubernetes.finder import Finder
from sandbox_console.backends.kubernetes.inventory import Inventory
from sandbox_console.backends.kubernetes.lifecycle import Lifecycle
from sandbox_console.backends.kubernetes.process import KubernetesProcess
from sandbox_console.backends.kubernetes.scope import Scope
from sandbox_console.backends.kubernetes.translate import BACKEND
from sandbox_console.errors import ConsoleError, InvalidSpec
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.image import Image
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Sandbox, SandboxRef, Stats
from sandbox_console.model.spec import SandboxSpec

ENDS_STDIN = 30
"""The minor version of Kubernetes from which on every server can end the stdin of a command."""

OPEN_S = 3.0
"""How long opening waits for the answers about rights. Later ones count as they come."""


class KubernetesBackend(GuestFiles, UnchangedImages):
    """The Sandboxes and Pods of one context and namespace."""

    name = BACKEND

    def __init__(self, scope: Scope, folder: Path) -> None:
        self.host = scope.host
        self._cluster = Cluster(scope)
        self._finder = Finder(self._cluster, Inventory(scope.host))
        self._installation = Installation(folder)
        self._forbidden: frozenset[Right] = frozenset()
        self._ends_stdin = False
        self._agent_sandbox = True
        self._metrics = False
        self._learning: asyncio.Task[None] | None = None
        self._creation = Creation(self._cluster, self._finder.inventory)
        self._lifecycle = Lifecycle(self._cluster, self._finder)

    async def open(self) -> None:
        """Log in and ask what is allowed."""
        self._finder.inventory.ours = await asyncio.to_thread(lambda: self._installation.id)
        await asyncio.wait({self._learn()}, timeout=OPEN_S)

    def _learn(self) -> asyncio.Task[None]:
        """Ask what the server and this login can do, unless that is known or being asked."""
        if self._learning is None:
            self._learning = asyncio.create_task(self._ask())
        return self._learning

    async def _ask(self) -> None:
        try:
            self._forbidden, found = await asyncio.gather(
                access.missing(self._cluster, RIGHTS), diagnosis.server(self._cluster)
            )
        except ConsoleError:  # it is asked again when the server answers
            self._learning = None
            return
        self._ends_stdin, self._agent_sandbox = found.minor >= ENDS_STDIN, found.agent_sandbox
        self._metrics = found.metrics

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
            self._learning = None
        await self._cluster.close()

    def capabilities(self) -> Capabilities:
        return capabilities(
            self._forbidden,
            ends_stdin=self._ends_stdin,
            agent_sandbox=self._agent_sandbox,
            network_policy=self._cluster.scope.network_policy,
            pods=bool(self._cluster.scope.selector),
            metrics=self._metrics,
        )

    async def health(self) -> BackendHealth:
        found = await diagnosis.health(self._cluster)
        if found.ok:
            self._learn()
        return found

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
        shown = raw_object.public(one)
        return {**shown, "pod": raw_object.public(pod)} if pod is not None else shown

    async def guest_events(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncGenerator[GuestEvent, None]:
        target = await self._finder.target(ref)
        field = f"uid={ref.id}" if target.box is None else f"name={target.meta.name}"
        made = seconds(target.meta.creation_timestamp)  # an earlier one may have had its name
        since = max(since or 0.0, made or 0.0)
        found = events.guest_events(self._cluster, target.meta.namespace, [field], since=since, follow=follow)
        async with aclosing(found) as batches:
            async for event in batches:
                yield event

    async def images(self) -> Sequence[Image]:
        """Templates and WarmPools, which ``image`` of a spec names."""
        return await catalogue.images(self._cluster)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return manifests.problems(spec, self._cluster.scope.selector, agent_sandbox=self._agent_sandbox)

    async def create(
        self,
        permit: Permit,
        spec: SandboxSpec,
        secrets: Secrets,  # noqa: ARG002 - a spec with secrets is refused: secret.env is unsupported
        progress: Progress,  # noqa: ARG002 - it is one request
    ) -> SandboxRef:
        need(permit)
        if problems := self.validate(spec):
            raise InvalidSpec(problems)
        if not self._cluster.scope.network_policy:
            raise self._cannot(Capability.EGRESS_NONE)
        installation = await asyncio.to_thread(self._installation.made)
        self._finder.inventory.ours = installation
        return await self._creation.create(spec, installation)

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - as above
        need(permit)
        await self._lifecycle.start(ref)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        need(permit)
        await self._lifecycle.stop(ref, grace_s)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        """Raise NotFound, or Unsupported: no request of Kubernetes sends a signal."""
        await self._finder.target(ref)
        await super().kill(permit, ref, signal)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        await self._lifecycle.remove(ref, force=force)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        need(permit)
        await self._lifecycle.relabel(ref, spec)

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        async with aclosing(logs.read(self._cluster, self._finder, ref, query)) as batches:
            async for batch in batches:
                yield batch

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        if not self._metrics:
            raise self._cannot(Capability.STATS)
        async with aclosing(stats.stats(self._cluster, self._finder, ref, interval_s)) as samples:
            async for sample in samples:
                yield sample

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> KubernetesProcess:  # noqa: ARG002 - the container has them
        need(permit)
        self._refuse_user(request.user)
        guest = await self._guest(request.ref)
        return await guest.run(request.argv, env=request.env, workdir=request.workdir, stdin=self._ends_stdin)

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> ProcessTerminal:  # noqa: ARG002 - as above
        need(permit)
        self._refuse_user(request.user)
        guest = await self._guest(request.ref)
        shell = request.shell or await guest.best_shell()
        env = {"TERM": request.term, **request.env}
        argv = request.argv(shell)
        terminal = ProcessTerminal(await guest.run(argv, env=env, workdir=request.workdir, stdin=True, tty=True))
        await terminal.resize(request.cols, request.rows)
        return terminal

    async def connect(self, permit: Permit, ref: SandboxRef, port: int) -> KubernetesProcess:
        need(permit)
        return await connect.connect(self._cluster, (await self._guest(ref)).pod, port)

    async def _guest(self, ref: SandboxRef) -> Guest:
        return guest(self._cluster, await self._finder.target(ref))

    def _refuse_user(self, user: str | None) -> None:
        if user is not None:
            raise self._cannot(Capability.EXEC_USER)


__all__ = ["KubernetesBackend"]
