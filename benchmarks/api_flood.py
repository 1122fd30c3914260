"""What one caller's flood costs the others of the HTTP API: 200 clients, each with a token, that ask now and then.

python benchmarks/api_flood.py prints the p50 and p99 of their `GET /v1/sandboxes`: without a flood, beside one of 64
connections that send one-shots without a pause, and beside one of 64 that ask for the list. The goal is a p99 below
twice that without a flood.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.serving import CONFIG, Home, grant, serving

CLIENTS, FLOOD, SECONDS = 200, 64, 15
EVERY_S = 10.0
"""How often a client asks: 20 calls a second of all."""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.configure(CONFIG)
        one = home.token("one", "api")
        others = [home.token(f"other-{number}", "api") for number in range(CLIENTS)]
        with serving(home, "--api", "--no-page") as server:
            found = {"without a flood": await measured(server.url, others)}
            for name, flood in (("beside one-shots", one_shots), ("beside lists", lists)):
                running = asyncio.ensure_future(flood(server.url, one))
                await asyncio.sleep(1)
                found[name] = await measured(server.url, others)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
    print(f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    quiet = p99(found["without a flood"])
    for name, times in found.items():
        middle = statistics.median(times) * 1e3
        print(f"{name:16} p50 {middle:7.1f} ms   p99 {p99(times) * 1e3:7.1f} ms   {p99(times) / quiet:5.2f} x")


async def measured(url: str, tokens: Sequence[str]) -> list[float]:
    found: list[float] = []

    async def client(number: int, token: str) -> None:
        head = {"Authorization": f"Bearer {token}"}
        await asyncio.sleep(EVERY_S * number / len(tokens))
        async with aiohttp.ClientSession(headers=head) as session:
            while time.perf_counter() < until:
                began = time.perf_counter()
                async with session.get(url + "/v1/sandboxes") as answer:
                    assert answer.status == 200
                    await answer.read()
                found.append(time.perf_counter() - began)
                await asyncio.sleep(EVERY_S)

    until = time.perf_counter() + SECONDS
    await asyncio.gather(*(client(*one) for one in enumerate(tokens)))
    return found


async def one_shots(url: str, token: str) -> None:
    await flooded(url, token, "POST", "/v1/run_shell", {"bucket": "agent-one", "script": "sleep 60"})


async def lists(url: str, token: str) -> None:
    await flooded(url, token, "GET", "/v1/sandboxes", None)


async def flooded(url: str, token: str, method: str, path: str, body: object) -> None:
    head = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant()}
    async with aiohttp.ClientSession(headers=head, connector=aiohttp.TCPConnector(limit=FLOOD)) as session:

        async def again() -> None:
            while True:
                async with session.request(method, url + path, json=body) as answer:
                    await answer.read()

        await asyncio.gather(*(again() for _ in range(FLOOD)))


def p99(found: list[float]) -> float:
    return sorted(found)[int(len(found) * 0.99) - 1]


if __name__ == "__main__":
    asyncio.run(main())
