"""Simulated engines: one process that answers as many Docker engines would, from answers recorded from a real one.

Each listens at a Unix socket of its own, HOST.sock, with containers that differ in name, id and state only. Some are
frozen (they accept connections and never answer), some flap (they answer for a while, then end every connection and
refuse, again and again). It says that it is simulated: the engine's name is "simulated". Nothing can be changed there.

Run: python -m tests.support.simulated_engines FOLDER HOSTS CONTAINERS [FROZEN] [FLAPPING] [EVENTS_PER_SECOND].
SIGUSR1 writes the bytes sent so far to FOLDER/bytes, SIGUSR2 stops or starts events and flapping, SIGTERM ends it.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from aiohttp import web

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recordings" / "docker_engine.json").read_text())
HEAD_BYTES = 180
"""About as long as the headers of an answer."""
UP_S, DOWN_S = 3.0, 2.0
"""How long a flapping engine answers and refuses."""


class Traffic:
    """The bytes of all answers."""

    sent = 0

    def json(self, value: Any) -> web.Response:
        body = json.dumps(value).encode()
        self.sent += len(body) + HEAD_BYTES
        return web.Response(body=body, content_type="application/json")


class SimulatedEngine:
    """One engine. ``behaviour`` is "", "frozen" or "flapping"."""

    def __init__(self, name: str, folder: Path, containers: int, behaviour: str, traffic: Traffic) -> None:
        self.name, self.socket, self.behaviour, self._traffic = name, folder / f"{name}.sock", behaviour, traffic
        self.rows = [self._row(at) for at in range(containers)]
        self.by_id = {row["Id"]: row for row in self.rows}
        self._watchers: set[web.StreamResponse] = set()
        self._runner: web.AppRunner | None = None

    def _row(self, at: int) -> dict[str, Any]:
        state = "exited" if at % 4 == 3 else "running"
        id_ = f"{self.name}-{at}".encode().hex().ljust(64, "0")[:64]
        status = "Exited (0) 2 hours ago" if state == "exited" else "Up 2 hours"
        created = int(time.time()) - 7200 - at
        return RECORDED["row"] | {
            "Id": id_, "Names": [f"/{self.name}-c{at:03}"], "State": state, "Status": status, "Created": created,
        }  # fmt: skip

    async def up(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self.socket)).start()

    async def down(self) -> None:
        """End every connection, and refuse new ones."""
        runner, self._runner = self._runner, None
        for watcher in list(self._watchers):
            if watcher._req is not None and watcher._req.transport is not None:
                watcher._req.transport.abort()
        if runner is not None:
            await runner.cleanup()

    async def flap(self) -> None:
        await self.down()
        await asyncio.sleep(DOWN_S)
        await self.up()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if self.behaviour == "frozen":
            await asyncio.Event().wait()
        words = [word for word in request.path.split("/") if word and not word.startswith("v1.")]
        self._traffic.sent += HEAD_BYTES + len(request.path_qs)
        match words:
            case ["_ping"]:
                return web.Response(text="OK")
            case ["version" | "info" as what]:
                return self._traffic.json(RECORDED[what] | {"Name": "simulated"})
            case ["events"]:
                return await self._events(request)
            case ["containers", "json"]:
                return self._traffic.json(self.rows)
            case ["containers", id_, "json"] if id_ in self.by_id:
                return self._traffic.json(self._inspected(self.by_id[id_]))
            case ["containers", id_, "stats"] if id_ in self.by_id:
                return await self._stats(request, id_)
            case ["images", *_, "json"]:
                return self._traffic.json(RECORDED["image"])
            case ["images", "json"] | ["networks"]:
                return self._traffic.json([])
        return web.json_response({"message": f"simulated: no {request.path}"}, status=404)

    def _inspected(self, row: dict[str, Any]) -> dict[str, Any]:
        running = row["State"] == "running"
        state = RECORDED["inspect"]["State"] | {"Status": row["State"], "Running": running}
        state |= {"ExitCode": 0, "Pid": 4711 if running else 0}
        return RECORDED["inspect"] | {"Id": row["Id"], "Name": row["Names"][0], "State": state}

    async def _stats(self, request: web.Request, id_: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        sample = json.dumps(RECORDED["stats"] | {"id": id_, "name": self.by_id[id_]["Names"][0]}).encode() + b"\n"
        once = request.query.get("stream") in ("0", "false")
        with suppress(ConnectionError):
            while True:
                self._traffic.sent += len(sample)
                await response.write(sample)
                if once:
                    break
                await asyncio.sleep(1)
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self._watchers.add(response)
        try:
            await asyncio.Event().wait()
        finally:
            self._watchers.discard(response)
        return response

    async def happen(self, rng: random.Random) -> None:
        """A container ends or starts, which watchers are told."""
        row = rng.choice(self.rows)
        running = row["State"] == "running"
        row["State"], row["Status"] = ("exited", "Exited (0) 1 second ago") if running else ("running", "Up 1 second")
        name = "die" if running else "start"
        actor = RECORDED["event"]["Actor"] | {"ID": row["Id"]}
        event = RECORDED["event"] | {"Action": name, "status": name, "id": row["Id"], "Actor": actor}
        line = json.dumps(event | {"timeNano": time.time_ns()}).encode() + b"\n"
        for watcher in list(self._watchers):
            self._traffic.sent += len(line)
            try:
                await watcher.write(line)
            except ConnectionError:
                self._watchers.discard(watcher)


class Simulation:
    """All engines. Use it as an async context manager."""

    def __init__(
        self, folder: Path, hosts: int, containers: int, *, frozen: int = 0, flapping: int = 0, events_s: float = 0.0
    ) -> None:
        self.traffic = Traffic()
        each = ["frozen"] * frozen + ["flapping"] * flapping + [""] * (hosts - frozen - flapping)
        share = containers // hosts
        names = [f"h{at:03}" for at in range(hosts)]
        self.engines = [
            SimulatedEngine(name, folder, share, behaviour, self.traffic)
            for name, behaviour in zip(names, each, strict=True)
        ]
        self._events_s, self.busy = events_s, True
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await asyncio.gather(*(engine.up() for engine in self.engines))
        flapping = [one for one in self.engines if one.behaviour == "flapping"]
        self._tasks = [asyncio.create_task(self._flap(one, at)) for at, one in enumerate(flapping)]
        if self._events_s:
            self._tasks.append(asyncio.create_task(self._happen()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(engine.down() for engine in self.engines))

    async def _flap(self, engine: SimulatedEngine, at: int) -> None:
        await asyncio.sleep(UP_S + at * 0.37)
        while True:
            if self.busy:
                await engine.flap()
            await asyncio.sleep(UP_S)

    async def _happen(self) -> None:
        rng, well = random.Random(5), [one for one in self.engines if one.behaviour != "frozen"]
        began, done = time.monotonic(), 0
        while True:
            await asyncio.sleep(0.02)
            due = int((time.monotonic() - began) * self._events_s)
            for _ in range(due - done if self.busy else 0):
                await rng.choice(well).happen(rng)
            done = due


def contexts(config: Path, sockets: Path, names: list[str]) -> None:
    """Write Docker contexts for these engines into a configuration folder of the docker CLI."""
    import hashlib

    for name in names:
        folder = config / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
        folder.mkdir(parents=True)
        endpoint = {"docker": {"Host": f"unix://{sockets / name}.sock", "SkipTLSVerify": False}}
        (folder / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoint}))


async def main(words: list[str]) -> None:
    folder, numbers = Path(words[0]), [int(word) for word in words[1:]] + [0, 0, 0]
    hosts, containers, frozen, flapping, events = numbers[:5]
    simulation = Simulation(folder, hosts, containers, frozen=frozen, flapping=flapping, events_s=events)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def switch() -> None:
        simulation.busy = not simulation.busy

    def tell() -> None:
        (folder / "bytes.new").write_text(str(simulation.traffic.sent))
        (folder / "bytes.new").rename(folder / "bytes")

    handlers: dict[int, Callable[[], object]] = {
        signal.SIGUSR1: tell, signal.SIGUSR2: switch, signal.SIGTERM: ended.set, signal.SIGINT: ended.set,
    }  # fmt: skip
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    async with simulation:
        tell()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
