"""The backend for a legacy microsandbox server."""

from __future__ import annotations

import asyncio
import contextlib
import secrets as randomness
import shlex
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from sandbox_console.backends.base import ReadKey, Secrets
from sandbox_console.backends.common.buffered_process import ENDED, BufferedProcess, Whole
from sandbox_console.backends.common.guest_command import in_guest
from sandbox_console.backends.common.messages import not_running, not_stopped
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.remote_backend import RemoteBackend
from sandbox_console.backends.microsandbox_legacy.capabilities import capabilities
from sandbox_console.backends.microsandbox_legacy.inventory import BACKEND, NAME, merged, place
from sandbox_console.backends.microsandbox_legacy.options import LegacyServer
from sandbox_console.backends.microsandbox_legacy.rpc import Ran, Rpc
from sandbox_console.errors import BackendError, Conflict, ConsoleError, Unsupported
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.spec import SandboxSpec

START_S = 210.0
"""The old clients wait 180 s for a start, and 30 s more for the answer."""
_LATE_S = 30.0
_MIB = 1 << 20
_STARTED = "timed out waiting"
"""A server that says this has started the sandbox, which is not ready yet."""


class LegacyBackend(RemoteBackend):
    """The sandboxes of one server."""

    name = BACKEND
    proved = (
        "proved against this console's serve --microsandbox and a stand-in server; a real server of microsandbox "
        "0.1 or 0.2 can no longer be had"
    )

    def __init__(self, host: str, server: LegacyServer, key: ReadKey, folder: Path) -> None:
        self._server = server
        self._rpc = Rpc(host, server, key)
        super().__init__(host, self._rpc, folder)

    def capabilities(self) -> Capabilities:
        return capabilities(no_network=self._server.no_network)

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        """What the server says of it, which is all that it says of any."""
        row = await self._rpc.row(*self._place(await self.inspect(ref)))
        return {"id": ref.id, **(structs.asdict(row) if row is not None else {})}

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
        where = self._place(await self.inspect(ref))
        while (row := await self._rpc.row(*where)) is not None and row.running:
            memory = None if row.memory_usage is None else int(row.memory_usage * _MIB)
            yield Stats(time.time(), row.cpu_usage, memory)
            await asyncio.sleep(interval_s)

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        found = {
            "name": "" if NAME.fullmatch(spec.name) else "the server takes letters, digits, '-' and '_', at most 63",
            "image": "" if spec.image else "an image is needed",
            "cpus": "" if spec.cpus is None or spec.cpus.is_integer() else "the server takes whole CPUs",
        }
        return {field: text for field, text in found.items() if text}

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - a spec with secrets is refused
        need(permit)
        found = await self.inspect(ref)
        if found.status is Status.RUNNING:
            return
        entry = await self._entry(ref)
        namespace, name = self._place(found)
        params = self._params(namespace, name) | ({"config": _config(entry.spec)} if entry and entry.spec else {})
        told = await self._rpc.call("sandbox.start", params, str, START_S)
        if entry is not None:
            await self._ledger.put(entry, started_at=time.time(), finished_at=None, exit=None)
        if _STARTED in told:
            await self._until_running(namespace, name)
        self._polling.wake()

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status is not Status.RUNNING:
            return
        await self._rpc.call("sandbox.stop", self._params(*self._place(found)), str, grace_s + _LATE_S)
        if entry := await self._entry(ref):
            ended = Exit(reason="stopped; the server does not tell with which code")
            await self._ledger.put(entry, finished_at=time.time(), exit=ended)
        self._polling.wake()

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        """Stop it and forget it. Raises Unsupported if the server goes on listing it: it has no call for that."""
        need(permit)
        found = await self.inspect(ref)
        where = self._place(found)
        if found.status is Status.RUNNING:
            if not force:
                raise not_stopped(found.name, found.status)
            await self.stop(permit, ref, 1.0)
        if await self._rpc.row(*where) is not None:
            with contextlib.suppress(BackendError):  # a server that forgets what is stopped forgets it now
                await self._rpc.call("sandbox.stop", self._params(*where), str, _LATE_S)
        if await self._rpc.row(*where) is not None:
            text = f"{found.name} is stopped, but a microsandbox server has no call that removes it"
            raise Unsupported(text, hint="remove it on the server's machine: msb remove")
        await self._ledger.drop(ref.id)
        self._polling.wake()

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> BufferedProcess:  # noqa: ARG002 - as above
        need(permit)
        if request.user is not None:
            raise self._cannot(Capability.EXEC_USER)
        found = await self.inspect(request.ref)
        if found.status is not Status.RUNNING:
            raise not_running(found.name, found.status)
        return BufferedProcess(self._run(request, *self._place(found)))

    async def _run(self, request: Exec, namespace: str, name: str) -> Whole:
        command, *args = in_guest(request)
        params: dict[str, Any] = self._params(namespace, name) | {"command": command, "args": args}
        limit = None
        if request.timeout_s is not None:
            params["timeout"], limit = max(1, round(request.timeout_s)), request.timeout_s + _LATE_S
        try:
            ran = await self._rpc.call("sandbox.command.run", params, Ran, limit)
        except ConsoleError:
            if (row := await self._rpc.row(namespace, name)) is None or not row.running:
                return ENDED
            raise
        out, err = (
            b"".join(line.text.encode("utf-8", "surrogatepass") + b"\n" for line in ran.output if line.stream == stream)
            for stream in ("stdout", "stderr")
        )
        told = ran.exit_code >= 0
        return Whole(Exit(ran.exit_code) if told else Exit(reason="the server tells no exit code"), out, err)

    @property
    def _namespace(self) -> str:
        """The namespace of what is created."""
        first = next(iter(self._server.namespaces), "")
        return "default" if first == "*" else first

    @staticmethod
    def _params(namespace: str, name: str) -> dict[str, Any]:
        return {"sandbox": name} | ({"namespace": namespace} if namespace else {})

    async def _rows(self) -> Sequence[Sandbox]:
        return merged(self.host, await self._rpc.rows(), await self._ledger.every())

    def _identity(self, spec: SandboxSpec) -> tuple[str, str]:
        where = place(self._namespace, spec.name)
        return f"{where}.{randomness.token_hex(4)}", where

    def _place(self, found: Sandbox) -> tuple[str, str]:
        """Its namespace and name on the server."""
        named = next((fact.value for fact in found.effective if fact.field == "namespace"), None)
        return (self._namespace if named is None else named), found.name

    async def _until_running(self, namespace: str, name: str) -> None:
        """Wait for a sandbox that the server has started and that is not ready yet. Raises BackendError."""
        deadline = time.monotonic() + START_S
        while (row := await self._rpc.row(namespace, name)) is None or not row.running:
            if time.monotonic() > deadline:
                raise Conflict(f"{name} has been started, but does not run yet", hint="look again: sandbox-console ls")
            await asyncio.sleep(1.0)


def _config(spec: SandboxSpec) -> dict[str, Any]:
    """What the server takes of a spec."""
    found = {
        "image": spec.image,
        "memory": spec.memory_mib,
        "cpus": None if spec.cpus is None else int(spec.cpus),
        "envs": [f"{name}={value}" for name, value in spec.env.items()],
        "workdir": spec.workdir,
        "exec": shlex.join(spec.command) if spec.command else None,
    }
    return {name: value for name, value in found.items() if value not in (None, [])}
