"""Watches a cluster: its lists, then each change, from the version of the lists on.

Every watch ends after some minutes, and goes on from its last version. Where that is too old (410), the lists are read
again. Bookmarks keep versions fresh where nothing changes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing

import msgspec

from sandbox_console.backends.common.backoff import Backoff
from sandbox_console.backends.kubernetes import claims, lists, objects
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.failures import Gone
from sandbox_console.backends.kubernetes.inventory import Inventory, Source
from sandbox_console.backends.kubernetes.lists import Lists
from sandbox_console.errors import BackendError, BackendUnreachable, ConsoleError
from sandbox_console.model.event import BackendEvent, HealthChanged, Listed
from sandbox_console.model.sandbox import BackendHealth

QUIET_S = 10.0
"""After this long without an event the server is asked whether it is there, as a frozen one keeps its sockets open."""

LASTS_S = 300
"""A watch is asked to end after this many seconds, and up to half as many more, so that they do not end together."""

_BURST_S = 0.05
"""Events that come this close together are told once for each sandbox."""

Line = tuple[Source, objects.Event]
Down = Callable[[ConsoleError], BackendHealth]


async def watch(
    cluster: Cluster, inventory: Inventory, health: Callable[[], Awaitable[BackendHealth]], down: Down
) -> AsyncGenerator[BackendEvent, None]:
    """Health and the list, then changes; it reconnects for as long as the caller iterates."""
    reported: BackendHealth | None = None
    backoff = Backoff()
    while True:
        backoff.begin()
        try:
            found = await lists.read(cluster)
            inventory.replace(found.boxes, found.tracked, found.selected, found.claims)
            reported = await health()
            yield HealthChanged(reported)
            yield Listed(reported.backend, reported.host, tuple(inventory.rows()))
            async with aclosing(_changes(cluster, inventory, found)) as events:
                async for event in events:
                    yield event
        except Gone:
            continue
        except ConsoleError as error:
            now = down(error)
            if reported is None or reported.ok or reported.reason != now.reason:
                reported = now
                yield HealthChanged(now)
        await backoff.wait()


async def _changes(cluster: Cluster, inventory: Inventory, found: Lists) -> AsyncGenerator[BackendEvent, None]:
    queue: asyncio.Queue[Line] = asyncio.Queue(1000)
    streams = {asyncio.create_task(_follow(cluster, source, at, queue)) for source, at in found.versions.items()}
    try:
        while True:
            lines = await _burst(cluster, queue, streams)
            for uid in dict.fromkeys(uid for line in lines for uid in _taken(inventory, *line)):
                yield inventory.event(uid)
    finally:
        for one in streams:
            one.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def _burst(cluster: Cluster, queue: asyncio.Queue[Line], streams: Iterable[asyncio.Task[None]]) -> list[Line]:
    """What has come, once something has. Raises what ended a stream."""
    first = asyncio.create_task(queue.get())
    try:
        while not first.done():
            await asyncio.wait({first, *streams}, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            for stream in streams:
                if stream.done():
                    stream.result()
                    raise BackendError("a watch ended")
            if not first.done():
                await cluster.call("GET", "/version", "get version", timeout_s=3.0)
    finally:
        first.cancel()
    lines = [first.result()]
    await asyncio.sleep(_BURST_S)
    while not queue.empty():
        lines.append(queue.get_nowait())
    return lines


async def _follow(cluster: Cluster, source: Source, version: str, queue: asyncio.Queue[Line]) -> None:
    """Put the events of one list into the queue, for ever. Raises Gone, BackendUnreachable."""
    path, params, request = await lists.list_request(cluster, source)
    while True:
        asked = (
            *params,
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(LASTS_S + random.randrange(LASTS_S // 2))),  # noqa: S311 - spreads load
        )
        async with cluster.stream(path, request.replace("list", "watch", 1), asked) as answer:
            async for line in _lines(answer.content.iter_any()):
                event = _event(line, request)
                version = objects.bare(event.object).resource_version or version
                if event.type != "BOOKMARK":
                    await queue.put((source, event))


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Lines of any length: an object has up to 1.5 MB."""
    parts: list[bytes] = []
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line))
            parts.clear()
        if rest:
            parts.append(rest)


def _event(line: bytes, request: str) -> objects.Event:
    try:
        event = objects.event(line)
        if event.type != "ERROR":
            return event
        problem = objects.problem(event.object)
    except msgspec.DecodeError as error:
        raise BackendUnreachable(f"{request}: the watch cannot be read: {error}") from None
    if problem.code == 410:
        raise Gone(f"{request}: {problem.message[:200]}")
    raise BackendUnreachable(f"{request}: the watch ended: {problem.message[:200]}")


def _taken(inventory: Inventory, source: Source, event: objects.Event) -> list[str]:
    """The uids of the rows that an event touches."""
    if event.type == "DELETED":
        return [inventory.drop(source, objects.bare(event.object).uid)]
    if source == "boxes":
        return inventory.put_box(objects.box(event.object))
    try:
        if source == "claims":
            return [inventory.put_claim(claims.claim(event.object))]
        return [inventory.put_pod(source, objects.pod(event.object))]
    except msgspec.DecodeError:
        return []
