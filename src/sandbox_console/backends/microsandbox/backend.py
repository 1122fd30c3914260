"""microsandbox: seen, read and removed in this version; made and entered in a later one."""

# ruff: noqa: ARG002 - the protocol's arguments, of calls that are refused whatever they say

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from sandbox_console.backends.base import Process, Progress, Secrets, Terminal
from sandbox_console.backends.microsandbox import kvm, logs, sdk, translate
from sandbox_console.errors import BackendUnreachable, Conflict, ConsoleError, NotFound, Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.event import BackendEvent, HealthChanged, Listed
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Stats
from sandbox_console.model.spec import SandboxSpec

LOOK_S = 2.0
"""How often the runtime's database is looked at for a change (three stat() calls)."""

_CAN = frozenset({Capability.REMOVE, Capability.LOGS, Capability.LOG_STREAMS})
_NOT_YET = "not in this version"


class MicrosandboxBackend:
    """The microVMs in the user's microsandbox home."""

    name = "microsandbox"
    host = "local"

    async def open(self) -> None:
        """Nothing: the SDK is loaded when it is needed."""

    async def close(self) -> None:
        """Nothing is held."""

    def capabilities(self) -> Capabilities:
        return Capabilities(_CAN, dict.fromkeys(frozenset(Capability) - _CAN, _NOT_YET))

    async def health(self) -> BackendHealth:
        try:
            if found := await asyncio.to_thread(kvm.problem):
                return self._down(*found)
            if failure := await self._last_boot():
                return self._down(f"the last boot failed: {failure}", "msb doctor tells more")
        except ConsoleError as error:
            return self._down(error.message, error.hint)
        return BackendHealth(self.name, self.host, HealthState.OK, version=_version())

    async def list(self) -> builtins.list[Sandbox]:
        if not await asyncio.to_thread(sdk.used):
            return []
        module = await self._sdk()
        return [await _described(module, handle) for handle in await sdk.handles(module)]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        module = await self._sdk()
        return await _described(module, await _handle(module, ref))

    async def watch(self) -> AsyncGenerator[BackendEvent, None]:
        """Health and the list, and both again when the runtime's database has changed."""
        seen: object = None
        told: BackendHealth | None = None
        while True:
            now = await asyncio.to_thread(sdk.stamp)
            if seen is None or now != seen:
                seen = now
                health = await self.health()
                if health != told:
                    told = health
                    yield HealthChanged(health)
                try:
                    yield Listed(self.name, self.host, tuple(await self.list()))
                except ConsoleError as error:
                    told = self._down(error.message, error.hint)
                    yield HealthChanged(told)
            await asyncio.sleep(LOOK_S)

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        module = await self._sdk()
        async with aclosing(logs.read(module, await _handle(module, ref), query)) as batches:
            async for batch in batches:
                yield batch

    def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        return _NoSamples()

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return {} if spec.image else {"image": "an image is needed"}

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        _refuse("create")

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        _refuse("start")

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        _refuse("stop")

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        _refuse("kill")

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        _refuse("pause")

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        _refuse("resume")

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        _refuse("rename")

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        if not isinstance(permit, Permit):
            raise TypeError("a changing call needs a Permit")
        module = await self._sdk()
        handle = await _handle(module, ref)
        try:
            with sdk.translated(module, f"sandbox {ref.id}"):
                await sdk.result(handle.destroy(force=True) if force else handle.remove())
        except ConsoleError as error:
            if isinstance(error.__cause__, module.SandboxStillRunningError):
                raise Conflict(f"sandbox {ref.id} runs", hint="remove it with --force") from error
            raise

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        _refuse("update")

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        _refuse("exec")

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        _refuse("shell")

    async def _sdk(self) -> Any:
        try:
            return await sdk.load()
        except Unsupported as error:
            raise BackendUnreachable(error.message, hint=error.hint) from error

    async def _last_boot(self) -> str:
        """Why the newest sandbox's boot failed; empty where it did not, or where there is none."""
        if not await asyncio.to_thread(sdk.used):
            return ""
        module = await sdk.load()
        newest = max(await sdk.handles(module), key=lambda handle: handle.updated_at or 0, default=None)
        return await _boot_failure(module, newest) if newest is not None else ""

    def _down(self, reason: str, hint: str) -> BackendHealth:
        return BackendHealth(self.name, self.host, HealthState.UNAVAILABLE, reason, hint, _version())


class _NoSamples:
    """An iterator that refuses when it is asked, as an asynchronous generator does."""

    def __aiter__(self) -> AsyncIterator[Stats]:
        return self

    async def __anext__(self) -> Stats:
        _refuse("stats")


async def _handle(module: Any, ref: SandboxRef) -> Any:
    found = [handle for handle in await sdk.handles(module) if str(handle.id) == ref.id]
    if not found:
        raise NotFound(f"no microsandbox has the id {ref.id!r}", hint="sandbox-console ls --all")
    return found[0]


async def _described(module: Any, handle: Any) -> Sandbox:
    return translate.sandbox(handle, detail=await _boot_failure(module, handle))


async def _boot_failure(module: Any, handle: Any) -> str:
    if str(handle.status) not in ("stopped", "crashed"):
        return ""
    with sdk.translated(module, "a system log"):
        entries = await sdk.result(handle.logs(tail=50, sources=[module.LogReadSource.SYSTEM]))
    return kvm.boot_failure(b"".join(entry.data for entry in entries))


def _refuse(verb: str) -> NoReturn:
    raise Unsupported(
        f"microsandbox: {verb} is not in this version; list, show, logs and remove are",
        hint="use the msb command, or another backend",
    )


def _version() -> str:
    try:
        return version("microsandbox")
    except PackageNotFoundError:
        return ""
