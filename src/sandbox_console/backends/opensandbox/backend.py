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
from sandbox_console.backends.common.guest_files import GuestFiles
from sandbox_console.backends.common.messages import not_running, not_stopped
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.remote_backend import RemoteBackend
from sandbox_console.backends.opensandbox import logs
from sandbox_console.backends.opensandbox.capabilities import capabilities
from sandbox_console.backends.opensandbox.client import Client
from sandbox_console.backends.opensandbox.options import Platform
from sandbox_console.backends.opensandbox.pipe import PipeGuest
from sandbox_console.backends.opensandbox.process import OpenSandboxProcess
from sandbox_console.backends.opensandbox.terminal import OpenSandboxTerminal
from sandbox_console.backends.opensandbox.translate import BACKEND, NAME, asked, of_box, unlisted
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.shells import SHELLS
from sandbox_console.model.spec import SandboxSpec

_MIB = 1 << 20
_REMOVED = Exit(reason="removed from the server, which does not tell how it ended")
_BEST = "for s in " + " ".join(SHELLS) + '; do [ -x "$s" ] && exec "$s"; done; exec sh'
_LIVE = (Status.RUNNING, Status.PAUSED, Status.STARTING, Status.STOPPING, Status.UNKNOWN)


class OpenSandboxBackend(GuestFiles, RemoteBackend):
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

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        entry = await self._entry(ref)
        if entry is not None and not entry.place:
            return unlisted(self.host, entry)
        try:
            return of_box(self.host, await self._client.one(entry.place if entry is not None else ref.id), entry)
        except NotFound:
            if entry is not None:
                return unlisted(self.host, entry)
            raise

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        entry = await self._entry(ref)
        if entry is not None and not entry.place:
            return {"id": ref.id}
        return {"console_id": ref.id, **await self._client.raw(entry.place if entry is not None else ref.id)}

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        place = await self._place(ref)
        if not place:
            return

        async def lines(tail: int) -> str:
            try:
                return await self._client.logs(place, tail)
            except NotFound:  # it was removed meanwhile
                return ""

        async def runs() -> bool:
            try:
                return (await self.inspect(ref)).status in _LIVE and await self._place(ref) == place
            except NotFound:
                return False

        async with aclosing(logs.read(lines, runs, query)) as batches:
            async for batch in batches:
                yield batch

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
            "image": "" if spec.image else "an image is needed",
            "workdir": "the server has no folder for the main process; give it to exec" if spec.workdir else "",
        }
        return {field: text for field, text in found.items() if text}

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - a spec with secrets is refused
        """Make it. One that has ended is removed from the server first, with its files."""
        need(permit)
        found = await self.inspect(ref)
        if found.status in _LIVE:
            return
        entry = await self._entry(ref)
        if entry is None or entry.spec is None:
            raise Unsupported(f"{found.name} cannot be started again: the server has no call for that")
        if entry.place:
            await self._gone(entry.place)
        box = await self._client.create(asked(entry.spec, no_network=self._platform.no_network))
        await self._ledger.put(entry, place=box.id, started_at=time.time(), finished_at=None, exit=None)
        self._polling.wake()
        await self._client.ready(box.id)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - it has none
        """Remove it from the server, which has no other end; what this console knows of it stays."""
        need(permit)
        if (await self.inspect(ref)).status not in _LIVE:
            return
        entry = await self._entry(ref)
        await self._gone(entry.place if entry is not None else ref.id)
        if entry is not None:
            await self._ledger.put(entry, finished_at=time.time(), exit=_REMOVED)
        self._polling.wake()

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._act(ref, "pause")

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._act(ref, "resume")

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status in _LIVE and not force:
            raise not_stopped(found.name, found.status)
        if place := await self._place(ref):
            await self._gone(place)
        await self._ledger.drop(ref.id)
        self._polling.wake()

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

    async def _rows(self) -> Sequence[Sandbox]:
        boxes = await self._client.every()
        entries = await self._ledger.every()
        by_place = {entry.place: entry for entry in entries.values() if entry.place}
        rows = [of_box(self.host, box, by_place.get(box.id)) for box in boxes]
        there = {box.id for box in boxes}
        rows += [unlisted(self.host, entry) for entry in entries.values() if entry.place not in there]
        return rows

    async def _place(self, ref: SandboxRef) -> str:
        """What the server calls it; empty if it was never started. Raises NotFound."""
        await self.inspect(ref)
        entry = await self._entry(ref)
        return entry.place if entry is not None else ref.id

    async def _running(self, ref: SandboxRef) -> str:
        found = await self.inspect(ref)
        if found.status is not Status.RUNNING:
            raise not_running(found.name, found.status)
        return await self._place(ref)

    async def _act(self, ref: SandboxRef, verb: str) -> None:
        found = await self.inspect(ref)
        if not (place := await self._place(ref)):
            raise not_running(found.name, found.status)
        await self._client.act("POST", place, verb)
        self._polling.wake()

    async def _gone(self, path: str) -> None:
        try:
            await self._client.act("DELETE", path)
        except NotFound:
            return


def _user(user: str) -> dict[str, int]:
    uid, _, gid = user.partition(":")
    if not uid.isdecimal() or (gid and not gid.isdecimal()):
        raise Unsupported(f"execd takes a number for a user, not {user!r}", hint="--user UID, or UID:GID")
    return {"uid": int(uid)} | ({"gid": int(gid)} if gid else {})
