"""Reads the records of one backend's gateways in one task, by watching files or one sandbox after another."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from sandbox_console.backends.abilities import Egress, EgressFiles, able
from sandbox_console.backends.base import Backend
from sandbox_console.backends.common import notify
from sandbox_console.egress.records import Follower
from sandbox_console.errors import BackendError, ConsoleError, NotFound, Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.sandbox import SandboxRef

FIRST_PER_S, AGAIN_PER_S, MANY_PER_S = 400.0, 100.0, 40.0
"""Reads per second: of sandboxes that were never read, of others, and of a backend that has at least MANY.

Each is 0.35 ms of CPU without a file: 400 a second made a key in a list of 10,000 take 110 ms instead of 28.
"""
MANY = 1000
TURN = 4
"""How many reads are made between two pauses, as waking up costs half as much as a read."""
ROUND_S = 1.0
"""How often a sandbox without files is queried, at most."""
QUIET_SHOWN_S, QUIET_S = 2.0, 30.0
"""A sandbox without news is queried half as often each time, down to this: one in view, and any other."""
BATCH_S = 0.25
"""A guest may try thousands of hosts, so records that arrive within this time are read together."""
READ_MOST = 64 << 10
"""Bytes of one sandbox's records at a time: 8 ms of Python."""
AGAIN_S, SELDOM_S = 3.0, 60.0
"""How long to wait before trying again to read what could not be read, at first and at most."""
_MISSING_S = 5.0
_ANSWER_S = 10.0
_rest = asyncio.sleep

Take = Callable[[SandboxRef, Sequence[EgressRecord]], Awaitable[None]]
Refused = Callable[[SandboxRef, ConsoleError | None], None]


class _Source:
    """One sandbox's records and how far they have been read."""

    __slots__ = ("failures", "folder", "follower", "idle", "last", "quiet", "read", "ref", "timer")

    def __init__(self, ref: SandboxRef) -> None:
        self.ref = ref
        self.folder: Path | None = None
        self.follower: Follower | None = None
        self.last: float | None = None
        self.read = False
        self.idle = False  # there was nothing to read, until its state changes
        self.quiet = 0  # how often in a row it had nothing new
        self.failures = 0
        self.timer: asyncio.TimerHandle | None = None


class _Files(NamedTuple):
    """A backend whose records are files."""

    backend: EgressFiles


