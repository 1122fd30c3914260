"""The bubblewrap backend: the protocol of ``backends.base``, using a state directory and its supervisors."""

# ruff: noqa: ARG002 - a permit is taken as proof that the attempt is on record; nothing in here reads it

from __future__ import annotations

import asyncio
import signal as signals
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sandbox_console.backends.base import Process, Progress, Secrets, Terminal
from sandbox_console.backends.bubblewrap import (
    binary,
    drift,
    egress,
    executor,
    jail,
    launch,
    logs,
    owner,
    stats,
    syscall_filter,
    translate,
    watch,
)
from sandbox_console.backends.bubblewrap import limits as limiting
from sandbox_console.backends.bubblewrap.abilities import Abilities
from sandbox_console.backends.bubblewrap.capabilities import capabilities, problems, refuse
from sandbox_console.backends.bubblewrap.client import Connection
from sandbox_console.backends.bubblewrap.limits import Limiter
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.backends.bubblewrap.state import Damaged, Record, Store, is_supervised
from sandbox_console.backends.bubblewrap.supervise.cgroup import Group
from sandbox_console.backends.bubblewrap.supervise.events import note
from sandbox_console.backends.common.messages import name_taken, not_stopped
from sandbox_console.errors import BackendError, BackendUnreachable, Conflict, Unsupported, UsageError
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.cancellation import shielded, wait_until_done
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.event import BackendEvent, HealthChanged
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, HealthState, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec

_LAST_S = 2.0
Listing = list[Sandbox]  # inside the class, `list` is the method


