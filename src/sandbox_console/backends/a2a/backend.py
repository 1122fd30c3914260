"""The backend for a runtime that speaks a2a_pack's HTTP interface."""

from __future__ import annotations

import builtins
import secrets as randomness
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandbox_console.backends.a2a.capabilities import capabilities
from sandbox_console.backends.a2a.client import Client
from sandbox_console.backends.a2a.options import Runtime
from sandbox_console.backends.base import Progress, ReadKey, Secrets
from sandbox_console.backends.common import remote
from sandbox_console.backends.common.guest_words import in_guest
from sandbox_console.backends.common.ledger import Entry, Ledger
from sandbox_console.backends.common.messages import name_taken, not_running
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.polling import Polling
from sandbox_console.backends.common.refusing import Refusing
from sandbox_console.backends.common.whole_process import ENDED, Whole, WholeProcess
from sandbox_console.errors import Conflict, ConsoleError, InvalidSpec, NotFound
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "a2a"
_LATE_S = 30.0
_UNTOLD = "an a2a runtime tells only names"
_UNKNOWN = tuple(
    Fact(field, "unknown", _UNTOLD, enforced=False) for field in ("image", "cpus", "memory_mib", "egress", "labels")
)
_LOST = "the runtime does not list it any more"
_STATE = "a2a runtimes do not tell states"
_PROVED = "proved against this console's serve --api; no platform of a2a-cloud was at hand"
_ENDED = Exit(reason="removed from the runtime, which does not tell how it ended")


class A2aBackend(Refusing):
    """The sandboxes of one runtime."""

    name = BACKEND

    def __init__(self, host: str, runtime: Runtime, key: ReadKey, folder: Path) -> None:
        self.host = host
        self._runtime = runtime
        self._client = Client(host, runtime, key)
        self._ledger = Ledger(folder)
        self._polling = Polling(self._look, lambda error: remote.health(BACKEND, host, error))

    async def open(self) -> None:
        """Nothing is needed before the first request."""

    async def close(self) -> None:
        await self._client.close()

    def capabilities(self) -> Capabilities:
        return capabilities(no_network=self._runtime.no_network)

    async def health(self) -> BackendHealth:
        return await self._polling.health()

    async def diagnose(self) -> Sequence[Diagnosis]:
        return [Diagnosis("proof", "ok", _PROVED, "docs/interop.md")]

    async def list(self) -> builtins.list[Sandbox]:
        return [*await self._polling.rows()]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        for one in await self.list():
            if one.ref == ref:
                return one
        raise NotFound(f"{self._client.label} has no sandbox {ref.id}", hint="sandbox-console ls")

    async def watch(self) -> AsyncGenerator[BackendEvent, None]:
        async with aclosing(self._polling.events()) as events:
            async for event in events:
                yield event

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        found = {
            "image": "" if spec.image else "an image is needed",
            "command": "the runtime chooses the main process; leave it out, and exec" if spec.command else "",
            "env": "the interface sends no variables; give them to exec" if spec.env else "",
            "workdir": "the interface sends no folder; give it to exec" if spec.workdir else "",
        }
        return {field: text for field, text in found.items() if text}

    async def create(
        self,
        permit: Permit,
        spec: SandboxSpec,
        secrets: Secrets,  # noqa: ARG002 - a spec with secrets is refused: secret.env is unsupported
        progress: Progress,  # noqa: ARG002 - nothing is asked of the runtime yet
    ) -> SandboxRef:
        """Note what is asked for: a runtime starts what it creates."""
        need(permit)
        if problems := self.validate(spec):
            raise InvalidSpec(problems)
        if spec.egress:
            raise self._cannot(Capability.EGRESS_ALLOWLIST)
        if not self._runtime.no_network:
            raise self._cannot(Capability.EGRESS_NONE)
        if any(one.name == spec.name for one in await self.list()):
            raise name_taken(spec.name)
        id_ = f"own-{randomness.token_hex(8)}"
        await self._ledger.put(Entry(id_, "", spec.to_dict(), time.time()))
        self._polling.wake()
        return SandboxRef(BACKEND, self.host, id_)

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - as above
        need(permit)
        found = await self.inspect(ref)
        if found.status in (Status.RUNNING, Status.UNKNOWN):
            return
        entry = (await self._ledger.every())[ref.id]
        if entry.spec is None:
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
        entry = (await self._ledger.every()).get(ref.id)
        await self._client.delete(entry.place if entry else found.name)
        if entry is not None:
            await self._ledger.put(entry, finished_at=time.time(), exit=_ENDED)
        self._polling.wake()

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        """Raise NotFound, or Unsupported: the interface has no signals."""
        await self.inspect(ref)
        await super().kill(permit, ref, signal)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status in (Status.RUNNING, Status.UNKNOWN) and not force:
            may = "is running" if found.status is Status.RUNNING else "may be running"
            raise Conflict(f"{found.name} {may}", hint=f"sandbox-console rm --force {found.name}")
        await self.stop(permit, ref, 0.0)
        await self._ledger.drop(ref.id)
        self._polling.wake()

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> WholeProcess:  # noqa: ARG002 - as above
        need(permit)
        if request.user is not None:
            raise self._cannot(Capability.EXEC_USER)
        found = await self.inspect(request.ref)
        if found.status not in (Status.RUNNING, Status.UNKNOWN):
            raise not_running(found.name, found.status)
        entry = (await self._ledger.every()).get(request.ref.id)
        return WholeProcess(self._run(request, entry.place if entry else found.name))

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

    async def _look(self) -> tuple[BackendHealth, Sequence[Sandbox]]:
        names = await self._client.names()
        entries = await self._ledger.every()
        own = {entry.place for entry in entries.values() if entry.place}
        rows = [self._own(entry, listed=entry.place in names) for entry in entries.values()]
        rows += [self._foreign(name) for name in dict.fromkeys(names) if name not in own]
        return remote.health(BACKEND, self.host), rows

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
