"""The base of backends whose server starts what it creates, and removes what it stops."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from sandbox_console.backends.base import Secrets
from sandbox_console.backends.common.guest_files import GuestFiles
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.common.messages import not_running, not_stopped
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.common.remote_backend import RemoteBackend
from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.action import Permit
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

B = TypeVar("B")
Runs = Callable[[], Awaitable[bool]]
"""Whether a sandbox still runs."""
LIVE = (Status.RUNNING, Status.PAUSED, Status.STARTING, Status.STOPPING, Status.UNKNOWN)
_REMOVED = Exit(reason="removed from the server, which does not tell how it ended")
_OVER = Exit(reason="max_duration_s ran out")
_EARLY_S = 5.0
"""How much earlier a server may end a sandbox: it counts from when it was asked, and its clock is its own."""
_LOST = "the server does not have it any more: its time may be over"


class PlacedBackend(GuestFiles, RemoteBackend, Generic[B]):
    """The sandboxes of one server, each a ``B`` in its words. A start makes one, and a stop removes it."""

    @abstractmethod
    async def _boxes(self) -> Mapping[str, B]:
        """All sandboxes by the server's id. Raises a ConsoleError."""

    @abstractmethod
    async def _box(self, place: str) -> B:
        """One sandbox. Raises NotFound."""

    @abstractmethod
    async def _raw(self, place: str) -> Mapping[str, Any]:
        """One sandbox as the server tells it. Raises NotFound."""

    @abstractmethod
    def _row(self, box: B, entry: Entry | None) -> Sandbox:
        """A sandbox that the server has, with what this console asked for."""

    @abstractmethod
    async def _make(self, spec: SandboxSpec) -> str:
        """Make and start a sandbox; returns the server's id."""

    @abstractmethod
    async def _delete(self, place: str) -> None:
        """Remove a sandbox. Raises NotFound."""

    async def _ready(self, place: str) -> None:
        """Wait until commands can be run in a new one; called once it is stored."""

    def _of_template(self, spec: SandboxSpec, template: str, needed: str) -> Mapping[str, str]:
        """What is wrong with a spec where a ``template`` of the server has the command and the folder."""
        found = {
            "image": "" if spec.image else f"{needed} is needed",
            "command": f"the {template} has the start command; give it to exec" if spec.command else "",
            "workdir": f"the {template} has the folder; give it to exec" if spec.workdir else "",
        }
        return {field: text for field, text in found.items() if text}

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        entry = await self._entry(ref)
        if entry is not None and not entry.place:
            return self._unlisted(entry)
        try:
            return self._row(await self._box(entry.place if entry is not None else ref.id), entry)
        except NotFound:
            if entry is not None:
                return self._unlisted(entry)
            raise

    async def raw(self, ref: SandboxRef) -> Mapping[str, Any]:
        entry = await self._entry(ref)
        if entry is not None and not entry.place:
            return {"id": ref.id}
        return {"console_id": ref.id, **await self._raw(entry.place if entry is not None else ref.id)}

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:  # noqa: ARG002 - a spec with secrets is refused
        """Make it. One that has ended is removed from the server first, with its files."""
        need(permit)
        found = await self.inspect(ref)
        if found.status in LIVE:
            return
        entry = await self._entry(ref)
        if entry is None or entry.spec is None:
            raise Unsupported(f"{found.name} cannot be started again: the server has no call for that")
        if entry.place:
            await self._gone(entry.place)
        place = await self._make(entry.spec)
        await self._ledger.put(entry, place=place, started_at=time.time(), finished_at=None, exit=None)
        self._polling.wake()
        await self._ready(place)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:  # noqa: ARG002 - it has none
        """Remove it from the server, which has no other end; what this console knows of it stays."""
        need(permit)
        if (await self.inspect(ref)).status not in LIVE:
            return
        entry = await self._entry(ref)
        await self._gone(entry.place if entry is not None else ref.id)
        if entry is not None:
            await self._ledger.put(entry, finished_at=time.time(), exit=_REMOVED)
        self._polling.wake()

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        found = await self.inspect(ref)
        if found.status in LIVE and not force:
            raise not_stopped(found.name, found.status)
        if place := await self._place(ref):
            await self._gone(place)
        await self._ledger.drop(ref.id)
        self._polling.wake()

    async def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        if not (place := await self._place(ref)):
            return

        async def runs() -> bool:
            try:
                return (await self.inspect(ref)).status in LIVE and await self._place(ref) == place
            except NotFound:
                return False

        async with aclosing(self._log(place, runs, query)) as batches:
            async for batch in batches:
                yield batch

    @abstractmethod
    def _log(self, place: str, runs: Runs, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
        """The log of a sandbox; following ends when ``runs`` returns false."""

    async def _rows(self) -> Sequence[Sandbox]:
        boxes = await self._boxes()
        entries = await self._ledger.every()
        by_place = {entry.place: entry for entry in entries.values() if entry.place}
        rows = [self._row(box, by_place.get(id_)) for id_, box in boxes.items()]
        return rows + [self._unlisted(entry) for entry in entries.values() if entry.place not in boxes]

    async def _place(self, ref: SandboxRef) -> str:
        """What the server calls it; empty if it was never started. Raises NotFound."""
        await self.inspect(ref)
        entry = await self._entry(ref)
        return entry.place if entry is not None else ref.id

    async def _running(self, ref: SandboxRef) -> str:
        """What the server calls it. Raises NotFound, or Conflict if it does not run."""
        found = await self.inspect(ref)
        if found.status is not Status.RUNNING:
            raise not_running(found.name, found.status)
        return await self._place(ref)

    async def _gone(self, place: str) -> None:
        try:
            await self._delete(place)
        except NotFound:
            return

    def _unlisted(self, entry: Entry) -> Sandbox:
        """A sandbox of this console that the server does not have: not started yet, stopped, or lost."""
        spec, status, over = entry.spec, Status.CREATED, _over(entry)
        if entry.started_at is not None:
            status = Status.LOST if entry.finished_at is None and over is None else Status.EXITED
        return Sandbox(
            SandboxRef(self.name, self.host, entry.id),
            spec.name if spec is not None else entry.id,
            status,
            image=spec.image if spec is not None else "",
            created_at=entry.created_at,
            started_at=entry.started_at,
            finished_at=entry.finished_at or over,
            exit=entry.exit if over is None else _OVER,
            labels=dict(spec.labels) if spec is not None else {},
            spec=spec,
            detail=_LOST if status is Status.LOST else "",
        )


def _over(entry: Entry) -> float | None:
    """When the life of a sandbox was over that the server removed by itself; None if it was not."""
    life_s = entry.spec.max_duration_s if entry.spec is not None else None
    if life_s is None or entry.started_at is None or entry.finished_at is not None:
        return None
    return end if (end := entry.started_at + life_s) <= time.time() + _EARLY_S else None
