"""A bundle as a read-only backend: its contents are shown as they were when the bundle was made."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import structs

from sandbox_console.backends.base import Process, Progress, Secrets, Terminal
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.bundle import Bundled
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.event import BackendEvent, HealthChanged, Listed
from sandbox_console.model.guest import GuestEvent, GuestProcess, PathChange
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Stats
from sandbox_console.model.spec import SandboxSpec

T = TypeVar("T")
_READABLE = frozenset({
    Capability.LOGS, Capability.LOG_STREAMS, Capability.STATS, Capability.PROCESSES, Capability.DIFF, Capability.RAW,
    Capability.EVENTS, Capability.EGRESS_ALLOWLIST, Capability.EGRESS_RECORDS,
})  # fmt: skip
WHY = "a bundle is only read: nothing in it can be changed or entered"
_AT_ONCE = 1000


class BundleView:
    """The sandboxes of a bundle that were on one backend and host; ``folder`` is where the bundle was unpacked."""

    def __init__(self, name: str, host: str, folder: Path, bundled: Sequence[Bundled]) -> None:
        self.name, self.host = name, host
        self._folder = folder
        self._bundled = {_id(one): one for one in bundled}

    async def open(self) -> None:
        return None

    async def close(self) -> None:
        return None

    def capabilities(self) -> Capabilities:
        return Capabilities(_READABLE, dict.fromkeys(frozenset(Capability) - _READABLE, WHY))

    async def health(self) -> BackendHealth:
        return BackendHealth(self.name, self.host, HealthState.OK, version="in a bundle")

    async def list(self) -> list[Sandbox]:
        return [await self.inspect(SandboxRef(self.name, self.host, key)) for key in self._bundled]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        try:
            part = await asyncio.to_thread(self._json, ref, "sandbox.json")
        except Unsupported as error:  # it could not be read when the bundle was made
            one = self._bundled[ref.id]
            return msgspec.convert(
                {"ref": {"backend": self.name, "host": self.host, "id": ref.id}, "name": one.name, "status": "unknown",
                 "detail": error.message}, Sandbox,
            )  # fmt: skip
        shown = msgspec.convert(part, Sandbox)
        # JSON has no tuples, and a spec has no lists: as lists, equal values would count as drift.
        found = {key: tuple(value) if isinstance(value, list) else value for key, value in shown.found.items()}
        return structs.replace(shown, found=found)

    async def watch(self) -> AsyncIterator[BackendEvent]:
        yield HealthChanged(await self.health())
        yield Listed(self.name, self.host, tuple(await self.list()))
        await asyncio.Event().wait()

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        self._there(ref)
        items = map(_log_item, self._lines(ref, "logs"))
        found: Iterator[LogItem] = (item for item in items if _in_time(item, query))
        if query.tail is not None:
            found = iter(await asyncio.to_thread(lambda: deque(found, maxlen=query.tail)))
        while some := await asyncio.to_thread(lambda: list(islice(found, _AT_ONCE))):
            yield some

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        for sample in await self._all(ref, "samples", Stats):
            yield sample
            await asyncio.sleep(interval_s)
        await asyncio.Event().wait()

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:  # noqa: ARG002
        return {"image": WHY}

    async def processes(self, ref: SandboxRef) -> Sequence[GuestProcess]:
        return await self._all(ref, "processes", GuestProcess)

    async def changes(self, ref: SandboxRef) -> Sequence[PathChange]:
        found = await asyncio.to_thread(lambda: list(self._lines(ref, "changes")))
        if not found:
            self._absent(ref, "changes")
        return [PathChange(str(one["path"]), str(one["how"])) for one in found]

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await asyncio.to_thread(self._json, ref, "inspect.json")
        return found

    async def guest_events(self, ref: SandboxRef, *, since: float | None, follow: bool) -> AsyncIterator[GuestEvent]:
        for event in await self._all(ref, "events", GuestEvent):
            if since is None or event.at >= since:
                yield event
        if follow:
            await asyncio.Event().wait()

    async def egress(self, ref: SandboxRef) -> EgressState:
        part = await asyncio.to_thread(self._json, ref, "egress-rules.json")
        return msgspec.convert(part, EgressState)

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        _refuse(permit, ref, rules)

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        _refuse(permit, ref, host, port)

    async def egress_records(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncIterator[EgressRecord]:
        for part in await asyncio.to_thread(lambda: list(self._lines(ref, "egress"))):
            record = msgspec.convert(part, EgressRecord)
            if since is None or record.at >= since:
                yield record
        if follow:
            await asyncio.Event().wait()

    # What a bundle cannot do

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        _refuse(permit, spec, secrets, progress)

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        _refuse(permit, ref, secrets)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        _refuse(permit, ref, grace_s)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        _refuse(permit, ref, signal)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        _refuse(permit, ref)

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        _refuse(permit, ref)

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        _refuse(permit, ref, name)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        _refuse(permit, ref, force)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        _refuse(permit, ref, spec)

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        _refuse(permit, request, secrets)

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        _refuse(permit, request, secrets)

    # Its parts

    def _there(self, ref: SandboxRef) -> Bundled:
        if (found := self._bundled.get(ref.id)) is None:
            raise NotFound(f"the bundle has no {ref}")
        return found

    def _absent(self, ref: SandboxRef, part: str) -> NoReturn:
        missing = {one.part: one.why for one in self._there(ref).missing}
        raise Unsupported(f"the bundle has no {part}: {missing.get(part) or missing.get('all') or 'there was none'}")

    def _json(self, ref: SandboxRef, name: str) -> Any:
        path = self._folder / self._there(ref).folder / name
        if not path.exists():
            self._absent(ref, name.partition(".")[0])
        return json.loads(path.read_bytes())

    def _lines(self, ref: SandboxRef, stem: str) -> Iterator[Any]:
        folder = self._folder / self._there(ref).folder
        for path in sorted(folder.glob(f"{stem}-[0-9]*.jsonl")):
            with path.open("rb") as file:
                yield from map(json.loads, file)

    async def _all(self, ref: SandboxRef, stem: str, kind: type[T]) -> Sequence[T]:
        found = await asyncio.to_thread(lambda: [msgspec.convert(one, kind) for one in self._lines(ref, stem)])
        if not found:
            self._absent(ref, stem)
        return found


def _id(one: Bundled) -> str:
    return one.ref.rpartition("/")[2]


def _refuse(*_: object) -> NoReturn:
    raise Unsupported(WHY)


def _log_item(part: Mapping[str, Any]) -> LogItem:
    at_ns = int(part["at_ns"])
    if "gap" in part:
        return LogGap(at_ns, str(part["gap"]), part.get("lines"))
    data = base64.b64decode(part["data_b64"]) if "data_b64" in part else str(part["data"]).encode("utf-8", "replace")
    return LogRecord(at_ns, Stream(part["stream"]), data)


def _in_time(item: LogItem, query: LogQuery) -> bool:
    at = item.at_ns / 1e9
    return (query.since is None or at >= query.since) and (query.until is None or at <= query.until)
