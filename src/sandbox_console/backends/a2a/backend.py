"""The backend for a runtime that speaks a2a_pack's HTTP interface."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandbox_console.backends.a2a.capabilities import capabilities
from sandbox_console.backends.a2a.client import Client
from sandbox_console.backends.a2a.options import Runtime
from sandbox_console.backends.base import ReadKey, Secrets
from sandbox_console.backends.common.buffered_process import ENDED, BufferedProcess, Whole
from sandbox_console.backends.common.guest_command import in_guest
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.common.messages import not_running, not_stopped
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.remote_backend import RemoteBackend
from sandbox_console.errors import Conflict, ConsoleError
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "a2a"
_LATE_S = 30.0
_UNTOLD = "an a2a runtime tells only names"
_UNKNOWN = tuple(
    Fact(field, "unknown", _UNTOLD, enforced=False) for field in ("image", "cpus", "memory_mib", "egress", "labels")
)
_LOST = "the runtime does not list it any more"
_STATE = "a2a runtimes do not tell states"
_ENDED = Exit(reason="removed from the runtime, which does not tell how it ended")


class A2aBackend(RemoteBackend):
    """The sandboxes of one runtime."""

    name = BACKEND
    proved = "proved against this console's serve --api; no platform of a2a-cloud was at hand"

    def __init__(self, host: str, runtime: Runtime, key: ReadKey, folder: Path) -> None:
        self._runtime = runtime
        self._client = Client(host, runtime, key)
        super().__init__(host, self._client, folder)

    def capabilities(self) -> Capabilities:
        return capabilities(no_network=self._runtime.no_network)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        found = {
            "image": "" if spec.image else "an image is needed",
            "command": "the runtime chooses the main process; leave it out, and exec" if spec.command else "",
            "env": "the interface sends no variables; give them to exec" if spec.env else "",
            "workdir": "the interface sends no folder; give it to exec" if spec.workdir else "",
        }
        return {field: text for field, text in found.items() if text}

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - a spec with secrets is refused
        need(permit)
        found = await self.inspect(ref)
        if found.status in (Status.RUNNING, Status.UNKNOWN):
            return
        entry = await self._entry(ref)
        if entry is None or entry.spec is None:
            raise Conflict(f"what was asked of {found.name} cannot be read any more", hint="create it again")
        name = await self._client.create(_asked(entry.spec, self._runtime.bucket))
        await self._ledger.put(entry, place=name, started_at=time.time(), finished_at=None, exit=None)
        self._polling.wake()

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - it has none
        """Remove it from the runtime, which has no other end; what this console knows of it stays."""
        need(permit)
        found = await self.inspect(ref)
        if found.status not in (Status.RUNNING, Status.UNKNOWN):
            return
        entry = await self._entry(ref)
        await self._client.delete(entry.place if entry else found.name)
        if entry is not None:
            await self._ledger.put(entry, finished_at=time.time(), exit=_ENDED)
        self._polling.wake()

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status in (Status.RUNNING, Status.UNKNOWN) and not force:
            raise not_stopped(found.name, found.status)
        await self.stop(permit, ref, 0.0)
        await self._ledger.drop(ref.id)
        self._polling.wake()

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> BufferedProcess:  # noqa: ARG002 - as above
        need(permit)
        if request.user is not None:
            raise self._cannot(Capability.EXEC_USER)
        found = await self.inspect(request.ref)
        if found.status not in (Status.RUNNING, Status.UNKNOWN):
            raise not_running(found.name, found.status)
        entry = await self._entry(request.ref)
        return BufferedProcess(self._run(request, entry.place if entry else found.name))

    async def _run(self, request: Exec, name: str) -> Whole:
        command, *args = in_guest(request)
        body: dict[str, Any] = {"cmd": command, "args": args}
        limit = None
        if request.timeout_s is not None:
            body["timeout_seconds"], limit = request.timeout_s, request.timeout_s + _LATE_S
        try:
            ended = await self._client.run(name, body, limit)
        except ConsoleError:
            if name not in await self._client.names():
                return ENDED
            raise
        reason = "the runtime cut the output" if ended.truncated else ""
        code = ended.exit_code if ended.exit_code >= 0 else None
        out, err = (text.encode("utf-8", "surrogatepass") for text in (ended.stdout, ended.stderr))
        return Whole(Exit(code, reason=reason), out, err)

    async def _rows(self) -> Sequence[Sandbox]:
        names = await self._client.names()
        entries = await self._ledger.every()
        own = {entry.place for entry in entries.values() if entry.place}
        rows = [self._own(entry, listed=entry.place in names) for entry in entries.values()]
        rows += [self._foreign(name) for name in dict.fromkeys(names) if name not in own]
        return rows

    def _foreign(self, name: str) -> Sandbox:
        ref = SandboxRef(BACKEND, self.host, quote(name, safe=""))
        return Sandbox(ref, name, Status.UNKNOWN, managed=False, maker="a2a", effective=_UNKNOWN, detail=_STATE)

    def _own(self, entry: Entry, *, listed: bool) -> Sandbox:
        spec = entry.spec
        status = Status.CREATED
        if entry.started_at is not None:
            status = Status.EXITED if entry.finished_at is not None else Status.RUNNING if listed else Status.LOST
        facts = [Fact("name", entry.place, "as the runtime calls it")] if entry.place else []
        return Sandbox(
            SandboxRef(BACKEND, self.host, entry.id),
            spec.name if spec else entry.place or entry.id,
            status,
            image=spec.image if spec else "",
            created_at=entry.created_at,
            started_at=entry.started_at,
            finished_at=entry.finished_at,
            exit=entry.exit,
            labels=dict(spec.labels) if spec else {},
            spec=spec,
            effective=(*facts, *(() if spec else _UNKNOWN)),
            detail=_LOST if status is Status.LOST else "",
        )


def _asked(spec: SandboxSpec, bucket: str) -> dict[str, Any]:
    found = {
        "bucket": bucket,
        "name": spec.name,
        "image": spec.image,
        "memory_mib": spec.memory_mib,
        "cpus": spec.cpus,
        "labels": dict(spec.labels) or None,
    }
    return {name: value for name, value in found.items() if value is not None}
