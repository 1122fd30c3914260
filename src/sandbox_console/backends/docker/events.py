"""Reads the engine's events of one container. An engine keeps only its last 256 events, until it ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker import podman_dialect
from sandbox_console.backends.docker.engine_start import starts
from sandbox_console.backends.docker.failures import Lost, about, engine_prefix
from sandbox_console.backends.docker.json_lines import lines
from sandbox_console.backends.docker.labels import EGRESS, HELPER, WRAPPER, gateway_name
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.translate import seconds
from sandbox_console.model.guest import GuestEvent

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

_OF_GATEWAY = ("start", "die", "oom", "destroy")
# The rest of an event's attributes are the container's labels.
_SHOWN = ("exitCode", "signal", "execID", "execDuration", "oldName", "name", "image")


async def read(engine: Engine, id: str, *, since: float | None, follow: bool) -> AsyncGenerator[GuestEvent, None]:
    """A container's events, oldest first. Raises NotFound. Following ends with the container."""
    with about(described(id)):
        found = await engine.call("GET", container_path(id, "json"))
    full = str(found["Id"])
    for start in await _starts(engine, found, since):
        yield start
    params: dict[str, str | int] = {
        "since": f"{since or 1:.9f}",
        "filters": json.dumps({"type": ["container"], "container": [full, *_gateway(found)]}),
    }
    if not follow:
        params["until"] = f"{max(time.time(), since or 1):.9f}"  # the engine refuses an end before the beginning
    ours: set[str] = set()
    async with engine.stream("events", params) as chunks, aclosing(lines(chunks)) as events:
        async for line in events:
            event = json.loads(line)
            guest_event = guest_event_of(event)
            if event.get("Actor", {}).get("ID") != full:
                if guest_event.what in _OF_GATEWAY:
                    yield GuestEvent(guest_event.at, f"gateway_{guest_event.what}")
                continue
            if _by_us(guest_event, ours):
                continue
            yield guest_event
            if guest_event.what == "destroy":
                return
    if follow:
        raise Lost(f"{engine_prefix(engine.context)}its events ended", hint="check that the engine is running")


def _gateway(found: Mapping[str, Any]) -> Sequence[str]:
    """The name of its egress gateway's container, if it has one."""
    labels = found["Config"].get("Labels") or {}
    return [gateway_name(labels[EGRESS])] if EGRESS in labels else []


async def _starts(engine: Engine, found: Mapping[str, Any], since: float | None) -> Sequence[GuestEvent]:
    """Starts of a local engine and of this machine since a container was created."""
    path = engine.endpoint.socket
    if path is None:
        return ()
    created = max(seconds(found.get("Created")) or 0.0, since or 0.0)
    return await asyncio.to_thread(lambda: list(starts(path, created)))


def _by_us(event: GuestEvent, ours: set[str]) -> bool:
    """Whether an event belongs to a command that the console runs for itself; ``ours`` has the ids of those."""
    command = event.attributes.get("execID", "")
    if f" {HELPER} " in event.detail or event.detail.endswith(f" {WRAPPER}"):
        ours.add(command)
    return command in ours and command != ""


def guest_event_of(event: Mapping[str, Any]) -> GuestEvent:
    """Parse one event: in ``exec_create: sh -c true`` they are the word and its detail."""
    action, _, detail = str(event.get("Action", "")).partition(":")
    attributes = event.get("Actor", {}).get("Attributes") or {}
    return GuestEvent(
        at=int(event.get("timeNano") or int(event.get("time", 0)) * 10**9) / 1e9,
        what=podman_dialect.action(action),
        detail=detail.strip(),
        attributes={key: str(attributes[key]) for key in _SHOWN if key in attributes},
    )