class BubblewrapBackend(Abilities):
    """Sandboxes of this machine, each with its own supervisor; see the package's modules for the parts."""

    name = translate.NAME
    host = translate.HOST

    def __init__(self, state_dir: Path, options: Options) -> None:
        self._store = Store(state_dir.absolute())
        self._options = options
        self._limiter = Limiter()
        self._bwrap: binary.Bwrap | binary.NoBwrap | None = None

    async def open(self) -> None:
        self._limiter = await asyncio.to_thread(Limiter.look)

    async def close(self) -> None:
        """Does nothing: nothing stays open between calls."""

    def capabilities(self) -> Capabilities:
        return capabilities(self._limiter)

    async def health(self) -> BackendHealth:
        found = await self._look()
        if isinstance(found, binary.NoBwrap):
            return BackendHealth(self.name, self.host, HealthState.UNAVAILABLE, found.reason, found.hint)
        try:
            await asyncio.to_thread(self._store.prepare)
        except BackendError as error:
            return BackendHealth(self.name, self.host, HealthState.UNAVAILABLE, error.message, error.hint)
        return BackendHealth(self.name, self.host, HealthState.OK, version=found.version)

    async def diagnose(self) -> Sequence[Diagnosis]:
        if self._bwrap is None:
            await self._look()
        return await asyncio.to_thread(self._diagnose)

    def _diagnose(self) -> Sequence[Diagnosis]:
        diagnoses = [binary.diagnosis(self._bwrap)] if isinstance(self._bwrap, binary.Bwrap) else []
        try:
            return [*diagnoses, syscall_filter.diagnosis(self._store.all())]
        except (BackendError, OSError):  # health() reports the error
            return diagnoses

    # -- reading

    async def list(self) -> list[Sandbox]:
        return await asyncio.to_thread(self._list)

    def _list(self) -> Listing:
        try:
            return [translate.sandbox(record, self._limiter, self._options) for record in self._store.all()]
        except OSError as error:
            raise BackendUnreachable(f"the state folder {self._store.folder} cannot be read: {error}") from error

    async def shares(self) -> Sequence[str]:
        return await asyncio.to_thread(self._store.workspaces)

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        return await asyncio.to_thread(self._inspect, ref)

    def _inspect(self, ref: SandboxRef) -> Sandbox:
        try:
            record = self._store.get(ref.id)
        except Damaged as error:  # what is left of it can still be inspected and removed
            record = error.record
        return translate.sandbox(record, self._limiter, self._options)

    async def watch(self) -> AsyncIterator[BackendEvent]:
        yield HealthChanged(await self.health())
        async for event in watch.changes(self._store, self._list, lambda: drift.watched(self._store)):
            yield event

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        record = await self._record(ref)
        async for batch in logs.read(record.folder, query, lambda: self._live(ref.id)):
            yield batch

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        before: stats.Sample | None = None
        while (record := await self._record(ref)).status.live:
            now = await asyncio.to_thread(stats.sample, record.raw, record.folder)
            limit = record.spec.memory_mib * (1 << 20) if record.spec.memory_mib else None
            yield stats.between(before or now, now, limit)
            first = before is None
            before = now
            await asyncio.sleep(min(interval_s, 0.2) if first else interval_s)  # so that the first rate comes soon

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return problems(spec)

    # -- changing

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        refuse(spec, self._limiter)
        await self._working()
        making = asyncio.ensure_future(asyncio.to_thread(self._create, spec))
        try:
            return SandboxRef(self.name, self.host, await shielded(making))
        except asyncio.CancelledError:
            if await wait_until_done(making) is None:  # the caller never got the id, so it must not keep the name
                record = self._store.get(making.result())
                await wait_until_done(asyncio.ensure_future(asyncio.to_thread(self._remove, record)))
            raise

    def _create(self, spec: SandboxSpec) -> str:
        if spec.workspace:
            spec = replace(spec, workspace=str(Path(spec.workspace).resolve()))
        with self._store.locked():
            others = self._store.all()
            self._free(spec.name, others)
            uid = owner.choose(spec.workspace, (one.uid for one in others), self._options)
            self._check_folders(spec, uid)
            identity = self._store.add(spec, time.time(), uid)
            note(str(self._store.folder / identity), "create", image=spec.image or "host")
            return identity

    @staticmethod
    def _check_folders(spec: SandboxSpec, uid: int | None) -> None:
        if spec.workspace:
            owner.check_workspace(spec.workspace, uid)
        if root := jail.root_of(spec.image):
            owner.check_readable(root, uid)

    @staticmethod
    def _check_image(record: Record) -> None:
        """Raise BackendError if the sandbox's image is gone, or lacks its user."""
        try:
            jail.home_of(record.spec)
        except ValueError as error:
            raise BackendError(f"{record.spec.name}: {error}", hint="put the image back, or remove it") from error

    @staticmethod
    def _free(name: str, others: Sequence[Record]) -> None:
        for one in others:
            if one.spec.name == name:
                raise name_taken(name)

    async def _look(self) -> binary.Bwrap | binary.NoBwrap:
        self._bwrap = await asyncio.to_thread(binary.find, self._options.bwrap)
        return self._bwrap

    async def _working(self) -> binary.Bwrap:
        """The program that starts sandboxes. The search waits until one is needed, as it makes a sandbox itself."""
        found = self._bwrap or await self._look()
        if isinstance(found, binary.NoBwrap):
            raise BackendUnreachable(found.reason, hint=found.hint)
        return found

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        record = await self._record(ref)
        if record.status is Status.STOPPING:
            raise Conflict(f"{record.spec.name} is about to end", hint="start it when it has ended")
        if record.status.live:
            return
        bwrap = await self._working()
        order = await asyncio.to_thread(self._order, record, secrets, bwrap)
        await launch.launch(order, record.spec.name, self._store.all)

    def _order(self, record: Record, secrets: Secrets, bwrap: binary.Bwrap) -> dict[str, Any]:
        self._check_image(record)
        self._check_folders(record.spec, record.uid)
        self._sweep(record)
        return launch.order(record, secrets, bwrap, self._limiter, self._options)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        await self._ended(ref, {"op": "stop", "grace": grace_s})

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        number = _signal(signal)
        if number == signals.SIGKILL:
            await self._ended(ref, {"op": "signal", "signal": number})
        else:
            await self._ask(await self._running(ref), {"op": "signal", "signal": number})

    async def _ended(self, ref: SandboxRef, request: dict[str, Any]) -> None:
        """Request the end of a sandbox, and return when it has ended."""
        record = await self._record(ref)
        if not record.status.live:
            return
        try:
            await self._ask(record, request)
        except (Conflict, BackendError):
            if (await self._record(ref)).status.live:
                raise
        while await asyncio.to_thread(is_supervised, record.folder):  # noqa: ASYNC110 - the last instants of another process
            await asyncio.sleep(0.002)

    async def _ask(self, record: Record, request: dict[str, Any]) -> dict[str, Any]:
        connection = await Connection.open(record.folder, record.spec.name)
        try:
            connection.send(request)
            return await connection.answer()
        finally:
            connection.close()

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        await self._freeze(ref, frozen=True)

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        await self._freeze(ref, frozen=False)

    async def _freeze(self, ref: SandboxRef, *, frozen: bool) -> None:
        record = await self._running(ref)
        if (record.status is Status.PAUSED) is frozen:  # a conflict with Docker, too
            raise Conflict(f"{record.spec.name} is {'already' if frozen else 'not'} paused")
        await self._ask(record, {"op": "freeze", "frozen": frozen})

    async def hold(self, permit: Permit, ref: SandboxRef, is_supervised: bool) -> None:
        folder = (await self._record(ref)).folder
        mark = folder / "quarantine"  # its supervisor checks this before it ends the sandbox
        await asyncio.to_thread(mark.touch if is_supervised else partial(mark.unlink, missing_ok=True))

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        await asyncio.to_thread(self._rename, ref, name)

    def _rename(self, ref: SandboxRef, name: str) -> None:
        with self._store.locked():
            record = self._store.get(ref.id)
            self._free(name, [one for one in self._store.all() if one.id != ref.id])
            self._store.change(record, replace(record.spec, name=name))
            note(str(record.folder), "rename", oldName=record.spec.name)
            egress.renamed(record, name)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        try:
            record = await self._record(ref)
        except Damaged as error:
            if not force:
                raise
            record = error.record
            await self._end_damaged(record)
        if record.status.live:
            if not force:
                raise not_stopped(record.spec.name, record.status)
            await self.kill(permit, ref, "SIGKILL")
        await asyncio.to_thread(self._remove, record)

    async def _end_damaged(self, record: Record) -> None:
        """End what is still running of a damaged sandbox. Its supervisor answers, whatever its files say."""
        if await asyncio.to_thread(is_supervised, record.folder):
            await self._ask(record, {"op": "signal", "signal": signals.SIGKILL})

    def _remove(self, record: Record) -> None:
        with self._store.locked():
            until = time.monotonic() + _LAST_S
            while is_supervised(record.folder):  # a supervisor whose sandbox has ended is about to exit
                if time.monotonic() > until:
                    raise Conflict(f"{record.spec.name} was started again meanwhile")
                time.sleep(0.002)
            self._sweep(record)
            self._store.remove(record)

    @staticmethod
    def _sweep(record: Record) -> None:
        """Remove what a killed supervisor could not clean up."""
        folders = record.raw.get("cgroups") or {}
        if folders:
            group = Group(record.raw.get("cgroup_version", 1), dict(folders))
            group.kill()
            group.remove()

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        record = await self._record(ref)
        if record.status.live and await asyncio.to_thread(drift.limits_differ, record, spec, self._options):
            refuse(spec, self._limiter)
            if not self._limiter.parents:
                raise Unsupported("limits of a running sandbox need a writable cgroup", hint="recreate it")
            await self._ask(record, {"op": "limits", "limits": limiting.wanted(spec, self._options)})
        await asyncio.to_thread(self._change, ref, spec)

    def _change(self, ref: SandboxRef, spec: SandboxSpec) -> None:
        with self._store.locked():
            record = self._store.get(ref.id)
            self._store.change(record, spec)
            note(str(record.folder), "update")

    async def adopt(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        await asyncio.to_thread(self._change, ref, spec)

    # -- commands and shells

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        record = await self._running(request.ref)
        self._check_image(record)
        return await executor.start_command(record, request, secrets)

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        record = await self._running(request.ref)
        self._check_image(record)
        return await executor.open_shell(record, request, secrets)


def _signal(name: str) -> int:
    text = name.upper()
    if text.isdigit() and int(text) in set(signals.valid_signals()):
        return int(text)
    try:
        return int(signals.Signals[text if text.startswith("SIG") else f"SIG{text}"])
    except KeyError:
        raise UsageError(f"{name!r} is not a signal", hint="use a name such as SIGTERM") from None
