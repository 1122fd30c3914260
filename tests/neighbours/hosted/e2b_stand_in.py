"""A stand-in for E2B: its API and envd, as far as the console calls them, over bubblewrap.

Made from github.com/e2b-dev/infra: ``spec/openapi.yml`` (e89e1cca), ``packages/envd/spec/process/process.proto``
(28467c01), and for how envd starts, signals and ends a command ``internal/services/process/handler`` (0000635f).
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import signal
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from tests.neighbours.hosted.jail import Jail, Running, open_pty, resize

KEY = "e2b_canary-key-of-the-stand-in"
TOKEN = "ea_canary-token-of-envd"
TEMPLATE = "base"


@dataclass
class Box:
    """A sandbox; ``jail`` is None for one that is only listed."""

    id: str
    asked: dict[str, Any]
    jail: Jail | None = None
    state: str = "running"
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    logs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ends(self) -> datetime:
        return self.started + timedelta(seconds=self.asked.get("timeout", 15))

    def listed(self) -> dict[str, Any]:
        return {
            "sandboxID": self.id, "templateID": self.asked["templateID"], "alias": "base", "clientID": "c",
            "startedAt": self.started.isoformat(), "endAt": self.ends.isoformat(), "cpuCount": 2, "memoryMB": 512,
            "diskSizeMB": 1024, "state": self.state, "envdVersion": "0.6.4", "metadata": self.asked.get("metadata", {}),
        }  # fmt: skip

    def detail(self) -> dict[str, Any]:
        return {**self.listed(), "envdAccessToken": TOKEN, "domain": "stand-in.invalid",
                "allowInternetAccess": self.asked.get("allow_internet_access"),
                "lifecycle": {"autoResume": False, "onTimeout": "kill"}}  # fmt: skip

    def note(self, message: str, **fields: str) -> None:
        now = datetime.now(UTC).isoformat()
        self.logs.append({"timestamp": now, "message": message, "level": "info", "fields": fields})


@dataclass
class Command:
    running: Running
    master: int | None = None


class E2b:
    """``asked`` are the calls of the API that it got."""

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.commands: dict[int, Command] = {}
        self.asked: list[tuple[str, str]] = []
        self.page = 100
        self._pids, self._ids = itertools.count(100), itertools.count(1)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 26)
        app.add_routes([
            web.get("/v2/sandboxes", self.list), web.post("/sandboxes", self.create),
            web.get("/sandboxes/{id}", self.get), web.delete("/sandboxes/{id}", self.delete),
            web.post("/sandboxes/{id}/pause", self.pause), web.post("/sandboxes/{id}/connect", self.connect),
            web.get("/sandboxes/{id}/metrics", self.metrics), web.get("/v2/sandboxes/{id}/logs", self.logs),
            web.post("/process.Process/{method}", self.process),
        ])  # fmt: skip
        return app

    def end(self) -> None:
        for box in self.boxes.values():
            if box.jail is not None:
                box.jail.end()

    def _box(self, request: web.Request) -> Box:
        self.asked.append((request.method, request.path))
        if request.headers.get("X-API-Key") != KEY:
            raise web.HTTPUnauthorized(text=json.dumps({"code": 401, "message": "Invalid API key"}))
        box = self.boxes.get(request.match_info.get("id", ""))
        if box is None and "id" in request.match_info:
            raise web.HTTPNotFound(text=json.dumps({"code": 404, "message": "Sandbox not found"}))
        return box  # type: ignore[return-value]

    async def list(self, request: web.Request) -> web.Response:
        self._box(request)
        states = request.query.get("state", "running").split(",")
        boxes = [box for box in self.boxes.values() if box.state in states]
        at, size = int(request.query.get("nextToken", "0")), min(int(request.query["limit"]), self.page)
        headers = {"X-Next-Token": str(at + size)} if at + size < len(boxes) else {}
        return web.json_response([box.listed() for box in boxes[at : at + size]], headers=headers)

    async def create(self, request: web.Request) -> web.Response:
        self._box(request)
        asked = await request.json()
        if asked["templateID"] != TEMPLATE:
            return web.json_response(
                {"code": 404, "message": f"template '{asked['templateID']}' not found"}, status=404
            )
        box = Box(f"i{next(self._ids)}x", asked, Jail())
        self.boxes[box.id] = box
        return web.json_response(box.detail(), status=201)

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._box(request).detail())

    async def delete(self, request: web.Request) -> web.Response:
        box = self.boxes.pop(self._box(request).id)
        if box.jail is not None:
            box.jail.end()
        return web.Response(status=204)

    async def pause(self, request: web.Request) -> web.Response:
        box = self._box(request)
        if box.state == "paused":
            return web.json_response({"code": 409, "message": "already paused"}, status=409)
        box.state = "paused"
        if box.jail is not None:
            box.jail.signal(signal.SIGSTOP)
        return web.Response(status=204)

    async def connect(self, request: web.Request) -> web.Response:
        box = self._box(request)
        box.asked["timeout"] = (await request.json())["timeout"]
        box.state = "running"
        if box.jail is not None:
            box.jail.signal(signal.SIGCONT)
        return web.json_response(box.detail(), status=201)

    async def metrics(self, request: web.Request) -> web.Response:
        self._box(request)
        one = {"timestamp": datetime.now(UTC).isoformat(), "timestampUnix": int(time.time()), "cpuCount": 2,
               "cpuUsedPct": 12.5, "memUsed": 50 << 20, "memTotal": 512 << 20, "memCache": 0, "diskUsed": 0,
               "diskTotal": 1 << 30}  # fmt: skip
        return web.json_response([one])

    async def logs(self, request: web.Request) -> web.Response:
        box, cursor = self._box(request), int(request.query["cursor"])
        found = [one for one in box.logs if int(datetime.fromisoformat(one["timestamp"]).timestamp() * 1000) >= cursor]
        return web.json_response({"logs": found[: int(request.query["limit"])]})

    async def process(self, request: web.Request) -> web.StreamResponse:
        box = self.boxes.get(request.headers.get("E2b-Sandbox-Id", ""))
        if box is None:
            return web.json_response({"code": "not_found", "message": "The sandbox was not found"}, status=404)
        if request.headers.get("X-Access-Token") != TOKEN or "X-API-Key" in request.headers:
            return web.json_response({"code": "unauthenticated", "message": "unauthorized access"}, status=401)
        if request.match_info["method"] == "Start":
            return await self._start(request, box)
        body = await request.json()
        command = self.commands.get(body["process"]["pid"])
        if command is None:
            return web.json_response({"code": "not_found", "message": "process not found"}, status=404)
        return await self._tell(request.match_info["method"], body, command)

    async def _tell(self, method: str, body: dict[str, Any], command: Command) -> web.Response:
        match method:
            case "SendInput" if "pty" in body["input"]:
                data = base64.b64decode(body["input"]["pty"])
                await asyncio.to_thread(os.write, command.master, data)
            case "SendInput":
                command.running.process.stdin.write(base64.b64decode(body["input"]["stdin"]))
                try:
                    await command.running.process.stdin.drain()
                except OSError as error:
                    return web.json_response({"code": "internal", "message": f"error writing: {error}"}, status=500)
            case "CloseStdin":
                command.running.process.stdin.close()
            case "Update":
                resize(command.master, **body["pty"]["size"])
            case _:
                return web.json_response({"code": "unimplemented", "message": method}, status=501)
        return web.json_response({})

    async def _start(self, request: web.Request, box: Box) -> web.StreamResponse:
        data = await request.read()
        asked = json.loads(data[5 : 5 + int.from_bytes(data[1:5], "big")])
        answer = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await answer.prepare(request)

        async def tell(message: dict[str, Any], flags: int = 0) -> None:
            text = json.dumps(message).encode()
            await answer.write(bytes([flags]) + len(text).to_bytes(4, "big") + text)

        async def ping() -> None:
            while True:
                await asyncio.sleep(float(request.headers["Keepalive-Ping-Interval"]))
                await tell({"event": {"keepalive": {}}})

        pinging = asyncio.create_task(ping())
        try:
            await self._run(asked, box, request.headers.get("Authorization", ""), tell)
        except LookupError as error:
            await tell({"error": {"code": "invalid_argument", "message": str(error.args[0])}}, 2)
        else:
            await tell({}, 2)
        finally:
            pinging.cancel()
        return answer

    async def _run(self, asked: dict[str, Any], box: Box, login: str, tell: Any) -> None:
        process, cwd = asked["process"], asked["process"].get("cwd", "/tmp")
        user = base64.b64decode(login.removeprefix("Basic ")).decode().rstrip(":")
        if user not in ("", "user", "root"):
            raise LookupError(f"invalid username: '{user}'")
        if not box.jail.has(cwd):
            raise LookupError(f"cwd '{cwd}' does not exist")
        env = {**box.asked.get("envVars", {}), **process.get("envs", {})}
        words, pid = [process["cmd"], *process["args"]], next(self._pids)
        master = slave = None
        if "pty" in asked:
            master, slave = open_pty(**asked["pty"]["size"])
        command = Command(await box.jail.start(words, env, cwd, slave), master)
        self.commands[pid] = command
        box.note(f"Process with pid {pid} started", event_type="process_start", command=" ".join(words))
        await tell({"event": {"start": {"pid": pid}}})
        try:
            if master is not None:
                os.close(slave)
                await self._pump_pty(master, tell)
            else:
                await asyncio.gather(*(self._pump(kind, getattr(command.running.process, kind), tell)
                                       for kind in ("stdout", "stderr")))  # fmt: skip
            code, name = await command.running.code()
        finally:
            self.commands.pop(pid)
            if master is not None:
                os.close(master)
        status = f"signal: {name}" if name else f"exit status {code}"
        box.note(f"Process with pid {pid} ended", event_type="process_end")
        await tell({"event": {"end": {"exitCode": code, "exited": not name, "status": status}}})

    async def _pump(self, kind: str, stream: asyncio.StreamReader, tell: Any) -> None:
        while data := await stream.read(32 << 10):
            await tell({"event": {"data": {kind: base64.b64encode(data).decode()}}})

    async def _pump_pty(self, master: int, tell: Any) -> None:
        while True:
            try:
                data = await asyncio.to_thread(os.read, master, 16 << 10)
            except OSError:
                return
            if not data:
                return
            await tell({"event": {"data": {"pty": base64.b64encode(data).decode()}}})
