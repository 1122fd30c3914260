"""Watches an engine for changes: its events, and a full list after every connect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from sandbox_console.backends.common.backoff import Backoff
from sandbox_console.backends.docker import podman_dialect
from sandbox_console.backends.docker.connection import PROBE_S, Connection
from sandbox_console.backends.docker.engine_cache import EngineCache
from sandbox_console.backends.docker.failures import Lost
from sandbox_console.backends.docker.labels import gateway_name, is_gateway
from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.model.event import BackendEvent, Changed, HealthChanged, Listed, Removed
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef

JUST_NOW_S = 1.0
"""Opening a backend reads the engine's description, so the first list does not read it again within this time."""
QUIET_S = 10.0
"""After this long without an event, the engine is checked, as a frozen one keeps its sockets open."""

# What an event changes in a row. exec, attach, top and resize change nothing that is shown.
_TELLING = frozenset(
    {"create", "start", "restart", "die", "kill", "stop", "oom", "pause", "unpause", "rename", "update", "destroy"}
    | {"cleanup"}  # Podman: what is left of an ended one is put away
    | {"health_status"}
)
_PARAMS = {"filters": json.dumps({"type": ["container", "network"]})}
_NETWORKED = frozenset({"connect", "disconnect"})

_GATEWAY = gateway_name("")
"""How the names of gateways begin. An event of a network has no labels of the container."""

Lists = Callable[[], AsyncGenerator[list[Sandbox], None]]
Inspect = Callable[[SandboxRef], Awaitable[Sandbox]]


async def watch(connection: Connection, lists: Lists, inspect: Inspect) -> AsyncGenerator[BackendEvent, None]:
    """Health and the list, then changes; it reconnects for as long as the caller iterates.

    ``lists`` returns the whole list, and returns it again when it knows more.
    """
    reported: BackendHealth | None = None
    backoff = Backoff()
    while True:
        backoff.begin()
        try:
            async with aclosing(_connected(connection, lists, inspect)) as found:
                async for event in found:
                    reported = event.health if isinstance(event, HealthChanged) else reported
                    yield event
        except ConsoleError as error:
            health = connection.down(error)
            if reported is None or reported.ok or reported.reason != health.reason:
                reported = health
                yield HealthChanged(health)
        await backoff.wait()


async def _connected(connection: Connection, lists: Lists, inspect: Inspect) -> AsyncGenerator[BackendEvent, None]:
    engine = await connection.engine()
    if not connection.read_within(JUST_NOW_S):  # a frozen engine would keep the request for its events waiting for ever
        await engine.call("GET", "_ping", timeout_s=PROBE_S)
    # Subscribe first, then list: `events?since` returns at most 256 events, so gaps cannot be filled.
    async with engine.stream("events", _PARAMS) as chunks:
        health = await connection.health(JUST_NOW_S)
        if not health.ok:
            raise Lost(health.reason, hint=health.hint)
        first = True
        async with aclosing(lists()) as found:
            async for rows in found:
                if first:
                    yield HealthChanged(health)
                first = False
                yield Listed(connection.backend, connection.context, tuple(rows))
        async with aclosing(_changed(connection, chunks)) as bursts:
            async for burst in bursts:
                for container, gone in burst.items():
                    event = await _event(SandboxRef(connection.backend, connection.context, container), gone, inspect)
                    if event is not None:
                        yield event


async def _event(ref: SandboxRef, gone: bool, inspect: Inspect) -> BackendEvent | None:
    if gone:
        return Removed(ref)
    try:
        sandbox = await inspect(ref)
        return None if sandbox.name.startswith(_GATEWAY) else Changed(sandbox)
    except NotFound:
        return None  # its destroy event is on the way


async def _changed(connection: Connection, chunks: AsyncIterator[bytes]) -> AsyncGenerator[dict[str, bool], None]:
    """Ids in the order of their last events, and whether they are gone. A burst is reported once."""
    rest = b""
    waiting: asyncio.Task[bytes] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(_next(chunks))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if not done:
                await _still_there(connection)
                continue
            chunk, waiting = waiting.result(), None
            *lines, rest = (rest + chunk).split(b"\n")
            ids: dict[str, bool] = {}
            for line in lines:
                _note(ids, line, connection.history)
            if ids:
                yield ids
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait({waiting})


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    async for chunk in chunks:
        return chunk
    raise Lost("the engine ended its event stream", hint="check that the engine is running")


async def _still_there(connection: Connection) -> None:
    try:
        await (await connection.engine()).call("GET", "_ping", timeout_s=PROBE_S)
    except ConsoleError as error:
        health = connection.down(error)
        raise Lost(health.reason, hint=health.hint) from error


def _note(ids: dict[str, bool], line: bytes, history: EngineCache) -> None:
    if not line.strip():
        return
    data: dict[str, Any] = json.loads(line)
    if data.get("Type") == "network":
        _note_network(ids, data)
        return
    action = podman_dialect.action(str(data.get("Action", "")).partition(":")[0])
    container = data.get("Actor", {}).get("ID") or data.get("id")
    attributes = data.get("Actor", {}).get("Attributes") or {}
    if container and action in _TELLING and not is_gateway(attributes.get("name", ""), attributes):
        ids.pop(container, None)
        ids[container] = action == "destroy"
        if action == "oom":
            history.note_oom(container, int(data.get("timeNano") or 0) / 1e9)
        elif action == "destroy":
            history.forget(container)


def _note_network(ids: dict[str, bool], data: dict[str, Any]) -> None:
    """Note a container that was connected to a network or cut off from one, unless the same burst has more of it."""
    container = (data.get("Actor", {}).get("Attributes") or {}).get("container")
    if container and data.get("Action") in _NETWORKED:
        ids.setdefault(container, False)
