"""Samples a running container's usage: read on this machine, streamed by the engine, or requested one by one."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.common.memory import used
from sandbox_console.backends.docker import cgroups
from sandbox_console.backends.docker.json_lines import lines
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.backends.docker.translate import seconds
from sandbox_console.model.sandbox import Stats

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

Sample = Mapping[str, Any]


ASK_FROM_S = 2.0
"""At this interval or a longer one, samples are requested one by one.

For a stream the engine measures every second (0.3 % of a core per container on 20.10 with cgroup v1), however few
samples are needed.
"""


PING_S = 5.0

LOG = "sandbox_console_log"
"""The log file's identity and size, which is added to the engine's sample."""


async def follow(
    engine: Engine, id: str, interval_s: float, host_memory: int | None, root: str = ""
) -> AsyncGenerator[Stats, None]:
    """A sample about every ``interval_s``, at most one a second if not read here, until the container stops.

    ``host_memory`` (bytes) is what the engine reports as the limit of a container that has none; ``root`` is the folder
    with the engine's own data. The log's rate is known if that folder is here and can be read.
    """
    one_by_one = interval_s >= ASK_FROM_S
    before: Sample | None = None
    here = False
    async with aclosing(_from_cgroup_files(engine, id, interval_s, root)) as samples:
        async for sample in samples:
            yield measure(sample, before, host_memory)
            before, here = sample, True
    if here:
        return
    # The first samples are always streamed: a share of CPU needs two, and the second one comes after a second.
    async with aclosing(_streamed(engine, id, 1.0 if one_by_one else interval_s)) as samples:
        count = 0
        async for sample in samples:
            yield measure(sample, before, host_memory)
            before, count = sample, count + 1
            if one_by_one and count == 2:
                break
        else:
            return
    async with aclosing(_asked(engine, id, interval_s)) as samples:
        async for sample in samples:
            yield measure(sample, before, host_memory)
            before = sample


async def _from_cgroup_files(engine: Engine, id: str, interval_s: float, root: str) -> AsyncGenerator[Sample, None]:
    """Samples from this machine's files; none if they are not the container's, or cannot be read."""
    if engine.endpoint.socket is None:
        return
    data = await engine.call("GET", container_path(id, "json"))
    pid = data["State"].get("Pid") or 0
    log = str(data.get("LogPath") or f"{root}/containers/{data['Id']}/local-logs/container.log")
    wait = min(interval_s, 1.0)  # a share of CPU needs two samples
    while pid and (sample := await asyncio.to_thread(cgroups.read, pid, id)) is not None:
        yield {**sample, LOG: _file(log)}
        await asyncio.sleep(wait)
        wait = interval_s
        await engine.call(
            "GET", "_ping", timeout_s=PING_S
        )  # an engine that died has no samples, though the files still change


def _file(path: str) -> tuple[int, int] | None:
    """Inode and bytes of a file; None if there is none or it cannot be read."""
    try:
        st = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return st.st_ino, st.st_size


async def _streamed(engine: Engine, id: str, interval_s: float) -> AsyncGenerator[Sample, None]:
    last: float | None = None
    async with engine.stream(container_path(id, "stats"), {"stream": 1}) as chunks, aclosing(lines(chunks)) as found:
        async for line in found:
            sample = json.loads(line)
            if not _running(sample):
                return  # the engine sends empty samples once the container has stopped
            at = seconds(sample["read"]) or 0.0
            # The engine's second is not exactly one: a tenth of slack keeps an interval of 1 from becoming 2.
            if last is None or at - last >= interval_s - 0.1:
                yield sample
                last = at


async def _asked(engine: Engine, id: str, interval_s: float) -> AsyncGenerator[Sample, None]:
    took = 0.0
    while True:
        await asyncio.sleep(max(interval_s - took, interval_s / 4))
        began = time.monotonic()
        sample = await engine.call("GET", container_path(id, "stats"), params={"stream": 0, "one-shot": 1})
        took = time.monotonic() - began  # takes a second on 20.10, 4 ms on 28.5
        if not _running(sample):
            return
        yield sample


def _running(sample: Sample) -> bool:
    return seconds(sample.get("read")) is not None and bool(sample.get("memory_stats"))


def measure(sample: Sample, before: Sample | None, host_memory: int | None = None) -> Stats:
    """One sample; rates need the one before.

    The formulas of the docker CLI: CPU is the container's share of the host's CPU time since the engine's own last
    reading, and memory excludes the page cache that can be reclaimed (``total_inactive_file`` of cgroup v1,
    ``inactive_file`` of v2).
    """
    at = seconds(sample["read"]) or 0.0
    memory = sample.get("memory_stats") or {}
    limit = memory.get("limit")
    gap = at - (seconds(before["read"]) or at) if before else 0.0
    return Stats(
        at=at,
        cpu_percent=_cpu(sample, before),
        memory_bytes=_memory(memory),
        memory_limit=limit if not host_memory or (limit or 0) < host_memory else None,
        pids=(sample.get("pids_stats") or {}).get("current"),
        net_rx=_rate(_net(sample, "rx_bytes"), _net(before, "rx_bytes"), gap),
        net_tx=_rate(_net(sample, "tx_bytes"), _net(before, "tx_bytes"), gap),
        block_read=_rate(_block(sample, "read"), _block(before, "read"), gap),
        block_write=_rate(_block(sample, "write"), _block(before, "write"), gap),
        log_rate=_log(sample.get(LOG), (before or {}).get(LOG), gap),
    )


def _cpu(sample: Sample, before: Sample | None) -> float | None:
    now, then = sample["cpu_stats"], (before or {}).get("cpu_stats") or sample.get("precpu_stats") or {}
    if "system_cpu_usage" not in then or "system_cpu_usage" not in now:
        return None
    used = now["cpu_usage"]["total_usage"] - then["cpu_usage"]["total_usage"]
    whole = now["system_cpu_usage"] - then["system_cpu_usage"]
    cpus = now.get("online_cpus") or len(now["cpu_usage"].get("percpu_usage") or ()) or 1
    return max(used, 0) / whole * cpus * 100 if whole > 0 else None


def _memory(memory: Mapping[str, Any]) -> int | None:
    usage = memory.get("usage")
    if usage is None:
        return None
    return used(int(usage), memory.get("stats") or {})


def _net(sample: Sample | None, key: str) -> int | None:
    networks = (sample or {}).get("networks")
    return sum(one.get(key, 0) for one in networks.values()) if networks else None


def _block(sample: Sample | None, operation: str) -> int | None:
    entries = ((sample or {}).get("blkio_stats") or {}).get("io_service_bytes_recursive")
    return sum(_values(entries, operation)) if entries is not None else None


def _log(now: tuple[int, int] | None, then: tuple[int, int] | None, gap: float) -> float | None:
    """The log's rate in bytes per second. If it was rotated meanwhile, it is at least that of the new file."""
    if now is None or then is None:
        return None
    return _rate(now[1], then[1] if now[0] == then[0] and now[1] >= then[1] else 0, gap)


def _values(entries: list[Mapping[str, Any]], operation: str) -> Iterator[int]:
    return (entry["value"] for entry in entries if str(entry.get("op", "")).lower() == operation)


def _rate(now: int | None, then: int | None, gap: float) -> float | None:
    return max(now - then, 0) / gap if now is not None and then is not None and gap > 0 else None