class RecordReader:
    """Reads what ``add`` names until ``close``.

    ``take`` gets the records of a sandbox, oldest first and each once. ``refused`` is called for a sandbox whose
    records cannot be read, and with None once they can be, or when there is nothing to read.
    """

    def __init__(self, use: Callable[[], Awaitable[Backend]], take: Take, refused: Refused) -> None:
        self._use, self._take, self._refused = use, take, refused
        self._sources: dict[SandboxRef, _Source] = {}
        self._due: OrderedDict[SandboxRef, None] = OrderedDict()
        self._first: OrderedDict[SandboxRef, None] = OrderedDict()  # those that are due and in view
        self._odd = False
        self._news = asyncio.Event()
        self._shown: frozenset[SandboxRef] = frozenset()
        self._folders: notify.Folders | None = None
        self._kind: tuple[Backend, _Files | Egress] | None = None
        self._task = asyncio.create_task(self._run())

    def add(self, ref: SandboxRef) -> None:
        """Read a sandbox's records from now on. Adding one again, which may have been replaced, is not an error."""
        source = self._sources.get(ref)
        if source is None:
            self._sources[ref] = _Source(ref)
        if source is None or source.idle:
            self._ready(ref)

    def drop(self, ref: SandboxRef) -> None:
        """Stop reading it."""
        source = self._sources.pop(ref, None)
        self._due.pop(ref, None)
        self._first.pop(ref, None)
        if source is not None and source.timer is not None:
            source.timer.cancel()
        if self._folders is not None:
            self._folders.drop(ref.id)

    def show(self, refs: Iterable[SandboxRef]) -> None:
        """Read these sooner: they get every other turn."""
        before, self._shown = self._shown, frozenset(refs)
        for ref in self._first.keys() - self._shown:
            self._due[ref] = self._first.pop(ref)
        for ref in self._shown & self._due.keys():
            self._first[ref] = self._due.pop(ref)
        for ref in self._shown - before:
            if (source := self._sources.get(ref)) is not None and source.quiet:
                self._ready(ref)

    async def close(self) -> None:
        """Stop."""
        for ref in list(self._sources):
            self.drop(ref)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _ready(self, ref: SandboxRef) -> None:
        """Mark a source as due once those before it have been read."""
        if ref in self._sources and ref not in self._due:
            (self._first if ref in self._shown else self._due)[ref] = None
        self._news.set()
        if self._folders is not None:
            self._folders.wake()

    def _later(self, source: _Source, seconds: float) -> None:
        if source.timer is not None:
            source.timer.cancel()
        source.timer = asyncio.get_running_loop().call_later(seconds, self._ready, source.ref)

    async def _run(self) -> None:
        try:
            while True:
                if not self._due and not self._first:
                    await self._wait()
                    continue
                began, pause = time.monotonic(), 0.0
                for _ in range(TURN):
                    if not self._due and not self._first:  # dropped while another was read
                        break
                    source = self._next()
                    pause += 1 / self._rate(source)
                    await self._read(source)
                await _rest(max(pause, time.monotonic() - began))  # leave half of the time to others
        finally:
            if self._folders is not None:
                self._folders.close()

    def _rate(self, source: _Source) -> float:
        if len(self._sources) >= MANY:
            return MANY_PER_S
        return AGAIN_PER_S if source.read else FIRST_PER_S

    def _next(self) -> _Source:
        self._odd = not self._odd
        queue = self._first if self._first and (self._odd or not self._due) else self._due
        return self._sources[queue.popitem(last=False)[0]]

    async def _wait(self) -> None:
        """Wait until a sandbox is due, or a file has changed."""
        if self._folders is None:
            self._news.clear()
            await self._news.wait()
            return
        changed = await self._folders.changed()
        if changed:
            await asyncio.sleep(BATCH_S)
        for ref in [ref for ref in self._sources if ref.id in changed]:
            self._ready(ref)

    async def _read(self, source: _Source) -> None:
        source.idle = False
        try:
            by = self._way(await self._use())
            if isinstance(by, _Files):
                records = await self._from_file(by.backend, source)
            else:
                records = await self._asked(by, source)
        except (NotFound, Unsupported):
            source.idle = True
            self._refused(source.ref, None)  # the list shows that
            return
        except ConsoleError as error:
            self._failed(source, error)
            return
        except Exception as error:  # noqa: BLE001 - a bug of one backend must not end the reading
            self._failed(source, BackendError(f"{source.ref.backend} failed unexpectedly: {error}"))
            return
        if self._sources.get(source.ref) is source:
            source.read, source.failures = True, 0
            self._refused(source.ref, None)
            if records:
                await self._take(source.ref, records)

    def _failed(self, source: _Source, error: ConsoleError) -> None:
        if self._sources.get(source.ref) is source:
            self._refused(source.ref, error)
            self._later(source, min(AGAIN_S * 2**source.failures, SELDOM_S))
            source.failures += 1

    def _way(self, backend: Backend) -> _Files | Egress:
        """How its records are read. It is cached, as the check for a protocol takes 0.1 ms. Raises Unsupported."""
        if self._kind is None or self._kind[0] is not backend:
            way: _Files | Egress
            if isinstance(backend, EgressFiles):
                way = _Files(backend)
            else:
                way = able(backend, Egress, Capability.EGRESS_ALLOWLIST)
            self._kind = backend, way
        return self._kind[1]

    async def _from_file(self, backend: EgressFiles, source: _Source) -> Sequence[EgressRecord]:
        folder = source.folder = source.folder or await backend.egress_folder(source.ref)
        if folder is None or self._sources.get(source.ref) is not source:
            source.idle = True
            return ()
        self._folders = self._folders or notify.Folders(notify.RECORDS, poll_s=1.0)
        self._folders.add(source.ref.id, folder)  # each time, as a recreated folder has no watch
        if not folder.is_dir():
            source.idle = True
            self._later(source, _MISSING_S)
        follower = source.follower = source.follower or Follower(folder)
        records = await asyncio.to_thread(follower.poll, None, READ_MOST)
        if follower.more:
            self._ready(source.ref)
        return records

    async def _asked(self, gateway: Egress, source: _Source) -> Sequence[EgressRecord]:
        records = gateway.egress_records(source.ref, since=source.last, follow=False)
        try:
            async with asyncio.timeout(_ANSWER_S), aclosing(records) as every:  # type: ignore[type-var]
                found = [record async for record in every if source.last is None or record.at > source.last]
        except TimeoutError:
            raise BackendError(f"its records did not arrive within {_ANSWER_S:.0f} s") from None
        source.last = max((record.at for record in found), default=source.last)
        if self._sources.get(source.ref) is source:
            source.quiet = 0 if found else source.quiet + 1
            self._later(source, self._pause(source))
        return found

    def _pause(self, source: _Source) -> float:
        """Seconds until it is queried again."""
        limit = QUIET_SHOWN_S if source.ref in self._shown else QUIET_S
        return min(ROUND_S * (1 << min(source.quiet, 5)), limit)
