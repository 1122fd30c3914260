"""A backend in memory, for snapshots and for faults: never registered, handed to ``open_console(backends=...)``."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.errors import Conflict, NotFound, Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.event import BackendEvent, Changed, HealthChanged, Listed, Removed
from sandbox_console.model.log import LogItem, LogQuery, LogRecord
from sandbox_console.model.sandbox import BackendHealth, Exit, HealthState, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.clock import Clock, Ids
from sandbox_console.testing.commands import FakeProcess
from sandbox_console.testing.faults import Fault, Faults
from sandbox_console.testing.signals import number_of
from sandbox_console.testing.terminal import FakeTerminal

EVERYTHING = Capabilities(frozenset(Capability))


class FakeBackend:
    """The whole Backend protocol on plain dictionaries.

    ``sandboxes`` are there from the start; ``logs`` and ``stats`` are scripts by sandbox id (the last sample is
    repeated); ``faults`` maps a method's name to an exception that it raises or to seconds that it takes;
    ``dead`` makes everything raise BackendUnreachable. ``images``, where given, are the only ones there are.
    The clock stands still unless it is moved, and ids come from ``seed``.
    """

    def __init__(
        self,
        sandboxes: Iterable[Sandbox] = (),
        *,
        name: str = "fake",
        host: str = "local",
        logs: Mapping[str, Sequence[LogItem]] | None = None,
        stats: Mapping[str, Sequence[Stats]] | None = None,
        capabilities: Capabilities = EVERYTHING,
        faults: Mapping[str, Fault] | None = None,
        dead: bool = False,
        reason: str = "",
        images: Sequence[str] = (),
        clock: Callable[[], float] | None = None,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.faults = Faults(faults, dead=dead, reason=reason)
        self.sandboxes = {one.ref.id: one for one in sandboxes}
        self.permits: list[Permit] = []
        self._logs = {id_: list(items) for id_, items in (logs or {}).items()}
        self._stats = {id_: list(samples) for id_, samples in (stats or {}).items()}
        self._capabilities = capabilities
        self._images = tuple(images)
        self._clock = clock or Clock()
        self._ids = Ids(seed)
        self._watchers: set[asyncio.Queue[BackendEvent]] = set()
        self._news = asyncio.Condition()
        self._secrets: dict[str, dict[str, str]] = {}
        self._running: set[FakeProcess] = set()
        self._terminals: set[FakeTerminal] = set()

    # Reading

    async def open(self) -> None:
        """Nothing to prepare; the fault ``open`` may delay it."""
        if not self.faults.dead:
            await self.faults.meet("open")

    async def close(self) -> None:
        for process in self._running:
            await process.kill()
        for terminal in self._terminals:
            await terminal.close()
        self._running.clear()
        self._terminals.clear()

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def health(self) -> BackendHealth:
        if self.faults.dead:
            return BackendHealth(self.name, self.host, HealthState.UNREACHABLE, self.faults.reason, "revive it")
        return BackendHealth(self.name, self.host, HealthState.OK, version="fake 1")

    async def list(self) -> list[Sandbox]:
        await self.faults.meet("list")
        return [*self.sandboxes.values()]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        await self.faults.meet("inspect")
        return self._get(ref)

    async def watch(self) -> AsyncIterator[BackendEvent]:
        queue: asyncio.Queue[BackendEvent] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            yield HealthChanged(await self.health())
            if not self.faults.dead:
                await self.faults.meet("watch")
                yield self._listed()
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        await self.faults.meet("logs")
        self._get(ref)
        script = self._logs.setdefault(ref.id, [])
        seen = len(script)
        found = [item for item in script if _in_time(item, query)]
        if query.tail is not None:
            found = found[max(len(found) - query.tail, 0) :]
        if found:
            yield found
        while query.follow and self._live(ref):
            async with self._news:
                while len(script) == seen and self._live(ref):
                    await self._news.wait()
            new, seen = script[seen:], len(script)
            if new := [item for item in new if _in_time(item, query)]:
                yield new

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        await self.faults.meet("stats")
        script = self._stats.get(ref.id) or [Stats(self._clock(), 1.0, 1 << 20, pids=1)]
        turn = 0
        while self._live(ref):
            yield script[min(turn, len(script) - 1)]
            turn += 1
            await asyncio.sleep(interval_s)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        if self._images and spec.image not in self._images:
            return {"image": f"{spec.image!r} is not here; there is: {', '.join(self._images)}"}
        return {}

    # Changing

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        await self._meet(permit, "create")
        self._free(spec.name)
        progress(f"making {spec.name}")
        ref = SandboxRef(self.name, self.host, self._ids())
        made = Sandbox(ref, spec.name, Status.CREATED, spec.image, self._clock(), labels=dict(spec.labels), spec=spec)
        self._secrets[ref.id] = {secret.name: secret.value for secret in secrets}
        await self._put(made)
        return ref

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        await self._meet(permit, "start")
        sandbox = self._get(ref)
        if not sandbox.status.live:
            self._secrets[ref.id] = {secret.name: secret.value for secret in secrets}
            await self._change(ref, status=Status.RUNNING, started_at=self._clock(), finished_at=None, exit=None)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - it ends at once
        await self._meet(permit, "stop")
        await self._end(ref, 15)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        await self._meet(permit, "kill")
        number = number_of(signal)
        if not self._get(ref).status.live:
            raise Conflict(f"{self._get(ref).name} does not run")
        await self._end(ref, number)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        await self._meet(permit, "pause")
        if not self._capabilities.has(Capability.PAUSE):
            raise Unsupported(f"pause: {self._capabilities.reason(Capability.PAUSE)}")
        self._require(ref, Status.RUNNING)
        await self._change(ref, status=Status.PAUSED)

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        await self._meet(permit, "resume")
        self._require(ref, Status.PAUSED)
        await self._change(ref, status=Status.RUNNING)

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        await self._meet(permit, "rename")
        sandbox = self._get(ref)
        if name != sandbox.name:
            self._free(name)
        spec = dataclasses.replace(sandbox.spec, name=name) if sandbox.spec else None
        await self._change(ref, name=name, spec=spec)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        await self._meet(permit, "remove")
        sandbox = self._get(ref)
        if sandbox.status.live and not force:
            raise Conflict(f"{sandbox.name} runs", hint="stop it first, or use --force")
        del self.sandboxes[ref.id]
        self._secrets.pop(ref.id, None)
        await self.tell(Removed(ref))

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        await self._meet(permit, "update")
        self._get(ref)
        await self._change(ref, spec=spec, labels=dict(spec.labels))

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> FakeProcess:
        await self._meet(permit, "exec")
        self._require(request.ref, Status.RUNNING)
        spec = self._get(request.ref).spec
        given = {secret.name: secret.value for secret in secrets}
        process = FakeProcess(request.argv, {**(spec.env if spec else {}), **given, **request.env})
        self._running.add(process)
        return process

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> FakeTerminal:  # noqa: ARG002 - none
        await self._meet(permit, "shell")
        self._require(request.ref, Status.RUNNING)
        terminal = FakeTerminal(request.cols, request.rows)
        self._terminals.add(terminal)
        return terminal

    # By hand, in a test

    async def tell(self, event: BackendEvent) -> None:
        """Pass an event to whoever watches, and wake whoever follows logs."""
        for queue in self._watchers:
            queue.put_nowait(event)
        async with self._news:
            self._news.notify_all()

    async def say(self, ref: SandboxRef, *items: LogItem) -> None:
        """Let the sandbox's main process write."""
        self._logs.setdefault(ref.id, []).extend(items)
        async with self._news:
            self._news.notify_all()

    async def die(self, reason: str) -> None:
        """Stop answering; watchers are told."""
        self.faults.dead, self.faults.reason = True, reason
        await self.tell(HealthChanged(await self.health()))

    async def revive(self) -> None:
        """Answer again; watchers are told, with the whole list."""
        self.faults.dead = False
        await self.tell(HealthChanged(await self.health()))
        await self.tell(self._listed())

    # Inside

    async def _meet(self, permit: Permit, verb: str) -> None:
        self.permits.append(permit)
        await self.faults.meet(verb)

    def _listed(self) -> Listed:
        return Listed(self.name, self.host, tuple(self.sandboxes.values()))

    def _get(self, ref: SandboxRef) -> Sandbox:
        found = self.sandboxes.get(ref.id)
        if found is None or (ref.backend, ref.host) != (self.name, self.host):
            raise NotFound(f"no sandbox {ref}", hint="sandbox-console ls --all")
        return found

    def _live(self, ref: SandboxRef) -> bool:
        return ref.id in self.sandboxes and self.sandboxes[ref.id].status.live

    def _free(self, name: str) -> None:
        if any(one.name == name for one in self.sandboxes.values()):
            raise Conflict(f"the name {name!r} is taken", hint="choose another, or remove that sandbox")

    def _require(self, ref: SandboxRef, status: Status) -> None:
        sandbox = self._get(ref)
        if sandbox.status is not status:
            raise Conflict(f"{sandbox.name} is {sandbox.status}, not {status}", hint=f"start {sandbox.name}")

    async def _end(self, ref: SandboxRef, signal: int) -> None:
        if self._get(ref).status.live:
            end = Exit(128 + signal, signal, oom=False)
            await self._change(ref, status=Status.EXITED, finished_at=self._clock(), exit=end)

    async def _change(self, ref: SandboxRef, **fields: object) -> None:
        await self._put(dataclasses.replace(self._get(ref), **fields))  # type: ignore[arg-type]

    async def _put(self, sandbox: Sandbox) -> None:
        self.sandboxes[sandbox.ref.id] = sandbox
        await self.tell(Changed(sandbox))


def _in_time(item: LogItem, query: LogQuery) -> bool:
    at = item.at_ns / 1e9
    if not isinstance(item, LogRecord):
        return True
    return (query.since is None or at >= query.since) and (query.until is None or at <= query.until)
