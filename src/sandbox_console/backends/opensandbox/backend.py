"""The backend for an OpenSandbox server."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import ReadKey, Secrets
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.common.messages import not_running
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.placed_backend import LIVE, PlacedBackend, Runs
from sandbox_console.backends.common.unsupported import UnchangedImages
from sandbox_console.backends.opensandbox import diagnostics, lifetime, logs, pools
from sandbox_console.backends.opensandbox.capabilities import capabilities
from sandbox_console.backends.opensandbox.client import Box, Client
from sandbox_console.backends.opensandbox.options import Platform
from sandbox_console.backends.opensandbox.pipe import PipeGuest
from sandbox_console.backends.opensandbox.process import OpenSandboxProcess
from sandbox_console.backends.opensandbox.terminal import OpenSandboxTerminal
from sandbox_console.backends.opensandbox.translate import BACKEND, NAME, POOL, asked, of_box
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.image import Image
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.shells import SHELLS
from sandbox_console.model.spec import SandboxSpec

_MIB = 1 << 20
_BEST = "for s in " + " ".join(SHELLS) + '; do [ -x "$s" ] && exec "$s"; done; exec sh'


class OpenSandboxBackend(PlacedBackend[Box], UnchangedImages):
    """The sandboxes of one server."""

    name = BACKEND
    proved = (
        "proved against the real opensandbox-server 1.1.1 on Docker; execd, its daemon in a sandbox, was a stand-in"
    )

    def __init__(self, host: str, platform: Platform, key: ReadKey, folder: Path) -> None:
        self._platform = platform
        self._client = Client(host, platform, key)
        super().__init__(host, self._client, folder)

    def capabilities(self) -> Capabilities:
        return capabilities()

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        place = await self._place(ref)
        while (await self.inspect(ref)).status is Status.RUNNING:
            found = await self._client.metrics(place)
            used, most = (
                None if value is None else int(value * _MIB) for value in (found.mem_used_mib, found.mem_total_mib)
            )
            busy = None if found.cpu_used_pct is None else found.cpu_used_pct * found.cpu_count
            yield Stats(time.time(), busy, used, most)
            await asyncio.sleep(interval_s)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        found = {
            "name": "" if NAME.fullmatch(spec.name) else "the server takes the value of a label, at most 63 characters",
            "image": self._image_problem(spec),
            "max_duration_s": lifetime.problem(spec.max_duration_s),
            "workdir": "the server has no folder for the main process; give it to exec" if spec.workdir else "",
        }
        return {field: text for field, text in found.items() if text}

    def _image_problem(self, spec: SandboxSpec) -> str:
        if spec.image.startswith(POOL) and not self._platform.no_network:
            return "the server takes no network policy for a pool's sandboxes: its table needs no_network = true"
        return "" if spec.image.removeprefix(POOL) else "an image is needed"

    async def images(self) -> Sequence[Image]:
        return await pools.images(self._client, self.host)

    async def out_of_bounds(self, ref: SandboxRef, spec: SandboxSpec) -> Mapping[str, str]:
        if not (place := await self._live(ref)):
            return {}
        box = await self._client.one(place)
        entry = await self._entry(ref)
        old = entry.spec.max_duration_s if entry is not None and entry.spec is not None else None
        return {} if spec.max_duration_s == old else lifetime.out_of_bounds(box, spec.max_duration_s)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        """Change its life on the server, and what only this console knows. Raises NotFound, Unsupported."""
        need(permit)
        entry = await self._entry(ref)
        old = entry.spec.max_duration_s if entry is not None and entry.spec is not None else None
        if spec.max_duration_s not in (None, old) and (place := await self._live(ref)):
            await lifetime.renew(self._client, await self._client.one(place), spec.max_duration_s)
            self._polling.wake()
        if entry is not None:
            await super().update(permit, ref, spec)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._act(ref, "pause")

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._act(ref, "resume")

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> OpenSandboxProcess:  # noqa: ARG002 - as above
        need(permit)
        place = await self._running(request.ref)
        body: dict[str, Any] = {"argv": list(request.argv), "envs": dict(request.env)}
        if request.workdir:
            body["cwd"] = request.workdir
        if request.user is not None:
            body |= _user(request.user)
        return OpenSandboxProcess(self._client, place, body)

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> OpenSandboxTerminal:  # noqa: ARG002 - as above
        need(permit)
        if request.user is not None:
            raise Unsupported("execd opens a shell as its own user", hint="exec has a user")
        place = await self._running(request.ref)
        env = "".join(f"export {name}={shlex.quote(value)}; " for name, value in request.env.items())
        words = " ".join(map(shlex.quote, request.argv(request.shell or "sh")))
        command = f"export TERM={shlex.quote(request.term)}; {env}" + (
            _BEST if request.shell is None and not request.command else f"exec {words}"
        )
        terminal = await OpenSandboxTerminal.open(self._client, place, command, request.workdir)
        await terminal.resize(request.cols, request.rows)
        return terminal

    async def _guest(self, ref: SandboxRef) -> PipeGuest:
        return PipeGuest(self._client, await self._running(ref))

    async def _boxes(self) -> Mapping[str, Box]:
        return {box.id: box for box in await self._client.every()}

    async def _box(self, place: str) -> Box:
        return await self._client.one(place)

    async def _raw(self, place: str) -> Mapping[str, Any]:
        told = {"diagnostics": await diagnostics.read(self._client, place)}
        return {**await self._client.raw(place), **told}

    def _row(self, box: Box, entry: Entry | None) -> Sandbox:
        return of_box(self.host, box, entry)

    async def _make(self, spec: SandboxSpec) -> str:
        return (await self._client.create(asked(spec, no_network=self._platform.no_network))).id

    async def _ready(self, place: str) -> None:
        await self._client.ready(place)

    async def _delete(self, place: str) -> None:
        await self._client.act("DELETE", place)

    async def _log(self, place: str, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        async def lines(tail: int) -> str:
            try:
                return await self._client.logs(place, tail)
            except NotFound:  # it was removed meanwhile
                return ""

        async with aclosing(logs.read(lines, runs, query)) as batches:
            async for batch in batches:
                yield batch

    async def _live(self, ref: SandboxRef) -> str:
        """What the server calls one that has not ended; empty for one that has."""
        return await self._place(ref) if (await self.inspect(ref)).status in LIVE else ""

    async def _act(self, ref: SandboxRef, verb: str) -> None:
        found = await self.inspect(ref)
        if not (place := await self._place(ref)):
            raise not_running(found.name, found.status)
        await self._client.act("POST", place, verb)
        self._polling.wake()


def _user(user: str) -> dict[str, int]:
    uid, _, gid = user.partition(":")
    if not uid.isdecimal() or (gid and not gid.isdecimal()):
        raise Unsupported(f"execd takes a number for a user, not {user!r}", hint="--user UID, or UID:GID")
    return {"uid": int(uid)} | ({"gid": int(gid)} if gid else {})
