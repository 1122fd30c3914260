"""What ``exec`` of ``true`` costs by the Python API, with and without asyncio, and the command, beside the plain tools.

Wall time, in turns on one machine; on a busy one the best tell more than the medians. Then 100 at once, and 1 GB in
and out with the memory that took.
Run: python benchmarks/api.py [runs]. Goals: API < 1.5 x raw bwrap, < 1.1 x `docker exec`.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine import IMAGE, private_engine
from tests.support.require import missing

from sandbox_console import SandboxHandle, SandboxSpec, open_console, sync
from sandbox_console.backends.bubblewrap import binary

GIB = 1 << 30
COMMAND = str(Path(sys.executable).with_name("sandbox-console"))


def raw_bwrap() -> list[str]:
    found = binary.find(None)
    assert isinstance(found, binary.Bwrap)
    return [str(found.path), "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "true"]


async def program(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0, words


async def compare(ways: dict[str, Callable[[], Awaitable[None]]], runs: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(runs + 3):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            if number >= 3:  # the first ones import and connect
                taken[name].append(1000 * (time.perf_counter() - began))
    peer = next(iter(taken.values()))
    for name, times in taken.items():
        middle, best = statistics.median(times), min(times)
        print(f"{name:<44} median {middle:7.1f} ms {middle / statistics.median(peer):5.2f} x   ", end="")
        print(f"best {best:7.1f} ms {best / min(peer):5.2f} x")


async def all_ways(backend: str, beside: str, words: list[str], image: str, runs: int) -> None:
    spec = SandboxSpec(f"bench-api-{os.getpid()}", image=image, command=("sleep", "1000"))
    async with open_console(backend=backend) as console, console.create(spec) as box:
        with sync.open_console(backend=backend) as plain:
            there = plain.sandbox(box.ref)
            real = [box.ref.id if word == "CONTAINER" else word for word in words]

            async def api() -> None:
                assert (await box.exec(["true"])).ok

            async def without() -> None:
                assert there.exec(["true"]).ok

            ways = {
                beside: lambda: program(*real),
                f"{backend}: API": api,
                f"{backend}: API without asyncio": without,
                f"{backend}: the command, with its server": lambda: program(COMMAND, "exec", box.name, "--", "true"),
            }
            await compare(ways, runs)
        await at_once(box)
        await a_gibibyte(box)


async def at_once(box: SandboxHandle) -> None:
    began = time.perf_counter()
    done = await asyncio.gather(*(box.exec(["true"]) for _ in range(100)))
    assert all(one.ok for one in done)
    print(f"{'100 at once':<44} all {time.perf_counter() - began:10.2f} s")


async def a_gibibyte(box: SandboxHandle) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    done = await box.exec(["wc", "-c"], stdin=pieces())
    assert int(done.text) == GIB
    into = time.perf_counter() - began
    began = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        assert (await box.exec(["head", "-c", str(GIB), "/dev/zero"], stdout=nowhere)).ok
    out = time.perf_counter() - began
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{'1 GiB in, out; memory grown at most':<44} {into:5.1f} s, {out:5.1f} s; {grown:.0f} MiB")


def pieces() -> Iterator[bytes]:
    piece = bytes(1 << 18)
    for _ in range(GIB // len(piece)):
        yield piece


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.environ["SANDBOX_CONSOLE_HOME"] = folder
        if not missing("bubblewrap"):
            asyncio.run(all_ways("bubblewrap", "raw bwrap", raw_bwrap(), "host", runs))
        if not missing("docker"):
            with private_engine() as engine:
                os.environ["DOCKER_HOST"] = engine.url
                words = ["docker", "exec", "CONTAINER", "true"]
                asyncio.run(all_ways("docker", "docker exec", words, IMAGE, runs))


if __name__ == "__main__":
    main()
