"""Combines what is known of each sandbox."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.common.messages import not_running
from sandbox_console.backends.microsandbox import boot_failure, boots, labels, main_process, ports, sdk, translate
from sandbox_console.backends.microsandbox.boot_failure import Cause
from sandbox_console.backends.microsandbox.boots import Run
from sandbox_console.backends.microsandbox.main_process import ALL
from sandbox_console.backends.microsandbox.never_started import Pending, PendingStore
from sandbox_console.backends.microsandbox.translate import View
from sandbox_console.errors import BackendError, Conflict, NotFound
from sandbox_console.model.sandbox import Fact, Sandbox, SandboxRef, Status

_JOBS_S = 5.0
"""How long to wait for a running sandbox to report its jobs. A paused one does not answer."""

_FIRST_S = 1.0
"""How often to check whether a sandbox whose events are followed was started for the first time."""


class Inventory:
    """Reads the sandboxes, and caches what cannot change, so that a list of stopped sandboxes takes one query."""

    def __init__(self, pending: PendingStore, installation: Installation) -> None:
        self.pending = pending
        self.installation = installation
        self._jobs: dict[str, tuple[object, Sequence[Any]]] = {}
        self.lingering: frozenset[SandboxRef] = frozenset()
        """The sandboxes of the last list whose main process has ended while their microVM still runs."""

    async def list(self) -> list[Sandbox]:
        """Every sandbox. Raises BackendUnreachable, BackendError."""
        waiting = await asyncio.to_thread(self.pending.all)
        if not await asyncio.to_thread(sdk.used):
            return [_pending(one) for one in waiting]
        module = await sdk.load()
        found, pids = await asyncio.gather(sdk.handles(module), asyncio.to_thread(boots.processes))
        shown = await asyncio.gather(*(self._described(module, handle, pids) for handle in found))
        self.lingering = frozenset(
            one.ref
            for handle, one in zip(found, shown, strict=True)
            if one.status is Status.EXITED and str(handle.status) == "running"
        )
        there = {one.ref.id for one in shown}
        return [*(_pending(one) for one in waiting if one.id not in there), *shown]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One sandbox. Raises NotFound."""
        module = await sdk.load()
        try:
            handle = await self.handle(module, ref)
        except NotFound:
            if (one := await asyncio.to_thread(self.pending.get, ref.id)) is None:
                raise
            return _pending(one)
        return await self._described(module, handle, await asyncio.to_thread(boots.processes))

    async def handle(self, module: Any, ref: SandboxRef) -> Any:
        """The SDK's handle. Raises NotFound, also if the sandbox was never started."""
        if await asyncio.to_thread(sdk.used):
            if not ref.id.startswith("local:"):
                found = await sdk.handles(module, {labels.ID: ref.id})
            else:
                found = [one for one in await sdk.handles(module) if str(one.id) == ref.id]
            if found:
                return found[-1]
        raise NotFound(f"no microsandbox has the id {ref.id!r}", hint="sandbox-console ls --all")

    async def known(self, module: Any, ref: SandboxRef) -> bool:
        """Whether the runtime knows it."""
        try:
            await self.handle(module, ref)
        except NotFound:
            return False
        return True

    async def started(self, module: Any, ref: SandboxRef) -> Any | None:
        """The handle; None if the sandbox was never started. Raises NotFound."""
        try:
            return await self.handle(module, ref)
        except NotFound:
            if await asyncio.to_thread(self.pending.get, ref.id) is None:
                raise
            return None

    async def waiting(self, module: Any, ref: SandboxRef) -> Pending | None:
        """The stored entry of a sandbox that was never started; None if the runtime knows the sandbox.

        If a console was killed during the first start, both exist.
        """
        one = await asyncio.to_thread(self.pending.get, ref.id)
        if one is not None and await self.known(module, ref):
            await asyncio.to_thread(self.pending.remove, one)
            return None
        return one

    async def first_start(self, module: Any, ref: SandboxRef) -> Any | None:
        """Wait for the handle of a sandbox that was never started; None if it is removed before that."""
        with contextlib.suppress(NotFound):
            while (handle := await self.started(module, ref)) is None:  # noqa: ASYNC110 - seldom, and for one sandbox
                await asyncio.sleep(_FIRST_S)
            return handle
        return None

    async def begun(self, module: Any, ref: SandboxRef) -> Any:
        """The handle of a sandbox that has been started. Raises NotFound, Conflict."""
        if (handle := await self.started(module, ref)) is None:
            one = await asyncio.to_thread(self.pending.get, ref.id)
            name = one.spec.name if one else ref.id
            raise not_running(name, "created")
        return handle

    async def running(self, module: Any, ref: SandboxRef) -> Any:
        """The handle of a running sandbox. Raises NotFound, Conflict."""
        handle = await self.begun(module, ref)
        if str(handle.status) != "running":
            raise not_running(translate.view(handle).shown_name, str(handle.status))
        return handle

    async def jobs(self, module: Any, handle: Any) -> Sequence[Any]:
        """The sandbox's jobs; while it is paused, as they were before."""
        key, state = str(handle.id), (str(handle.status), handle.updated_at)
        kept = self._jobs.get(key)
        if kept is not None and (str(handle.status) == "paused" or (kept[0] == state and state[0] == "stopped")):
            return kept[1]
        try:
            async with asyncio.timeout(_JOBS_S):
                found = await _all_jobs(module, handle)
        except (TimeoutError, BackendError, Conflict):
            return kept[1] if kept is not None else ()
        self._jobs[key] = state, found
        return found

    async def main(self, module: Any, handle: Any) -> Any | None:
        """The main process of the newest boot; None if it has none."""
        view = translate.view(handle)
        if view.spec is None or not view.spec.command:
            return None
        jobs = await self.jobs(module, handle)
        return main_process.of_boot(jobs, view.spec.command, await asyncio.to_thread(boots.boot_id, view.name))

    async def _described(self, module: Any, handle: Any, pids: Mapping[str, int]) -> Sandbox:
        view = translate.view(handle)
        jobs = await self.jobs(module, handle) if view.spec is not None and view.spec.command else ()
        run, failed = await asyncio.to_thread(_boot_of, view, jobs, pids.get(view.id))
        return translate.sandbox(view, run, jobs, failed, ours=self.installation.id)


def _boot_of(view: View, jobs: Sequence[Any], pid: int | None) -> tuple[Run, Cause | None]:
    over = view.status in ("stopped", "crashed")
    run = boots.ended(view.name) if over else boots.running(view.name, pid)
    if view.ports and run.pid is not None:
        run = structs.replace(run, places=ports.listening(run.pid, view.ports))
    job = main_process.of_boot(jobs, view.spec.command if view.spec else (), run.id)
    if main_process.killed(job):
        run = structs.replace(run, oom=boots.out_of_memory(view.name))
    return run, boot_failure.failure(view.name) if over else None


async def _all_jobs(module: Any, handle: Any) -> Sequence[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        listing = handle.list_jobs(all=True, cursor=cursor)
        page = await sdk.call(module, f"sandbox {handle.name}", listing)
        found += page.items
        cursor = page.next_cursor
        if cursor is None or len(found) >= ALL:
            return found


def _pending(one: Pending) -> Sandbox:
    return Sandbox(
        ref=SandboxRef("microsandbox", "local", one.id),
        name=one.spec.name,
        status=Status.CREATED,
        image=one.spec.image,
        created_at=one.created_at,
        labels=dict(one.spec.labels),
        spec=one.spec,
        effective=(Fact("isolation", "microVM", note="it boots at its first start"),),
    )
