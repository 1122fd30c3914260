"""A stand-in for Daytona: its API and a toolbox, as far as the console calls them, over bubblewrap.

Made from github.com/daytonaio/daytona: ``libs/api-client-go/api/openapi.yaml`` (a0d50996, of the clients that are on
PyPI as daytona-api-client 0.231.0), and ``apps/daemon/pkg/toolbox/process/execute.go`` (074ef700) for how a command is
split into words, run and answered.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from tests.neighbours.hosted.jail import Jail

KEY = "dtn_canary-key-of-the-stand-in"
SNAPSHOT = "daytona-small"


@dataclass
class Box:
    """A sandbox; ``jail`` is None for one that is only listed, or stopped."""

    id: str
    asked: dict[str, Any]
    jail: Jail | None = None
    state: str = "started"
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    log: bytes = b""

    def told(self) -> dict[str, Any]:
        return {
            "id": self.id, "organizationId": "o", "name": self.asked.get("name", self.id),
            "snapshot": self.asked.get("snapshot"), "user": "daytona", "env": self.asked.get("env", {}),
            "labels": self.asked.get("labels", {}), "public": False, "target": "eu", "cpu": 1, "gpu": 0, "memory": 2,
            "networkBlockAll": self.asked.get("networkBlockAll", False), "disk": 3, "state": self.state,
            "desiredState": self.state, "autoStopInterval": self.asked.get("autoStopInterval", 15),
            "autoDeleteInterval": -1, "autoDestroyAt": self.asked.get("ends"), "createdAt": self.made,
            "updatedAt": self.made, "toolboxProxyUrl": "https://stand-in.invalid/toolbox",
        }  # fmt: skip


class Daytona:
    """``asked`` are the calls that it got."""

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.asked: list[tuple[str, str]] = []
        self.page = 200
        self._ids = itertools.count(1)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28)
        app.add_routes([
            web.get("/api/sandbox", self.list), web.post("/api/sandbox", self.create),
            web.get("/api/sandbox/{id}", self.get), web.delete("/api/sandbox/{id}", self.delete),
            web.post("/api/sandbox/{id}/start", self.start), web.post("/api/sandbox/{id}/stop", self.stop),
            web.post("/toolbox/{id}/process/execute", self.execute),
            web.get("/toolbox/{id}/process/session/entrypoint/logs", self.logs),
            web.get("/toolbox/{id}/files/download", self.download),
            web.post("/toolbox/{id}/files/upload", self.upload),
        ])  # fmt: skip
        return app

    def end(self) -> None:
        for box in self.boxes.values():
            if box.jail is not None:
                box.jail.end()

    def _box(self, request: web.Request) -> Box:
        self.asked.append((request.method, request.path))
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            raise web.HTTPUnauthorized(text=json.dumps({"statusCode": 401, "message": "Invalid credentials"}))
        box = self.boxes.get(request.match_info.get("id", ""))
        if "id" in request.match_info and (box is None or (request.path.startswith("/toolbox") and box.jail is None)):
            raise web.HTTPNotFound(text=json.dumps({"statusCode": 404, "message": "Sandbox not found"}))
        return box  # type: ignore[return-value]

    async def list(self, request: web.Request) -> web.Response:
        self._box(request)
        boxes = [*self.boxes.values()]
        at, size = int(request.query.get("cursor", "0")), min(int(request.query["limit"]), self.page)
        more = str(at + size) if at + size < len(boxes) else None
        return web.json_response({"items": [box.told() for box in boxes[at : at + size]], "nextCursor": more})

    async def create(self, request: web.Request) -> web.Response:
        self._box(request)
        asked = await request.json()
        if asked["snapshot"] != SNAPSHOT:
            return web.json_response({"statusCode": 404, "message": "Snapshot not found"}, status=404)
        if any(box.asked.get("name") == asked["name"] for box in self.boxes.values()):
            return web.json_response({"statusCode": 409, "message": "name is taken"}, status=409)
        box = Box(f"d{next(self._ids)}", asked, Jail())
        self.boxes[box.id] = box
        return web.json_response({**box.told(), "state": "creating"})

    async def get(self, request: web.Request) -> web.Response:
        return web.json_response(self._box(request).told())

    async def delete(self, request: web.Request) -> web.Response:
        box = self._box(request)
        if box.jail is not None:
            box.jail.end()
        del self.boxes[box.id]
        return web.json_response({**box.told(), "state": "destroying"})

    async def start(self, request: web.Request) -> web.Response:
        box = self._box(request)
        box.jail, box.state = Jail(), "started"
        return web.json_response(box.told())

    async def stop(self, request: web.Request) -> web.Response:
        box = self._box(request)
        if box.jail is not None:
            box.jail.end()
        box.jail, box.state = None, "stopped"
        return web.json_response(box.told())

    async def execute(self, request: web.Request) -> web.Response:
        box, asked = self._box(request), await request.json()
        running = await box.jail.start(_words(asked["command"]), box.asked.get("env", {}), "/tmp")
        try:
            async with asyncio.timeout(asked["timeout"]):
                out, err = await running.process.communicate()
        except TimeoutError:
            running.process.kill()
            return web.json_response({"statusCode": 408, "message": "command execution timeout"}, status=408)
        code, _ = await running.code()
        return web.json_response({"exitCode": code, "result": (out + err).decode("utf-8", "replace")})

    async def logs(self, request: web.Request) -> web.Response:
        return web.Response(body=self._box(request).log)

    async def download(self, request: web.Request) -> web.StreamResponse:
        box = self._box(request)
        running = await box.jail.start(["cat", request.query["path"]], {}, "/")
        answer = web.StreamResponse()
        await answer.prepare(request)
        while data := await running.process.stdout.read(1 << 16):
            await answer.write(data)
        return answer

    async def upload(self, request: web.Request) -> web.Response:
        box = self._box(request)
        part = await (await request.multipart()).next()
        running = await box.jail.start(["sh", "-c", f"cat >{shlex.quote(request.query['path'])}"], {}, "/")
        while data := await part.read_chunk(1 << 16):
            running.process.stdin.write(data)
            await running.process.stdin.drain()
        running.process.stdin.close()
        await running.process.wait()
        return web.json_response({})


def _words(command: str) -> list[str]:
    """The words of a command, as the toolbox splits it: by spaces outside of quotes, which cannot be escaped."""
    words, current, quote = [], "", ""
    for one in command:
        if one in "\"'" and quote in ("", one):
            quote = "" if quote else one
        elif one == " " and not quote:
            words, current = words + ([current] if current else []), ""
        else:
            current += one
    return words + ([current] if current else [])
