"""The denial feed: which hosts the sandboxes requested and were refused. It is read once for all views."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from sandbox_console.errors import ConsoleError
from sandbox_console.model.egress import EgressRecord, Outcome
from sandbox_console.model.event import Changed, Denied, Event, Listed, Removed
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.hub import Hub
from sandbox_console.service.reads.record_reader import BATCH_S, RecordReader
from sandbox_console.service.reads.traffic import Feed

ALL_HOSTS_MOST = 10_000
"""The most hosts of all sandboxes (7 MB). Beyond it, the sandbox with the most hosts forgets the oldest ones."""
_WAITING_MOST = 1000

Seen = tuple[Sandbox, EgressRecord]
Refused = Callable[[Sandbox, ConsoleError | None], object]


class _SandboxDenials:
    """What is known about one sandbox."""

    def __init__(self) -> None:
        self.hosts = Feed()
        self.counts: Counter[Outcome] = Counter()
        self.host, self.at = "", 0.0

    def add(self, ref: SandboxRef, name: str, record: EgressRecord) -> None:
        """Add a record."""
        self.hosts.add(ref, name, record)
        if _in_vain(record):
            self.counts[record.outcome] += 1
            self.host, self.at = record.host, record.at


class DenialFeed:
    """Follows every sandbox that has a gateway, using the hub's events, and publishes Denied to the hub.

    ``unread`` has the name of each sandbox whose records cannot be read, and why. ``version`` changes whenever a view
    would show something else.
    """

    def __init__(self, fleet: Fleet, hub: Hub, watch: Callable[[], None], vault: Vault) -> None:
        self._fleet, self._hub, self._watch, self._vault = fleet, hub, watch, vault
        self.unread: dict[SandboxRef, tuple[str, str]] = {}
        self.version = 0
        self._started = False
        self._readers: dict[tuple[str, str], RecordReader] = {}
        self._followed: dict[SandboxRef, Sandbox] = {}
        self._books: dict[SandboxRef, _SandboxDenials] = {}
        self._all: tuple[int, Feed] = (-1, Feed())
        self._changed: dict[SandboxRef, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._followers: list[tuple[asyncio.Queue[Seen], Refused]] = []

    def start(self) -> None:
        """Follow the fleet from now on. Does nothing if already following."""
        if not self._started:
            self._started = True
            self._hub.listen(self._hear)
            for sandbox in self._hub.sandboxes.values():
                self._see(sandbox)
        self._watch()

    async def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(reader.close() for reader in self._readers.values()))
        self._readers.clear()

    # Views

    def of(self, ref: SandboxRef) -> Feed:
        """The hosts of one sandbox."""
        book = self._books.get(ref)
        return book.hosts if book is not None else Feed()

    @property
    def everything(self) -> Feed:
        """The hosts of all sandboxes."""
        if self._all[0] != self.version:
            self._all = self.version, Feed()
            self._all[1].merge([book.hosts for book in self._books.values()])
        return self._all[1]

    def show(self, refs: Iterable[SandboxRef]) -> None:
        """Read these sandboxes, which are in view, before the others."""
        sandbox_refs = set(refs)
        for reader in self._readers.values():
            reader.show(sandbox_refs)

    async def follow(self, since: float | None, refused: Refused) -> AsyncIterator[Seen]:
        """Records as they are read, from ``since`` on. A slow caller slows the reading down."""
        with self.news(refused) as news:
            while True:
                sandbox, record = await news.get()
                if since is None or record.at >= since:
                    yield sandbox, record

    @contextmanager
    def news(self, refused: Refused = lambda *_: None) -> Iterator[asyncio.Queue[Seen]]:
        """Each record that is read while the block runs. ``refused`` is called for records that cannot be read."""
        news: asyncio.Queue[Seen] = asyncio.Queue(_WAITING_MOST)
        follower = (news, refused)
        self._followers.append(follower)
        self.start()
        try:
            yield news
        finally:
            self._followers.remove(follower)

    async def ask(self, ref: SandboxRef, record: EgressRecord) -> bool:
        """Add a request to allow a host. Returns False if the sandbox is not followed."""
        if ref not in self._followed:
            return False
        await self._take(ref, [record])
        return True

    # Events of the hub

    def _hear(self, event: Event) -> None:
        match event:
            case Changed(sandbox):
                self._see(sandbox)
            case Removed(ref):
                self._forget(ref)
            case Listed(backend, host, sandboxes):
                gone = {ref for ref in self._followed if (ref.backend, ref.host) == (backend, host)}
                for sandbox in sandboxes:
                    if has_gateway(sandbox):
                        self._see(sandbox)
                        gone.discard(sandbox.ref)
                for ref in gone:
                    self._forget(ref)
            case _:
                pass

    def _see(self, sandbox: Sandbox) -> None:
        if not has_gateway(sandbox):
            self._forget(sandbox.ref)
            return
        self._followed[sandbox.ref] = sandbox
        host_key = sandbox.ref.backend, sandbox.ref.host
        if host_key not in self._readers:
            self._readers[host_key] = RecordReader(partial(self._fleet.use, *host_key), self._take, self._refuse)
        self._readers[host_key].add(sandbox.ref)

    def _forget(self, ref: SandboxRef) -> None:
        if self._followed.pop(ref, None) is None:
            return
        self._readers[ref.backend, ref.host].drop(ref)
        self._changed.pop(ref, None)
        self.unread.pop(ref, None)
        self._books.pop(ref, None)
        self.version += 1

    # Records from the readers

    def _refuse(self, ref: SandboxRef, error: ConsoleError | None) -> None:
        sandbox = self._followed.get(ref)
        if sandbox is None or (error is None and ref not in self.unread):
            return
        self.version += 1
        if error is None:
            del self.unread[ref]
        else:
            self.unread[ref] = sandbox.name, error.message
        for _, refused in self._followers:
            refused(sandbox, error)

    async def _take(self, ref: SandboxRef, records: Sequence[EgressRecord]) -> None:
        sandbox = self._followed[ref]
        # No program is run for a secret unless somebody has requested to see something.
        await self._vault.learn(sandbox.spec.secrets if sandbox.spec else (), acting=False)
        if ref not in self._followed:
            return
        records = [masked_host(record, self._vault) for record in records]
        book = self._books.setdefault(ref, _SandboxDenials())
        for record in records:
            book.add(ref, sandbox.name, record)
        self._shrink()
        self.version += 1
        if any(map(_in_vain, records)):
            self._changed[ref] = None
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(BATCH_S, self._publish)
        for news, _ in list(self._followers):
            for record in records:
                await news.put((sandbox, record))

    def _shrink(self) -> None:
        while sum(len(book.hosts) for book in self._books.values()) > ALL_HOSTS_MOST:
            largest = max((book.hosts for book in self._books.values()), key=len)
            largest.shrink(len(largest) // 10 + 1)

    def _publish(self) -> None:
        self._timer = None
        changed, self._changed = list(self._changed), {}
        for ref in changed:
            book = self._books[ref]
            counts = (book.counts[one] for one in (Outcome.UNRESOLVED, Outcome.FAILED))
            self._hub.publish(Denied(ref, book.counts[Outcome.DENIED], book.host, book.at, *counts))


def _in_vain(record: EgressRecord) -> bool:
    """Whether it was refused or failed. Neither a request to allow a host nor a revoked connection's end counts."""
    if record.outcome is Outcome.ASKED:
        return False
    return record.outcome in (Outcome.UNRESOLVED, Outcome.FAILED) or not record.allowed


def masked_host(record: EgressRecord, vault: Vault) -> EgressRecord:
    """A record without the known secrets that a guest may have put into a host name."""
    host = vault.host(record.host)
    return record if host == record.host else replace(record, host=host)


def has_gateway(sandbox: Sandbox) -> bool:
    """Whether a sandbox was made with a gateway."""
    return sandbox.managed and sandbox.spec is not None and bool(sandbox.spec.egress)
