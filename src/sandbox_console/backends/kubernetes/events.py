"""Events of Kubernetes about a Sandbox and its Pod: scheduled, pulled, killing, evicted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

import msgspec

from sandbox_console.backends.kubernetes import objects
from sandbox_console.backends.kubernetes.causes import seconds
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.errors import BackendError
from sandbox_console.model.guest import GuestEvent

POLL_S = 2.0
"""Between two looks while events are followed. Each is a list of those of one object."""

_MOST = "500"
_WORDS = {"Started": "start", "Created": "create", "Pulling": "pull"}
"""The console's words for some of Kubernetes' reasons. It has none for the end of a container: that is in its state."""


class _Involved(objects.Camel, frozen=True):
    uid: str = ""
    kind: str = ""


class _Event(objects.Camel, frozen=True):
    metadata: objects.Meta
    involved_object: _Involved = _Involved()
    reason: str | None = None
    message: str | None = None
    type: str | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None


class _Page(objects.Camel, frozen=True):
    items: tuple[_Event, ...] = ()


async def guest_events(
    cluster: Cluster, namespace: str, fields: Sequence[str], *, since: float | None, follow: bool
) -> AsyncGenerator[GuestEvent, None]:
    """The events about objects, oldest first. An API server forgets them after an hour.

    Each of ``fields`` names objects: ``uid=...`` or ``name=...``, for all Pods that a Sandbox has had.
    """
    reported: set[tuple[str, int]] = set()
    async with aclosing(_polled(cluster, namespace, fields, follow=follow)) as looks:
        async for events in looks:
            for event in sorted(events, key=_at):
                mark = (event.metadata.uid, event.count or 1)
                if mark in reported or (since is not None and _at(event) < since):
                    continue
                reported.add(mark)
                yield _translated(event)


async def _polled(
    cluster: Cluster, namespace: str, fields: Sequence[str], *, follow: bool
) -> AsyncGenerator[Iterable[_Event], None]:
    path = await cluster.core("events", namespace=namespace)
    while True:
        found = await asyncio.gather(*(_read(cluster, path, namespace, field) for field in fields))
        yield [event for events in found for event in events]
        if not follow:
            return
        await asyncio.sleep(POLL_S)


async def _read(cluster: Cluster, path: str, namespace: str, field: str) -> tuple[_Event, ...]:
    request = f"list events in {namespace}"
    params = (("fieldSelector", f"involvedObject.{field}"), ("limit", _MOST))
    try:
        return msgspec.json.decode(await cluster.call("GET", path, request, params=params), type=_Page).items
    except msgspec.DecodeError as error:
        raise BackendError(f"{request}: the answer cannot be read: {error}") from None


def _at(event: _Event) -> float:
    text = event.last_timestamp or event.event_time or event.first_timestamp or event.metadata.creation_timestamp
    return seconds(text) or 0.0


def _translated(event: _Event) -> GuestEvent:
    attributes = {"kind": event.involved_object.kind, "type": event.type or "", "count": str(event.count or 1)}
    reason = event.reason or "event"
    return GuestEvent(_at(event), _WORDS.get(reason, reason), event.message or "", attributes)
