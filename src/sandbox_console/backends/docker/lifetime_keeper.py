"""Ends containers whose time is over, in a process that outlives every console: one per engine and state folder.

It follows the engine's events and inspects a container when its time may be over. It waits for an engine that is frozen
or gone: a limit that passed meanwhile is enforced when the engine answers again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sandbox_console.backends.abilities import RecordEnd
from sandbox_console.backends.common.backoff import Backoff
from sandbox_console.backends.docker.connection import PROBE_S
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.gateways import token_of
from sandbox_console.backends.docker.json_lines import lines
from sandbox_console.backends.docker.lifetime_files import Lifetime, LifetimeFiles
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.backends.docker.translate import seconds
from sandbox_console.errors import BackendUnreachable, ConsoleError
from sandbox_console.model.sandbox import SandboxRef

if TYPE_CHECKING:
    from sandbox_console.backends.docker.connection import Connection
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.gateways import Gateways

GRACE_S = 10
"""How long to wait between the request to end and the kill, as with bubblewrap."""

QUIET_S = 10.0
"""After this long without an event, the keeper checks that the engine answers."""

RETRY_S = 1.0
"""How long to wait before an end that failed is tried again."""

HELD_S = 2.0
"""How often a limit that has passed is checked while its container is in quarantine."""

_MARGIN_S = 0.02
_USE = frozenset({"exec_create", "exec_start", "exec_die", "attach", "archive-path", "extract-to-dir", "unpause"})
_STAMP = slice(8, 38)  # after a frame's header, see log_frames
_PARAMS = {"filters": json.dumps({"type": ["container"]})}


Signs = tuple[float | None, float | None]
"""When its main process last wrote a line, and when a byte last passed one of its ports, in wall-clock time."""


class KeptContainer:
    """One run of one container: when it began, and when it was last in use."""

    def __init__(self, lifetime: Lifetime, data: Mapping[str, Any]) -> None:
        self.lifetime = lifetime
        self.checkup = _checkup(data)
        self.gateway_token = token_of(data)
        self.used_s = time.monotonic()
        self.looked_s = self.used_s
        self.signs: Signs = (None, None)
        self.retry_s = 0.0

    @property
    def due_s(self) -> float:
        """When to check next, in seconds of the monotonic clock."""
        longest, idle = self.lifetime.max_duration_s, self.lifetime.idle_timeout_s
        ends = [self.lifetime.began_s + longest] if longest is not None else []
        ends += [self.used_s + idle] if idle is not None else []
        return max(min(ends), self.retry_s)

    @property
    def over(self) -> bool:
        """Whether its maximum duration has passed."""
        longest = self.lifetime.max_duration_s
        return longest is not None and time.monotonic() >= self.lifetime.began_s + longest


class LifetimeKeeper:
    """Enforces the limits of all containers of an engine that have some, until none of them is left."""

    def __init__(self, connection: Connection, lifetimes: LifetimeFiles, gateways: Gateways, record: RecordEnd) -> None:
        self._connection, self._lifetimes, self._gateways, self._record = connection, lifetimes, gateways, record
        self._containers: dict[str, KeptContainer] = {}
        self._ends: dict[str, asyncio.Task[None]] = {}
        self.engine_id = ""

    @property
    def count(self) -> int:
        """How many running containers have a limit."""
        return len(self._containers)

    async def run(self, engine_id: str) -> None:
        """Go on until no container of the engine has a limit any more, or the engine is another one."""
        self.engine_id = engine_id
        backoff = Backoff()
        while await asyncio.to_thread(self._lifetimes.all, engine_id):
            backoff.begin()
            with suppress(ConsoleError, ValueError):
                if not await self._connected():
                    break
            await backoff.wait()
        await asyncio.gather(*self._ends.values(), return_exceptions=True)

    async def _connected(self) -> bool:
        """Run while one connection lasts; returns False if there is nothing left to keep."""
        engine = await self._connection.engine()
        async with engine.stream("events", _PARAMS) as chunks:
            await self._connection.refresh()
            if self._connection.info.get("ID") != self.engine_id:
                return False
            await self._adopt(engine)
            queue: asyncio.Queue[bytes | None] = asyncio.Queue()
            reading = asyncio.create_task(_read(chunks, queue))
            try:
                return await self._turn(engine, queue)
            finally:
                reading.cancel()
                await asyncio.wait([reading])

    async def _turn(self, engine: Engine, queue: asyncio.Queue[bytes | None]) -> bool:
        left = True
        while left:
            now = time.monotonic()
            due = min(
                (container.due_s for key, container in self._containers.items() if key not in self._ends),
                default=now + QUIET_S,
            )
            try:
                async with asyncio.timeout(max(0.0, min(due - now, QUIET_S))):
                    line = await queue.get()
            except TimeoutError:
                await self._look(engine)
                if due >= now + QUIET_S:
                    left = await self._quiet(engine)
                continue
            if line is None:
                raise BackendUnreachable("the engine ended its event stream")
            left = await self._happened(engine, json.loads(line))
        return False

    async def _quiet(self, engine: Engine) -> bool:
        """Check, after a quiet time, that the engine answers, and record what could not be recorded before."""
        await engine.call("GET", "_ping", timeout_s=PROBE_S)
        left = await asyncio.to_thread(self._lifetimes.all, self.engine_id)
        for lifetime in left:
            if lifetime.unrecorded and lifetime.id not in self._ends and lifetime.id not in self._containers:
                await self._record_late(lifetime)
        return bool(left)

    async def _adopt(self, engine: Engine) -> None:
        """Take over every container that has a limit, in its current state."""
        for lifetime in await asyncio.to_thread(self._lifetimes.all, self.engine_id):
            await self._take(engine, lifetime)

    async def _take(self, engine: Engine, lifetime: Lifetime) -> None:
        data = await self._inspected(engine, lifetime.id)
        if data is None:
            if lifetime.unrecorded:
                await self._record(self._target(lifetime), lifetime.why, None)
            self._gone(lifetime.id)
            return
        run = str(data["State"].get("StartedAt", ""))
        if not data["State"].get("Running"):
            self._containers.pop(lifetime.id, None)
            return
        here = boot()
        if (run, here) != (lifetime.run, lifetime.boot):
            began_s = time.monotonic() - await _age(engine, run)
            lifetime = structs.replace(
                lifetime, run=run, boot=here, began_s=began_s, ended="", why="", unrecorded=False
            )
            await asyncio.to_thread(self._lifetimes.put, lifetime)
        known = self._containers.get(lifetime.id)
        if known is None or known.lifetime.run != run:
            known = self._containers[lifetime.id] = KeptContainer(lifetime, data)
        if lifetime.idle_timeout_s is not None:  # what happened while nobody listened is unknown
            known.used_s = known.looked_s = time.monotonic()
            known.signs = await self._signs(engine, data)

    def _gone(self, id: str) -> None:
        self._containers.pop(id, None)
        self._lifetimes.forget(id)

    async def _happened(self, engine: Engine, event: Mapping[str, Any]) -> bool:
        """Handle an event. Returns whether there may be something left to keep."""
        action, _, detail = str(event.get("Action", "")).partition(":")
        box = str((event.get("Actor") or {}).get("ID") or "")
        if action == "destroy":
            await asyncio.to_thread(self._gone, box)
            return bool(await asyncio.to_thread(self._lifetimes.all, self.engine_id))
        if action == "die":
            self._containers.pop(box, None)
        elif action in ("start", "restart"):
            lifetime = await asyncio.to_thread(self._lifetimes.get, box)
            if lifetime is not None and lifetime.engine == self.engine_id:
                await self._take(engine, lifetime)
        elif (
            action in _USE
            and (container := self._containers.get(box))
            and not (container.checkup and detail.strip() == container.checkup)
        ):
            container.used_s = time.monotonic()
        return True

    async def _look(self, engine: Engine) -> None:
        """End containers whose time is over, and check whether others without commands were in use in other ways."""
        for box, container in list(self._containers.items()):
            if box in self._ends or container.due_s > time.monotonic():
                continue
            if await asyncio.to_thread(self._lifetimes.is_on_hold, container.lifetime.id):
                container.retry_s = time.monotonic() + HELD_S
                continue
            reason = "max_duration_s ran out" if container.over else await self._idle(engine, container)
            if reason:
                self._ends[box] = asyncio.create_task(self._end(engine, container, reason))

    async def _idle(self, engine: Engine, container: KeptContainer) -> str:
        """Why to end a container; empty if it was in use."""
        limit, data = container.lifetime.idle_timeout_s, await self._inspected(engine, container.lifetime.id)
        if limit is None or data is None or not data["State"].get("Running"):
            self._containers.pop(container.lifetime.id, None)
            return ""
        now = time.monotonic()
        if data["State"].get("Paused") or await self._busy(engine, data, container):
            container.used_s = now
        else:
            signs = await self._signs(engine, data)
            for at in {
                at for at, before in zip(signs, container.signs, strict=True) if at is not None and at != before
            }:
                ago = time.time() - at
                # The time of day may have jumped: then it was in use, at an unknown time.
                container.used_s = max(container.used_s, now - (ago if 0 <= ago <= now - container.looked_s else 0.0))
            container.signs = signs
        container.looked_s = now
        return "idle_timeout_s ran out" if container.used_s + limit <= now + _MARGIN_S else ""

    async def _signs(self, engine: Engine, data: Mapping[str, Any]) -> Signs:
        return await _last_line(engine, str(data["Id"])), await asyncio.to_thread(self._gateways.port_used, data)

    async def _busy(self, engine: Engine, data: Mapping[str, Any], container: KeptContainer) -> bool:
        """Whether a command is running in it, other than the image's own health check."""
        for command in data.get("ExecIDs") or ():
            with suppress(Refused):
                found = await engine.call("GET", f"exec/{command}/json")
                process = found.get("ProcessConfig") or {}
                words = " ".join([str(process.get("entrypoint", "")), *(process.get("arguments") or ())])
                if found["Running"] and words.strip() != (container.checkup or None):
                    return True
        return False

    async def _end(self, engine: Engine, container: KeptContainer, reason: str) -> None:
        """End a container. The reason is written to disk first, and the attempt is recorded if possible."""
        lifetime = structs.replace(container.lifetime, ended=container.lifetime.run, why=reason, unrecorded=True)
        await asyncio.to_thread(self._lifetimes.put, lifetime)

        async def stop() -> None:
            await _stopped(engine, lifetime.id)
            if container.gateway_token:
                await self._gateways.stop(engine, container.gateway_token)

        try:
            if await self._record(self._target(lifetime), reason, stop):
                await asyncio.to_thread(self._lifetimes.put, structs.replace(lifetime, unrecorded=False))
        except ConsoleError:
            pass  # the engine froze or refused, but the time is still over
        finally:
            container.retry_s = time.monotonic() + RETRY_S
            self._ends.pop(lifetime.id, None)

    async def _record_late(self, lifetime: Lifetime) -> None:
        if await self._record(self._target(lifetime), lifetime.why, None):
            await asyncio.to_thread(self._lifetimes.put, structs.replace(lifetime, unrecorded=False))

    def _target(self, lifetime: Lifetime) -> SandboxRef:
        return SandboxRef(self._connection.backend, self._connection.context, lifetime.id)

    async def _inspected(self, engine: Engine, id: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await engine.call("GET", container_path(id, "json"))
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return found


async def _read(chunks: AsyncIterator[bytes], queue: asyncio.Queue[bytes | None]) -> None:
    try:
        async with aclosing(lines(chunks)) as found:
            async for line in found:
                queue.put_nowait(line)
    except ConsoleError:
        pass
    finally:
        queue.put_nowait(None)


async def _stopped(engine: Engine, id: str) -> None:
    """Stop a container, paused or not. It is no error if it has ended or is gone."""
    with suppress(Refused):  # it is not paused
        await engine.call("POST", container_path(id, "unpause"))
    try:
        await engine.call("POST", container_path(id, "stop"), params={"t": GRACE_S}, timeout_s=GRACE_S + 30)
    except Refused as error:
        if error.status != 404:
            raise


async def _age(engine: Engine, run: str) -> float:
    """How long ago a container began, in seconds. Both times are the engine's: another machine's clock may differ."""
    now = seconds((await engine.call("GET", "info", timeout_s=PROBE_S)).get("SystemTime"))
    began = seconds(run)
    return max(0.0, now - began) if now is not None and began is not None else 0.0


async def _last_line(engine: Engine, id: str) -> float | None:
    """When the main process wrote its last line; None if it wrote none."""
    params: dict[str, str | int] = {"stdout": 1, "stderr": 1, "tail": 1, "timestamps": 1}
    head = b""
    with suppress(Refused):
        async with engine.stream(container_path(id, "logs"), params) as chunks:
            async for chunk in chunks:
                head += chunk
                if len(head) >= _STAMP.stop:
                    break
    return seconds(head[_STAMP].decode("ascii", "replace"))


def _checkup(data: Mapping[str, Any]) -> str:
    """The command line of the image's own health check, as the engine's events show it."""
    test = list((data["Config"].get("Healthcheck") or {}).get("Test") or ())
    if test[:1] == ["CMD-SHELL"]:
        return " ".join([*(data["Config"].get("Shell") or ["/bin/sh", "-c"]), *test[1:]])
    return " ".join(test[1:]) if test[:1] == ["CMD"] else ""


def boot() -> str:
    """The id of this machine's current boot, to which its monotonic clock belongs."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
