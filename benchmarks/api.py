"""What ``exec`` of ``true`` costs by every way in, beside the plain tools, on bubblewrap and on Docker.

The ways: the Python API with and without asyncio, HTTP, MCP over HTTP, and the command. Wall time, in turns on one
machine; on a busy one the best tell more than the medians. Then 100 at once, by the API and by HTTP, and 1 GiB in and
out with the memory that took.
Run: python benchmarks/api.py [runs]. Goals: API < 1.5 x raw bwrap, < 1.1 x `docker exec`; HTTP adds less than 3 ms.
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

import aiohttp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.browser.serving import eventually
from tests.servers.serving import Home, serving
from tests.support.engine import IMAGE, private_engine
from tests.support.require import missing

from sandbox_console import SandboxHandle, SandboxSpec, open_console, sync
from sandbox_console.backends.bubblewrap import binary

GIB = 1 << 30
CONFIG = """
[templates.plain]
image = "{image}"
limits = "best-effort"
[api]
backend = "{backend}"
grants = "optional"
template = "plain"
max_calls = 100
[mcp]
backend = "{backend}"
allow = ["exec"]
"""
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
    by_name = {name.rpartition(": ")[2]: times for name, times in taken.items()}
    http, api = by_name["HTTP"], by_name["API"]
    print(f"{'HTTP adds':<44} median {statistics.median(http) - statistics.median(api):7.1f} ms   ", end="")
    print(f"           best {min(http) - min(api):7.1f} ms")


async def all_ways(backend: str, beside: str, words: list[str], image: str, runs: int) -> None:
    home = Home(Path(os.environ["SANDBOX_CONSOLE_HOME"]))
    home.configure(CONFIG.format(backend=backend, image=image))
    head = {"Authorization": f"Bearer {home.token(backend, 'api', 'mcp')}"}
    spec = SandboxSpec(f"bench-api-{os.getpid()}", image=image, command=("sleep", "1000"))
    with serving(home, "--api", "--mcp", "--no-page") as server:
        async with (
            open_console(backend=backend) as console,
            console.create(spec) as box,
            aiohttp.ClientSession(headers=head) as session,
        ):
            http = await over_http(session, server.url)
            real = [box.ref.id if word == "CONTAINER" else word for word in words]
            with sync.open_console(backend=backend) as plain:
                there = plain.sandbox(box.ref)

                async def api() -> None:
                    assert (await box.exec(["true"])).ok

                async def without() -> None:
                    assert there.exec(["true"]).ok

                command = (COMMAND, "exec", box.name, "--", "true")
                ways = {
                    beside: lambda: program(*real),
                    f"{backend}: API": api,
                    f"{backend}: API without asyncio": without,
                    f"{backend}: HTTP": http,
                    f"{backend}: MCP": over_mcp(session, mcp_url(home), box.name),
                    f"{backend}: the command, with its server": lambda: program(*command),
                }
                await compare(ways, runs)
            await at_once("API", api)
            await at_once("HTTP", http)
            await a_gibibyte(box)
    if names := home.names():
        home.run("rm", "--force", *names)


async def over_http(session: aiohttp.ClientSession, url: str) -> Callable[[], Awaitable[None]]:
    """``true`` in a sandbox of the API's own, as it enters no other."""
    async with session.post(f"{url}/v1/sandboxes", json={"bucket": "agent-one"}) as answer:
        name = (await answer.json())["name"]

    async def once() -> None:
        async with session.post(f"{url}/v1/sandboxes/{name}/exec", json={"cmd": "true"}) as answer:
            assert (await answer.json())["exit_code"] == 0

    return once


def over_mcp(session: aiohttp.ClientSession, url: str, name: str) -> Callable[[], Awaitable[None]]:
    asked = {"name": "exec", "arguments": {"name": name, "command": ["true"]}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    head = {"Accept": "application/json, text/event-stream"}

    async def once() -> None:
        async with session.post(url, json=call, headers=head) as answer:
            assert '\\"exit_code\\": 0' in await answer.text()

    return once


def mcp_url(home: Home) -> str:
    log = home.path / "api.log"
    assert eventually(lambda: "mcp: " in log.read_text())
    return next(line.split(" ", 1)[1] for line in log.read_text().splitlines() if line.startswith("mcp: "))


async def at_once(name: str, once: Callable[[], Awaitable[None]]) -> None:
    began = time.perf_counter()
    await asyncio.gather(*(once() for _ in range(100)))
    print(f"{'100 at once by ' + name:<44} all {time.perf_counter() - began:10.2f} s")


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
    print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
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
