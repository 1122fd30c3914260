"""The operations on a sandbox: its life, and what is seen of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from msgspec import structs

from sandbox_console.errors import NotFound, Unsupported, UsageError
from sandbox_console.library import SandboxHandle
from sandbox_console.model.action import TakeSnapshot, Update
from sandbox_console.model.log import LogQuery, LogRecord
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.servers.a3s_box import rows
from sandbox_console.servers.a3s_box.boxes import Boxes
from sandbox_console.servers.a3s_box.protocol import (
    Create,
    Events,
    Identity,
    Logs,
    Named,
    Resources,
    Restart,
    SnapshotOf,
)

_SAMPLE_S, _PATIENCE_S, _POLL_S = 0.2, 3.0, 0.2
_RESOURCES = {"pids_limit", "cpu_quota", "cpu_period"}


async def listed(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``sandbox_list``."""
    found = [rows.summary(one) for one in await boxes.every()]
    return {"sandboxes": [one for one in found if asked.all or one["active"]]}


async def got(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``sandbox_get``: by id, by the beginning of one, or by name."""
    every = [rows.summary(one) for one in await boxes.every()]
    exact = [one for one in every if asked.query in (one["id"], one["short_id"], one["name"])]
    found = exact or [one for one in every if asked.query and one["id"].startswith(asked.query)]
    if len(found) > 1:
        raise UsageError(f"several sandboxes are called {asked.query}", hint="use an id")
    return {"sandbox": found[0] if found else None}


async def create(boxes: Boxes, asked: Create) -> dict[str, Any]:
    """``sandbox_create``."""
    return await _told(boxes, await boxes.create(asked))


async def inspect(boxes: Boxes, asked: Identity) -> dict[str, Any]:
    """``sandbox_inspect``."""
    found = await boxes.find(asked.sandbox_id)
    return rows.told(found, boxes.generations.of(found).number)


async def changed(boxes: Boxes, asked: Identity, act: Callable[[SandboxHandle], Awaitable[None]]) -> dict[str, Any]:
    """``sandbox_stop``, ``sandbox_pause`` and ``sandbox_resume``."""
    _, handle = await boxes.fenced(asked)
    await act(handle)
    return await _told(boxes, handle)


async def stop(handle: SandboxHandle) -> None:
    """End it, if it runs."""
    if (await handle.inspect()).status.live:
        await handle.stop()


async def restart(boxes: Boxes, asked: Restart) -> dict[str, Any]:
    """``sandbox_restart``. The same ``operation_id`` again restarts nothing."""
    found = await boxes.find(asked.sandbox_id)
    known = boxes.generations.of(found)
    if asked.operation_id and known.operation == asked.operation_id:
        return rows.told(found, known.number)
    _, handle = await boxes.fenced(asked)
    grace_s = float(asked.stop_timeout_seconds if asked.stop_timeout_seconds is not None else 10)
    await (handle.restart(grace_s=grace_s) if found.status.live else handle.start())
    found = await handle.inspect()
    return rows.told(found, boxes.generations.of(found, asked.operation_id).number)


async def remove(boxes: Boxes, asked: Identity) -> dict[str, Any]:
    """``sandbox_remove``, of one that does not run."""
    found, handle = await boxes.fenced(asked)
    if found.status.live:
        raise UsageError(f"sandbox {asked.sandbox_id} must be stopped before removal")
    return await _removed(boxes, handle)


async def kill(boxes: Boxes, asked: Identity) -> dict[str, Any]:
    """``sandbox_kill``: stop and remove."""
    _, handle = await boxes.fenced(asked)
    return await _removed(boxes, handle)


async def _removed(boxes: Boxes, handle: SandboxHandle) -> dict[str, Any]:
    await handle.remove(force=True)
    boxes.generations.drop(handle.ref.id)
    return {"sandbox_id": handle.ref.id, "removed": True}


async def logs(boxes: Boxes, asked: Logs) -> dict[str, Any]:
    """``sandbox_logs``."""
    found, _ = await boxes.fenced(asked)
    query = LogQuery(tail=asked.tail)
    async with aclosing(boxes.opened.logs(found.ref, query)) as batches:  # type: ignore[type-var]
        records = [item async for batch in batches for item in batch if isinstance(item, LogRecord)]
    return {"logs": [rows.log_entry(one) for one in records[-asked.tail :]]}


async def stats(boxes: Boxes, asked: Identity) -> dict[str, Any]:
    """``sandbox_stats``: one sample; null if it does not run."""
    found, _ = await boxes.fenced(asked)
    if found.status not in (Status.RUNNING, Status.PAUSED):
        return {"stats": None}
    last = None
    try:
        async with asyncio.timeout(_PATIENCE_S), aclosing(boxes.opened.stats(found.ref, _SAMPLE_S)) as samples:  # type: ignore[type-var]
            async for last in samples:
                if last.cpu_percent is not None:
                    break
    except TimeoutError:
        pass
    return {"stats": None if last is None else rows.measured(found, last)}


async def processes(boxes: Boxes, asked: Identity) -> dict[str, Any]:
    """``sandbox_processes``."""
    found, _ = await boxes.fenced(asked)
    every = await boxes.opened.inside.processes(found.ref)
    return {
        "execution_id": asked.sandbox_id, "generation": asked.generation,
        "processes": [{"process_id": str(one.pid), "pid": one.pid or None, "terminal": False} for one in every],
    }  # fmt: skip


async def events(boxes: Boxes, asked: Events) -> dict[str, Any]:
    """``sandbox_events``: those after a number, which are waited for if there are none."""
    found, _ = await boxes.fenced(asked)
    until = time.monotonic() + min((asked.wait_timeout_ms or 0) / 1000, 60.0)
    while True:
        every = await _events(boxes, found)
        more = [one for one in every if one["sequence"] > asked.after_sequence][: asked.limit]
        if more or time.monotonic() >= until:
            break
        await asyncio.sleep(_POLL_S)
    last = more[-1]["sequence"] if more else asked.after_sequence
    return {
        "execution_id": asked.sandbox_id, "generation": asked.generation, "events": more, "next_sequence": last,
    }  # fmt: skip


async def _events(boxes: Boxes, found: Sandbox) -> list[dict[str, Any]]:
    reading = boxes.opened.inside.guest_events(found.ref, since=None, follow=False)
    async with aclosing(reading) as told:  # type: ignore[type-var]
        return rows.events([one async for one in told])


async def update(boxes: Boxes, asked: Resources) -> dict[str, Any]:
    """``sandbox_update_resources``: the number of processes, and the share of the CPUs."""
    found, handle = await boxes.fenced(asked)
    if other := sorted(asked.resources.keys() - _RESOURCES):
        raise Unsupported(f"{', '.join(other)} cannot be changed here", hint="pids_limit, cpu_quota and cpu_period can")
    if found.spec is None:
        raise NotFound(f"sandbox {asked.sandbox_id} was made by another program")
    spec, given = found.spec, asked.resources
    if not all(isinstance(value, int) and value > 0 for value in given.values()):
        raise UsageError("each limit is a number above 0")
    if "pids_limit" in given:
        spec = structs.replace(spec, pids=given["pids_limit"])
    if "cpu_quota" in given:
        spec = structs.replace(spec, cpus=given["cpu_quota"] / given.get("cpu_period", 100_000))
    await boxes.console.perform(Update(handle.ref, spec)).result()
    return await _told(boxes, handle)


async def save(boxes: Boxes, asked: SnapshotOf) -> dict[str, Any]:
    """``sandbox_snapshot_create``."""
    _, handle = await boxes.fenced(asked)
    await boxes.console.perform(TakeSnapshot(handle.ref, asked.snapshot_id)).result()
    made = await boxes.opened.inside.snapshot(*await boxes.place(), asked.snapshot_id)
    told = await _told(boxes, handle)
    size = (made.size_bytes or 0) if made is not None else 0
    return {"snapshot_id": asked.snapshot_id, "size_bytes": size, **told}


async def _told(boxes: Boxes, handle: SandboxHandle) -> dict[str, Any]:
    found = await handle.inspect()
    return rows.told(found, boxes.generations.of(found).number)
