"""The handlers of the API, which run once the caller is known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Struct

from sandbox_console.errors import BackendError, ConsoleError, Denied, NotFound, Unsupported, UsageError
from sandbox_console.library import ExecResult, SandboxHandle
from sandbox_console.model.action import Action, Exec, Remove
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.servers.api.authentication import Caller
from sandbox_console.servers.api.listing import Box
from sandbox_console.servers.api.sandboxes import Sandboxes
from sandbox_console.servers.api.schemas import (
    CreateBody,
    Created,
    Ended,
    ExecBody,
    PythonBody,
    RunBody,
    ShellBody,
)
from sandbox_console.service import TIMED_OUT_CODE

T = TypeVar("T", bound=Struct)

CALLER = web.RequestKey("caller", Caller)
BODY_S = 15.0
"""How long a body may take to arrive."""

NO_NETWORK = 126
"""The exit code of a one-shot call whose network could not be set up."""

_SHELL = "/bin/sh"


class Calls:
    """The handlers. ``longest_s`` is the longest time that a command gets, whatever is requested."""

    def __init__(self, sandboxes: Sandboxes, longest_s: float) -> None:
        self._sandboxes = sandboxes
        self._longest_s = longest_s

    async def create(self, request: web.Request) -> web.Response:
        """POST /v1/sandboxes."""
        body = await read(request, CreateBody)
        box = await self._sandboxes.create(request[CALLER], body)
        return answer(Created(box.name, body.image, box.bucket))

    async def names(self, request: web.Request) -> web.Response:
        """GET /v1/sandboxes."""
        return answer(await self._sandboxes.names(request[CALLER]))

    async def exec(self, request: web.Request) -> web.Response:
        """POST /v1/sandboxes/{name}/exec. A command that times out also ends the sandbox."""
        body = await read(request, ExecBody)
        argv = _argv(body)
        box = await self._sandboxes.box(request.match_info["name"])
        await self._need_owner(request[CALLER], box, Exec(box.ref, argv))
        handle = self._sandboxes.handle(box)
        try:
            done = await handle.exec(argv, timeout_s=self._seconds(body.timeout_seconds))
        except NotFound:
            self._sandboxes.forget(box)
            raise
        if done.timed_out:
            await run_to_completion(self._remove(handle, box))
        return answer(_ended(done))

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/sandboxes/{name}. A missing sandbox counts as deleted."""
        try:
            box = await self._sandboxes.box(request.match_info["name"])
        except NotFound:
            return web.Response(status=204)
        await self._need_owner(request[CALLER], box, Remove(box.ref, force=True))
        await run_to_completion(self._remove(self._sandboxes.handle(box), box))
        return web.Response(status=204)

    async def run_shell(self, request: web.Request) -> web.Response:
        """POST /v1/run_shell."""
        body = await read(request, ShellBody)
        return await self._once(request, body, (_SHELL, "-c", body.script))

    async def run_python(self, request: web.Request) -> web.Response:
        """POST /v1/run_python."""
        body = await read(request, PythonBody)
        return await self._once(request, body, ("python3", "-c", body.code))

    async def _once(self, request: web.Request, body: RunBody, argv: tuple[str, ...]) -> web.Response:
        entered = False
        try:
            async with self._sandboxes.once(request[CALLER], body) as box:
                entered = True
                done = await box.exec(argv, timeout_s=self._seconds(body.timeout_seconds))
        except (BackendError, Unsupported) as error:
            if entered or not _of_network(error):
                raise
            return answer(Ended("", error.message, NO_NETWORK))
        return answer(_ended(done))

    async def _need_owner(self, caller: Caller, box: Box, action: Action) -> None:
        if not box.belongs_to(caller):
            await self._sandboxes.refuse(action, Denied("the sandbox is another caller's", rule="api.owner"))

    async def _remove(self, handle: SandboxHandle, box: Box) -> None:
        self._sandboxes.forget(box)
        try:
            await handle.remove(force=True)
        except NotFound:
            return

    def _seconds(self, requested: float | None) -> float:
        return min(requested or self._longest_s, self._longest_s)


async def health(_: web.Request) -> web.Response:
    """GET /healthz. It only shows that the server answers."""
    return answer({"status": "ok"})


async def read(request: web.Request, kind: type[T]) -> T:
    """Parse the body as a type. Raises UsageError, which names the field; 408 if it arrives too slowly; 413, 415."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="Content-Type: application/json is needed")
    try:
        async with asyncio.timeout(BODY_S):
            data = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body came too slowly") from None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the body is not valid: {error}"[:300], hint="GET /openapi.json") from None


def answer(value: Struct | Mapping[str, str] | list[str], status: int = 200) -> web.Response:
    """JSON."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)


def _argv(body: ExecBody) -> tuple[str, ...]:
    if (body.cmd is None) == (body.script is None):
        raise UsageError("either cmd or script is needed", hint="GET /openapi.json")
    if body.script is not None:
        if body.args:
            raise UsageError("args go with cmd, not with script", hint="GET /openapi.json")
        return _SHELL, "-c", body.script
    return body.cmd or "", *body.args


def _ended(done: ExecResult) -> Ended:
    code = TIMED_OUT_CODE if done.timed_out else done.exit_code
    return Ended(done.text, done.error_text, -1 if code is None else code, done.truncated)


def _of_network(error: ConsoleError) -> bool:
    return any(word in error.message.lower() for word in ("egress", "gateway", "network"))
