"""The microsandbox backend: each sandbox is a microVM with its own kernel."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import Progress, Secrets
from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.queued_process import ProcessTerminal
from sandbox_console.backends.microsandbox import (
    capabilities,
    create_options,
    diagnosis,
    guest_scripts,
    images,
    lifecycle,
    logs,
    network,
    pull,
    sdk,
    stats,
    translate,
    update,
)
from sandbox_console.backends.microsandbox.abilities import Abilities
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.backends.microsandbox.never_started import PendingStore
from sandbox_console.backends.microsandbox.process import MicrosandboxProcess
from sandbox_console.backends.microsandbox.snapshots import new_id
from sandbox_console.backends.microsandbox.translate import View
from sandbox_console.backends.microsandbox.watch import Watch
from sandbox_console.errors import Conflict, ConsoleError, InvalidSpec, NotFound, Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Sandbox, SandboxRef, Stats
from sandbox_console.model.shells import NO_SHELL, NO_SHELL_HINT, SHELLS
from sandbox_console.model.spec import SandboxSpec


class MicrosandboxBackend(Abilities):
    """The microVMs in the user's microsandbox home. ``folder`` is for what the runtime cannot store."""

    name = "microsandbox"
    host = "local"

    def __init__(self, folder: Path, options: create_options.Options | None = None) -> None:
        looker = Inventory(PendingStore(folder / "created"), Installation(folder))
        super().__init__(looker, options or create_options.Options())

    async def open(self) -> None:
        """Does nothing: the SDK is loaded when it is needed."""

    async def close(self) -> None:
        """Does nothing: nothing stays open."""

    def capabilities(self) -> Capabilities:
        return capabilities.capabilities()

    async def health(self) -> BackendHealth:
        return await diagnosis.health()

    async def diagnose(self) -> Sequence[Diagnosis]:
        return await diagnosis.look()

    async def list(self) -> builtins.list[Sandbox]:
        return await self._looker.list()

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        return await self._looker.inspect(ref)

    async def watch(self) -> AsyncGenerator[BackendEvent, None]:
        async with aclosing(Watch(self._looker, self.health, self._retire).events()) as events:
            async for event in events:
                yield event

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        module = await sdk.load()
        if (handle := await self._looker.started(module, ref)) is None:
            return
        async with aclosing(logs.read(module, self._looker, handle, query)) as batches:
            async for batch in batches:
                yield batch

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        module = await sdk.load()
        handle = await self._looker.started(module, ref)
        if handle is None or str(handle.status) not in ("running", "paused"):
            return
        async with aclosing(stats.read(module, handle, interval_s)) as samples:
            async for sample in samples:
                yield sample

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return create_options.problems(spec)

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        """Store it until its first start, and pull its image. Raises InvalidSpec, Conflict, NotFound."""
        need(permit)
        if problems := create_options.problems(spec):
            raise InvalidSpec(problems)
        network.check(secrets)
        module = await sdk.load()
        if any(one.name == spec.name for one in await self._looker.list()) or await sdk.exists(module, spec.name):
            raise name_taken(spec.name)
        if not spec.image.startswith("dir:") and not await pull.there(module, spec.image):
            await images.pull(module, spec.image, self._options, progress)
        identity = new_id()
        await asyncio.to_thread(self._looker.pending.add, identity, spec)
        return SandboxRef(self.name, self.host, identity)

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        need(permit)
        module = await sdk.load()
        if one := await self._looker.waiting(module, ref):
            await lifecycle.boot_new(module, self._looker, one, secrets, self._options)
        else:
            await lifecycle.boot_again(module, self._looker, await self._looker.handle(module, ref), secrets)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        need(permit)
        module = await sdk.load()
        if (handle := await self._looker.started(module, ref)) is not None:
            await lifecycle.stop(module, self._looker, handle, grace_s)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        need(permit)
        module = await sdk.load()
        await lifecycle.kill(module, self._looker, await self._looker.begun(module, ref), signal)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        module = await sdk.load()
        handle = await self._looker.running(module, ref)
        await self._looker.jobs(module, handle)  # it does not answer while it is frozen
        await sdk.call(module, f"sandbox {handle.name}", handle.pause())

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        module = await sdk.load()
        handle = await self._looker.begun(module, ref)
        if str(handle.status) != "paused":
            raise Conflict(f"sandbox {handle.name} is not paused")
        await sdk.call(module, f"sandbox {handle.name}", handle.resume())

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        need(permit)
        await update.rename(await sdk.load(), self._looker, ref, name)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        module = await sdk.load()
        if one := await self._looker.waiting(module, ref):
            await asyncio.to_thread(self._looker.pending.remove, one)
            return
        await lifecycle.remove(module, self._looker, ref, force)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        need(permit)
        await update.update(await sdk.load(), self._looker, ref, spec)

    async def out_of_bounds(self, ref: SandboxRef, spec: SandboxSpec) -> Mapping[str, str]:
        """The fields that a running sandbox cannot change live. Raises NotFound."""
        return await update.out_of_bounds(await sdk.load(), self._looker, ref, spec)

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> MicrosandboxProcess:
        need(permit)
        module = await sdk.load()
        seen, machine = await self._entered(module, request.ref)
        options = lifecycle.exec_options(seen.spec, secrets, request.env, request.workdir, request.user)
        handle = await self._stream(module, machine, request.argv, **options)
        return MicrosandboxProcess(handle, lambda session: guest_scripts.sweep(machine, session))

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> ProcessTerminal:
        need(permit)
        module = await sdk.load()
        seen, machine = await self._entered(module, request.ref)
        shell = request.shell or await self._best_shell(machine)
        env = {"TERM": request.term, **request.env}
        options = lifecycle.exec_options(seen.spec, secrets, env, request.workdir, request.user)
        handle = await self._stream(module, machine, request.argv(shell), tty=True, **options)
        terminal = ProcessTerminal(MicrosandboxProcess(handle, lambda session: guest_scripts.sweep(machine, session)))
        await terminal.resize(request.cols, request.rows)
        return terminal

    async def _entered(self, module: Any, ref: SandboxRef) -> tuple[View, Any]:
        """What is known about a running sandbox, and a connection to it. Raises NotFound, Conflict."""
        handle = await self._looker.running(module, ref)
        return translate.view(handle), await sdk.call(module, f"sandbox {handle.name}", handle.connect())

    async def _best_shell(self, machine: Any) -> str:
        for path in SHELLS:
            if await sdk.result(machine.fs.exists(path)):
                return path
        raise Unsupported(NO_SHELL, hint=NO_SHELL_HINT)

    async def _retire(self, ref: SandboxRef) -> bool:
        """Shut down a microVM whose main process has ended. Returns False if that fails."""
        module = await sdk.load()
        try:
            await lifecycle.power_off(module, await self._looker.running(module, ref))
        except (NotFound, Conflict):
            return True  # somebody else shut it down
        except ConsoleError:
            return False
        return True


__all__ = ["MicrosandboxBackend"]
