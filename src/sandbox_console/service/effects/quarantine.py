"""Puts a sandbox into quarantine and takes it out, in steps that do not depend on each other, each with its result."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import structs, to_builtins

from sandbox_console.backends.abilities import ClosesPorts, Egress, Holding, able
from sandbox_console.errors import BackendError, Conflict, ConsoleError, NotFound
from sandbox_console.model.action import Permit, Quarantine, Release
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.model.quarantine import Hold, Step
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service.effects.call import Call
from sandbox_console.service.effects.egress import example

STEP_S = 8.0
"""How long a step may take, in seconds, before the next one is begun."""
TURN_S = 40.0
"""How long a quarantine of another console is waited for, in seconds; its steps take at most that."""
_AGAIN_S = 0.2


async def quarantine(action: Quarantine, permit: Permit, call: Call, by: str) -> dict[str, Any]:
    """Hold it, end its sessions, cut its egress and freeze it. Returns the steps. Raises BackendError if all failed."""
    cutting = _Cutting(action, permit, call, by)
    steps = [await _step("hold", cutting.held)]
    async with _turn(call, action.ref, needed=False):
        cutting.target = await _now(call)
        steps += [await _step(step_name, step) for step_name, step in cutting.steps()]
    if not any(step.done for step in steps):
        raise BackendError("; ".join(f"{step.what}: {step.note}" for step in steps))
    return {"steps": to_builtins(steps)}


async def release(action: Release, permit: Permit, call: Call) -> dict[str, Any]:
    """Undo what can be undone. It stays held if a step fails. Raises NotFound, BackendError."""
    async with _turn(call, action.ref, needed=True):
        target = await _now(call)
        stamp = call.holds.stamp(action.ref)
        hold = call.holds.get(action.ref)
        if hold is None:
            raise NotFound(f"{target.name} is not in quarantine")
        undoing = _Undoing(permit, call, target, hold)
        steps = [await _step(step_name, step) for step_name, step in undoing.steps()]
        if failed := [step for step in steps if not step.done]:
            raise BackendError(
                f"{target.name} stays in quarantine: " + "; ".join(f"{step.what}: {step.note}" for step in failed),
                hint="try again once that works",
            )
        await asyncio.to_thread(call.holds.drop, action.ref, stamp)
    return {"steps": to_builtins(steps), "was": hold.label}


@asynccontextmanager
async def _turn(call: Call, ref: SandboxRef, *, needed: bool) -> AsyncIterator[None]:
    """Wait until no other console changes the quarantine of this sandbox.

    If that cannot be had, go on unless it is ``needed``: a sandbox is contained in any case. Raises Conflict.
    """
    lock: int | None = None
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(TURN_S):
            while (lock := call.holds.lock(ref)) is None:  # noqa: ASYNC110 - a lock of other processes
                await asyncio.sleep(_AGAIN_S)
    if lock is None and needed:
        raise Conflict("another console changes this quarantine, or it cannot be locked", hint="try again")
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


async def _step(step_name: str, work: Callable[[], Awaitable[str]]) -> Step:
    try:
        async with asyncio.timeout(STEP_S):
            return Step(step_name, done=True, note=await work())
    except TimeoutError:
        return Step(step_name, done=False, note=f"no answer within {STEP_S:g} s")
    except ConsoleError as error:
        return Step(step_name, done=False, note=error.message)
    except Exception as error:  # noqa: BLE001 - a bug of a backend's must not keep the other steps from being done
        return Step(step_name, done=False, note=f"{type(error).__name__}: {error}")


def _target(call: Call) -> Sandbox:
    if call.target is None:
        raise NotFound("the sandbox does not exist")
    return call.target


async def _now(call: Call) -> Sandbox:
    """The sandbox after the turns of other consoles, which may have frozen or thawed it since it was looked up."""
    target = _target(call)
    with suppress(ConsoleError, TimeoutError):
        async with asyncio.timeout(STEP_S):
            return await call.backend.inspect(target.ref)
    return target


class _Cutting:
    """The steps of a quarantine. What the release needs is on disk before each step is carried out.

    ``target`` is the sandbox as it was last seen.
    """

    def __init__(self, action: Quarantine, permit: Permit, call: Call, by: str) -> None:
        self._permit, self._call, self.target = permit, call, _target(call)
        self._fresh = Hold(str(action.ref), self.target.name, by, action.reason, time.time())

    def _before(self) -> Hold:
        """The hold as it is, with what another console needs for the release, and with the reason given now."""
        before = self._call.holds.get(self.target.ref)
        if before is None or before.damaged:
            return self._fresh
        if not self._fresh.reason or self._fresh.reason == before.reason:
            return before
        return structs.replace(before, reason=self._fresh.reason, by=self._fresh.by)

    def steps(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        target = self.target
        found: list[tuple[str, Callable[[], Awaitable[str]]]] = []
        if target.status.live:
            found.append(("sessions", self._sessions))
        if target.spec is None or target.spec.egress:
            found.append(("egress", self._egress))
        if target.status.live and target.spec is not None and target.spec.ports:
            found.append(("ports", self._ports))
        if target.status.live:
            found.append(("freeze", self._freeze))
        if target.spec is not None and (target.spec.max_duration_s or target.spec.idle_timeout_s):
            found.append(("lifetimes", self._lifetimes))
        return found

    async def _keep(self, hold: Hold) -> None:
        await asyncio.to_thread(self._call.holds.put, hold)

    async def held(self) -> str:
        """The first step."""
        before = self._call.holds.get(self.target.ref)
        if before is None or before.damaged or self._before() != before:
            await self._keep(self._before())
        return "commands, shells and removal are refused"

    async def _sessions(self) -> str:
        count = await self._call.end_sessions(self.target.ref)
        return f"{count} shells and forwards of this console were ended; other consoles end theirs"

    async def _egress(self) -> str:
        gateway = able(self._call.backend, Egress, Capability.EGRESS_UPDATE)
        rules = self._before().rules
        if rules is None:
            rules = tuple((await gateway.egress(self.target.ref)).rules)
            await self._keep(structs.replace(self._before(), rules=rules))
        await gateway.set_egress(self._permit, self.target.ref, ())
        return await self._asked(gateway, rules)

    async def _asked(self, gateway: Egress, rules: Sequence[EgressRule]) -> str:
        """Ask the gateway about what was allowed, until it denies that. Raises TimeoutError if it never does."""
        allowed = [rule.pattern for rule in rules if rule.effect is Effect.ALLOW]
        if not self.target.status.live or not allowed:
            return "everything is denied"
        host, port = example(allowed[0])
        try:
            while (await gateway.probe_egress(self._permit, self.target.ref, host, port)).allowed:  # noqa: ASYNC110
                await asyncio.sleep(_AGAIN_S)
        except (BackendError, Conflict) as error:
            return f"everything is denied; the gateway could not be asked: {error.message}"
        return f"everything is denied; the gateway says so of {host}"

    async def _freeze(self) -> str:
        if self.target.status is Status.PAUSED:
            return "it was paused before"
        able(self._call.backend, object, Capability.PAUSE)
        note = ""
        try:
            await self._keep(structs.replace(self._before(), frozen=True))
        except ConsoleError as error:  # such as a full disk: better frozen, and resumed by hand after the release
            note = f"; the release will not thaw it: {error.message}"
        await self._call.backend.pause(self._permit, self.target.ref)
        return f"no process of it runs{note}"

    async def _ports(self) -> str:
        if not isinstance(self._call.backend, ClosesPorts):
            name = self._call.backend.name
            raise ConsoleError(f"{name} cannot close them while it exists; while it is frozen, nothing answers there")
        await self._keep(structs.replace(self._before(), closed=True))
        await self._call.backend.publish(self._permit, self.target.ref, False)
        return "its published ports are closed"

    async def _lifetimes(self) -> str:
        return await _hold_lifetimes(self._permit, self._call, self.target, on=True)


class _Undoing:
    """The steps of the release. The last one thaws the sandbox."""

    def __init__(self, permit: Permit, call: Call, target: Sandbox, hold: Hold) -> None:
        self._permit, self._call, self._target, self._hold = permit, call, target, hold

    def steps(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        target = self._target
        found: list[tuple[str, Callable[[], Awaitable[str]]]] = []
        if self._hold.rules is not None:
            found.append(("egress", self._egress))
        if self._hold.closed and target.status.live:
            found.append(("ports", self._ports))
        if target.spec is not None and (target.spec.max_duration_s or target.spec.idle_timeout_s):
            found.append(("lifetimes", self._lifetimes))
        if self._hold.frozen and target.status is Status.PAUSED:
            found.append(("thaw", self._thaw))
        return found

    async def _egress(self) -> str:
        gateway = able(self._call.backend, Egress, Capability.EGRESS_UPDATE)
        await gateway.set_egress(self._permit, self._target.ref, self._hold.rules or ())
        return "the rules of before are in force"

    async def _lifetimes(self) -> str:
        return await _hold_lifetimes(self._permit, self._call, self._target, on=False)

    async def _ports(self) -> str:
        if isinstance(self._call.backend, ClosesPorts):
            await self._call.backend.publish(self._permit, self._target.ref, True)
        return "its published ports are open again"

    async def _thaw(self) -> str:
        await self._call.backend.resume(self._permit, self._target.ref)
        return "it runs again"


async def _hold_lifetimes(permit: Permit, call: Call, target: Sandbox, *, on: bool) -> str:
    if not isinstance(call.backend, Holding):
        raise ConsoleError(f"{call.backend.name} ends it when its time limit is reached, and has no way to wait")
    await call.backend.hold(permit, target.ref, on)
    return "its time limits are suspended" if on else "its time limits apply again"
