"""A backend in memory for snapshots and faults; never registered, but passed to ``open_console(backends=...)``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec import structs

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.errors import Conflict, Unsupported, UsageError
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.drift import LASTING, MADE
from sandbox_console.model.event import BackendEvent, HealthChanged, Removed
from sandbox_console.model.log import LogItem, LogQuery, LogRecord
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.fake_commands import FakeProcess
from sandbox_console.testing.fake_core import EVERYTHING, Within
from sandbox_console.testing.fake_guest import FakeGuest
from sandbox_console.testing.fake_images import FakeImages
from sandbox_console.testing.fake_terminal import FakeTerminal

__all__ = ["EVERYTHING", "FakeBackend", "Within"]


class FakeBackend(FakeGuest, FakeImages):
    """The whole Backend protocol, and every ability, on plain dictionaries.

    ``sandboxes`` exist from the start. ``logs`` and ``stats`` are scripts by sandbox id (the last sample is repeated).
    ``faults`` maps a method's name to an exception that it raises or to seconds that it takes. ``dead`` makes
    everything raise BackendUnreachable. ``images``, if given, are the only ones to create from. ``within`` is what is
    inside the sandboxes. The clock stands still unless it is moved; ids come from ``seed``.
    """

    # Reading

    async def open(self) -> None:
        """Nothing to prepare; the fault ``open`` may delay it."""
        if not self.faults.dead:
            await self.faults.meet("open")

    async def close(self) -> None:
        for process in list(self._running):
            await process.kill()
        for attached in self._attached:
            await attached.kill()
        for terminal in self._terminals:
            await terminal.close()
        self._running.clear()
        self._terminals.clear()

    def capabilities(self) -> Capabilities:
        return self._capabilities

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
        items = [item for item in script if _in_time(item, query)]
        if query.tail is not None:
            items = items[max(len(items) - query.tail, 0) :]
        if items:
            yield items
        while query.follow and self._live(ref):
            async with self._news:
                while len(script) == seen and self._live(ref):
                    await self._news.wait()
            new, seen = script[seen:], len(script)
            if new := [item for item in new if _in_time(item, query)]:
                yield new

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        await self._look("stats", ref)
        script = self._stats.get(ref.id) or [Stats(self._clock(), 1.0, 1 << 20, pids=1)]
        turn = 0
        while self._live(ref):
            yield script[min(turn, len(script) - 1)]
            turn += 1
            await asyncio.sleep(interval_s)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        if self._only and spec.image not in self._only:
            return {"image": f"{spec.image!r} is not here; there is: {', '.join(self._only)}"}
        return {}

    # Changing

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        await self._meet(permit, "create")
        self._free(spec.name)
        progress(f"making {spec.name}")
        ref = SandboxRef(self.name, self.host, self._ids())
        sandbox = Sandbox(
            ref, spec.name, Status.CREATED, spec.image, self._clock(), labels=dict(spec.labels), spec=spec
        )
        self._secrets[ref.id] = {secret.name: secret.value for secret in secrets}
        self._have(spec.image)
        await self._put(sandbox)
        await self.happen(ref, "create", image=spec.image)
        return ref

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        await self._meet(permit, "start")
        sandbox = self._get(ref)
        if not sandbox.status.live:
            self._secrets[ref.id] = {secret.name: secret.value for secret in secrets}
            await self._change(ref, status=Status.RUNNING, started_at=self._clock(), finished_at=None, exit=None)
            await self.happen(ref, "start")

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - it ends at once
        await self._meet(permit, "stop")
        await self._end(ref, 15)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        await self._meet(permit, "kill")
        number = number_of(signal)
        if not self._get(ref).status.live:
            raise Conflict(f"{self._get(ref).name} is not running")
        await self._end(ref, number)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        await self._meet(permit, "pause")
        if not self._capabilities.has(Capability.PAUSE):
            raise Unsupported(f"pause: {self._capabilities.reason(Capability.PAUSE)}")
        self._require(ref, Status.RUNNING)
        await self._change(ref, status=Status.PAUSED)
        await self.happen(ref, "pause")

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        await self._meet(permit, "resume")
        self._require(ref, Status.PAUSED)
        await self._change(ref, status=Status.RUNNING)
        await self.happen(ref, "unpause")

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        await self._meet(permit, "rename")
        sandbox = self._get(ref)
        if name != sandbox.name:
            self._free(name)
        spec = structs.replace(sandbox.spec, name=name) if sandbox.spec else None
        await self._change(ref, name=name, spec=spec)
        await self.happen(ref, "rename", oldName=sandbox.name)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        await self._meet(permit, "remove")
        sandbox = self._get(ref)
        if sandbox.status.live and not force:
            raise Conflict(f"{sandbox.name} runs", hint="stop it first, or use --force")
        del self.sandboxes[ref.id]
        for gone in (self._secrets, self._trees, self._happened, self._egress, self._rules):
            gone.pop(ref.id, None)
        await self.tell(Removed(ref))

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        await self._meet(permit, "update")
        if self._get(ref).spec is not None:  # nothing is stored about another tool's sandbox that a list would show
            await self._change(ref, spec=spec, labels=dict(spec.labels), found=self._found(ref, spec))

    async def adopt(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        await self._meet(permit, "adopt")
        await self._change(ref, spec=spec)

    async def rejoin(self, permit: Permit, ref: SandboxRef) -> None:
        await self._meet(permit, "rejoin")
        await self._change(ref, found={**self._get(ref).found, **dict.fromkeys(MADE.keys() - LASTING, "")})

    def _found(self, ref: SandboxRef, spec: SandboxSpec) -> dict[str, object]:
        """What is found after an update: the requested limits, and the rest unchanged."""
        limits = ("cpus", "memory_mib", "pids")
        return {name: getattr(spec, name) if name in limits else v for name, v in self._get(ref).found.items()}

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> FakeProcess:
        await self._meet(permit, "exec")
        self._require(request.ref, Status.RUNNING)
        spec = self._get(request.ref).spec
        given = {secret.name: secret.value for secret in secrets}
        process = FakeProcess(request.argv, {**(spec.env if spec else {}), **given, **request.env})
        self._running[process] = request.ref.id
        await self.happen(request.ref, "exec_start", " ".join(request.argv))
        return process

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> FakeTerminal:  # noqa: ARG002 - none
        await self._meet(permit, "shell")
        self._require(request.ref, Status.RUNNING)
        terminal = FakeTerminal(request.cols, request.rows)
        self._terminals.add(terminal)
        return terminal

    # Inside

    async def _end(self, ref: SandboxRef, signal: int) -> None:
        if self._get(ref).status.live:
            end = Exit(128 + signal, signal, oom=False)
            await self._change(ref, status=Status.EXITED, finished_at=self._clock(), exit=end)
            await self.happen(ref, "die", exitCode=str(end.code), signal=str(signal))


def _in_time(item: LogItem, query: LogQuery) -> bool:
    at = item.at_ns / 1e9
    if not isinstance(item, LogRecord):
        return True
    return (query.since is None or at >= query.since) and (query.until is None or at <= query.until)


def number_of(name: str) -> int:
    """``SIGTERM`` or ``TERM`` as a number. Raises UsageError."""
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise UsageError(f"{name!r} is not a signal", hint="SIGTERM, SIGKILL, SIGHUP, ...") from None
