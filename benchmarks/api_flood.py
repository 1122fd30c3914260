"""What one caller's flood costs the others of the HTTP API: 200 idle connections, one caller who asks now and then.

python benchmarks/api_flood.py prints the p50 and p99 of that caller's `GET /v1/sandboxes`, alone and beside a flood of
64 connections that send one-shots without a pause. The goal is a p99 below twice that without the flood.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.servers.serving import CONFIG, Home, grant, serving

IDLE, FLOOD, CALLS = 200, 64, 200


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.configure(CONFIG)
        one, other = home.token("one", "api"), home.token("other", "api")
        with serving(home, "--api", "--no-page") as server:
            idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(IDLE)]
            alone = await measured(server.url, other)
            flood = asyncio.ensure_future(flooded(server.url, one))
            await asyncio.sleep(1)
            beside = await measured(server.url, other)
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)
            for _, writer in idle:
                writer.close()
    for name, found in (("alone", alone), ("beside a flood", beside)):
        print(f"{name:16} p50 {statistics.median(found) * 1e3:7.1f} ms   p99 {p99(found) * 1e3:7.1f} ms")
    print(f"p99 beside / alone: {p99(beside) / p99(alone):.2f}")


async def measured(url: str, token: str) -> list[float]:
    found = []
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        for _ in range(CALLS):
            began = time.perf_counter()
            async with session.get(url + "/v1/sandboxes") as answer:
                assert answer.status == 200
                await answer.read()
            found.append(time.perf_counter() - began)
            await asyncio.sleep(0.02)
    return found


async def flooded(url: str, token: str) -> None:
    head = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant()}
    body = {"bucket": "agent-one", "script": "sleep 60"}
    async with aiohttp.ClientSession(headers=head, connector=aiohttp.TCPConnector(limit=FLOOD)) as session:

        async def again() -> None:
            while True:
                async with session.post(url + "/v1/run_shell", json=body) as answer:
                    await answer.read()

        await asyncio.gather(*(again() for _ in range(FLOOD)))


def p99(found: list[float]) -> float:
    return sorted(found)[int(len(found) * 0.99) - 1]


if __name__ == "__main__":
    asyncio.run(main())
