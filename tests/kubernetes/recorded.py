"""A server that gives recorded answers of a real API server, for tests without a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parent / "recordings"


def recording(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


class Server:
    """Answers GETs by path, POSTs of access reviews by ``denied``, and watches by what is put into ``events``."""

    def __init__(self) -> None:
        self.answers: dict[str, dict | Callable[[web.Request], dict]] = {
            "/version": {"gitVersion": "v1.20.2"},
            "/apis/agents.x-k8s.io/v1beta1": {"kind": "APIResourceList"},
            "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes": recording("sandboxes"),
            "/api/v1/namespaces/default/pods": recording("sandbox-pods"),
        }
        self.denied: set[str] = set()
        self.reviewed = asyncio.Event()  # reviews are answered once it is set
        self.reviewed.set()
        self.forbidden: set[str] = set()
        self.events: dict[str, asyncio.Queue[dict | None]] = {}
        self.asked: list[str] = []
        self.tokens: set[str] = set()
        self.url = ""
        self.frames: list[bytes] = []
        self.speaks = ("v4.channel.k8s.io",)
        self.received: list[bytes] = []
        self.log = b""
        self.changes: list[tuple[str, str, dict]] = []
        self.refused: dict[str, int] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        self.tokens.add(request.headers.get("Authorization", ""))
        if request.path.endswith("/selfsubjectaccessreviews"):
            await self.reviewed.wait()
            asked = (await request.json())["spec"]["resourceAttributes"]
            allowed = f"{asked['verb']} {asked['resource']}" not in self.denied
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        if request.path in self.forbidden:
            text = {
                "kind": "Status",
                "message": 'User "viewer" cannot list resource',
                "reason": "Forbidden",
                "code": 403,
            }
            return web.json_response(text, status=403)
        if request.method in ("POST", "PATCH", "DELETE"):
            return await self._change(request)
        if request.headers.get("Upgrade") == "websocket":
            return await self._socket(request)
        if request.path.endswith("/log"):
            return web.Response(body=self.log)
        if request.query.get("watch"):
            return await self._watch(request)
        if (found := self.answers.get(request.path)) is None:
            return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)
        if callable(found):
            found = found(request)
        if request.query.get("labelSelector"):
            found = {**found, "items": [one for one in found["items"] if _fits(one, request.query["labelSelector"])]}
        return web.json_response(found, headers={"Audit-Id": "5c3f-recorded"})

    async def _change(self, request: web.Request) -> web.StreamResponse:
        """Notes a change, and answers it with the recorded object of its path."""
        body = await request.json()
        self.changes.append((request.method, request.path, body))
        if (status := self.refused.get(request.path)) is not None:
            return web.json_response({"kind": "Status", "message": "refused", "code": status}, status=status)
        made = self.answers.get(request.path) if request.method == "PATCH" else None
        answer = made or {**body, "metadata": {**body.get("metadata", {}), "uid": "made-1", "namespace": "default"}}
        return web.json_response(answer, headers={"Audit-Id": f"audit-{len(self.changes)}"})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """Sends the recorded frames; before the last one, which is the status, it waits for what stdin gives."""
        ws = web.WebSocketResponse(protocols=self.speaks)
        await ws.prepare(request)
        for frame in self.frames[:-1]:
            await ws.send_bytes(frame)
        if request.query.get("stdin") and self.speaks[0].startswith("v5"):
            async for message in ws:
                self.received.append(message.data)
                if message.data == b"\xff\x00":
                    break
        await ws.send_bytes(self.frames[-1])
        await ws.close()
        return ws

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue = self.events.setdefault(request.path, asyncio.Queue())
        while (event := await queue.get()) is not None:
            line = json.dumps(event).encode() + b"\n"
            await response.write(line[:7])  # a line comes in any pieces
            await response.write(line[7:])
        return response

    def kubeconfig(self, path: Path, user: dict | None = None) -> Path:
        path.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": user or {"token": "t0ken-value"}}],
                    "contexts": [{"name": "rec", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "rec",
                }
            )
        )
        path.chmod(0o600)
        return path


def _fits(one: dict, selector: str) -> bool:
    key, _, value = selector.partition("=")
    labels = one["metadata"].get("labels") or {}
    return key in labels and (not value or labels[key] == value)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        for queue in server.events.values():
            queue.put_nowait(None)
        await runner.cleanup()
