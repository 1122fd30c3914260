"""The inside of a fake sandbox: files, processes, changes, events and egress."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import structs

from sandbox_console.backends.tarscan import guarded
from sandbox_console.egress.decide import verdict
from sandbox_console.model.action import Permit
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.guest import FileInfo, GuestEvent, GuestProcess, PathChange
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.testing.fake_attach import FakeAttached
from sandbox_console.testing.fake_core import FakeCore

T = TypeVar("T", GuestEvent, EgressRecord)


class FakeGuest(FakeCore):
    """``Files``, ``Processes``, ``Changes``, ``Raw``, ``GuestEvents``, ``Attachable`` and ``Egress``."""

    async def stat(self, ref: SandboxRef, path: str) -> FileInfo:
        await self._look("stat", ref)
        tree = self._tree(ref.id)
        return structs.replace(tree.info(tree.resolve(path)), name=path.rstrip("/").rpartition("/")[2] or "/")

    async def list_dir(self, ref: SandboxRef, path: str) -> Sequence[FileInfo]:
        await self._look("list_dir", ref)
        return self._tree(ref.id).entries(path)

    async def download(self, permit: Permit, ref: SandboxRef, path: str) -> AsyncIterator[bytes]:
        await self._meet(permit, "download")
        self._get(ref)
        for chunk in self._tree(ref.id).pack(path):
            yield chunk

    async def upload(self, permit: Permit, ref: SandboxRef, path: str, archive: AsyncIterator[bytes]) -> None:
        await self._meet(permit, "upload")
        self._get(ref)
        self._tree(ref.id).directory(path)
        found = bytearray()
        async for chunk in guarded(archive):
            found += chunk
        self._tree(ref.id).unpack(path, bytes(found))

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        """The scripted processes, or else the main process and the commands beside it."""
        await self._look("processes", ref)
        sandbox = self._require(ref, Status.RUNNING)
        if ref.id in self._processes:
            return self._processes[ref.id]
        command = " ".join(sandbox.spec.command if sandbox.spec and sandbox.spec.command else ("main",))
        beside = [" ".join(process.argv) for process, id_ in self._running.items() if id_ == ref.id and process.runs]
        return [
            GuestProcess(1, 0, "root", 0.0, 1 << 20, "sleeping", command),
            *(GuestProcess(pid, 1, "root", 0.0, 1 << 20, "running", one) for pid, one in enumerate(beside, 2)),
        ]

    async def changes(self, ref: SandboxRef) -> Sequence[PathChange]:
        await self._look("changes", ref)
        return self._tree(ref.id).changes(self._base(ref.id))

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        sandbox = await self._look("raw", ref)
        return {
            "Id": ref.id,
            "Name": sandbox.name,
            "State": {"Status": str(sandbox.status), "StartedAt": sandbox.started_at},
            "Config": {"Image": sandbox.image, "Labels": dict(sandbox.labels), "Env": self._masked_env(ref)},
        }

    def _masked_env(self, ref: SandboxRef) -> list[str]:
        spec = self._get(ref).spec
        return [f"{name}=***" for name in (*(spec.env if spec else ()), *self._secrets.get(ref.id, ()))]

    async def guest_events(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[GuestEvent]:
        await self._look("guest_events", ref)
        async for event in self._feed(self._happened.setdefault(ref.id, []), ref, since, follow):
            yield event

    async def attach(self, permit: Permit, ref: SandboxRef) -> FakeAttached:
        await self._meet(permit, "attach")
        self._require(ref, Status.RUNNING)
        attached = FakeAttached()
        self._attached[attached] = ref.id
        return attached

    async def egress(self, ref: SandboxRef) -> EgressState:
        await self._look("egress", ref)
        return EgressState(self._rules_of(ref))

    def _rules_of(self, ref: SandboxRef) -> tuple[EgressRule, ...]:
        spec = self._get(ref).spec
        rules = tuple(map(EgressRule, spec.egress if spec else ()))
        return self._rules.get(ref.id, rules)

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        await self._meet(permit, "set_egress")
        self._get(ref)
        self._rules[ref.id] = tuple(rules)

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        await self._meet(permit, "probe_egress")
        self._get(ref)
        return verdict(self._rules_of(ref), host, port, now=time.time())

    async def egress_records(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncIterator[EgressRecord]:
        await self._look("egress_records", ref)
        async for record in self._feed(self._egress.setdefault(ref.id, []), ref, since, follow):
            yield record

    async def _feed(self, found: list[T], ref: SandboxRef, since: float | None, follow: bool) -> AsyncIterator[T]:
        """Yield what is in a list, and with ``follow`` what is added to it for as long as the sandbox exists."""
        seen = 0
        while True:
            new, seen = found[seen:], len(found)
            for one in new:
                if since is None or one.at >= since:
                    yield one
            if not follow or ref.id not in self.sandboxes:
                return
            async with self._news:
                while len(found) == seen and ref.id in self.sandboxes:
                    await self._news.wait()
