"""Logs and stats of a real engine through the adapter: lines a second beside the docker CLI, and memory over time.

Run: python benchmarks/docker_streams.py [lines] [minutes of following 100 containers]. Goals: 60,000 lines a second
on one container, memory flat (its slope is reported), at most 0.1 % of a core of the engine's for each row with stats.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine import IMAGE, DockerEngine, private_engine
from tests.support.require import missing

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.log import LogGap, LogQuery
from sandbox_console.model.sandbox import SandboxRef

MANY = 100
TEXT = "the quick brown fox jumps over the lazy dog and writes it to a log of a container"


@asynccontextmanager
async def opened() -> AsyncIterator[DockerBackend]:
    backend = DockerBackend("default")
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def started(engine: DockerEngine, name: str, script: str) -> SandboxRef:
    id_ = engine.docker("run", "-d", "--name", name, "--network", "none", IMAGE, "sh", "-c", script)
    return SandboxRef("docker", "default", id_)


async def throughput(engine: DockerEngine, lines: int) -> None:
    ref = started(engine, "lines", f"yes '{TEXT}' | head -n {lines}")
    engine.docker("wait", ref.id)
    async with opened() as backend:
        for _ in range(2):
            began, cpu, count = time.perf_counter(), time.process_time(), 0
            async for batch in backend.logs(ref, LogQuery()):
                count += len(batch)
            cpu, took = time.process_time() - cpu, time.perf_counter() - began
            report("adapter: replay", count, took, f"goal 60; {count / cpu / 1000:.0f} a second of our CPU")
    for _ in range(2):
        began = time.perf_counter()
        done = subprocess.run(["docker", "logs", "-t", ref.id], capture_output=True, check=True)
        report("peer: docker logs -t", done.stdout.count(b"\n"), time.perf_counter() - began)
    engine.docker("rm", "-f", ref.id)


async def live(engine: DockerEngine, lines: int) -> None:
    ref = started(engine, "live", f"sleep 1; yes '{TEXT}' | head -n {lines}")
    async with opened() as backend:
        began, count = 0.0, 0
        async for batch in backend.logs(ref, LogQuery(follow=True)):
            began = began or time.perf_counter()
            count += sum(not isinstance(item, LogGap) for item in batch)
        report("adapter: live follow (bound by the engine's writing)", count, time.perf_counter() - began)
    engine.docker("rm", "-f", ref.id)


def report(what: str, count: int, seconds: float, goal: str = "") -> None:
    print(f"{what:56} {count / seconds / 1000:7.1f} thousand lines/s   {goal}", flush=True)


async def stats(engine: DockerEngine, refs: list[SandboxRef], interval_s: float) -> None:
    async def follow(ref: SandboxRef) -> None:
        async with aclosing(backend.stats(ref, interval_s)) as samples:  # type: ignore[type-var]
            async for _ in samples:
                pass

    async with opened() as backend:
        quiet = await engine_share(engine)
        tasks = [asyncio.create_task(follow(ref)) for ref in refs]
        await asyncio.sleep(5)
        ours = time.process_time()
        busy = await engine_share(engine)
        ours = time.process_time() - ours
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    row = (busy - quiet) / len(refs)
    print(
        f"stats of {len(refs)} rows: engine {row:.3f} % of a core a row (goal 0.1), console {ours * 10:.1f} % of a core"
    )


async def engine_share(engine: DockerEngine) -> float:
    before = engine.cpu_s()
    await asyncio.sleep(10)
    return (engine.cpu_s() - before) * 10


async def memory(refs: list[SandboxRef], minutes: float) -> None:
    counts = dict.fromkeys(refs, 0)

    async def follow(ref: SandboxRef) -> None:
        async for batch in backend.logs(ref, LogQuery(follow=True, tail=10)):
            counts[ref] += len(batch)

    async with opened() as backend:
        tasks = [asyncio.create_task(follow(ref)) for ref in refs]
        await asyncio.sleep(5)  # until all are connected
        points, began = [], time.monotonic()
        while (at := time.monotonic() - began) < minutes * 60:
            points.append((at / 60, rss_kib()))
            await asyncio.sleep(2)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    slope = statistics.linear_regression([at for at, _ in points], [size for _, size in points]).slope
    first, last = points[0][1] / 1024, points[-1][1] / 1024
    print(f"following {len(refs)} containers for {minutes:g} min, {sum(counts.values())} lines: ", end="")
    print(f"{first:.1f} MiB at first, {last:.1f} at last, {slope:+.1f} KiB a minute")


def rss_kib() -> int:
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS:")).split()[1])


async def run(engine: DockerEngine, lines: int, minutes: float) -> None:
    await throughput(engine, lines)
    await live(engine, lines)
    script = "while :; do echo 'a line of a quiet service'; sleep 1; done"
    refs = [started(engine, f"many{number}", script) for number in range(MANY)]
    for interval_s in (1.0, 2.0, 5.0):
        await stats(engine, refs[:40], interval_s)
    await memory(refs, minutes)


def main() -> None:
    if reason := missing("docker"):
        print(f"docker: {reason}")
        return
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    with private_engine() as engine:
        os.environ["DOCKER_HOST"] = engine.url
        asyncio.run(run(engine, lines, minutes))


if __name__ == "__main__":
    main()
