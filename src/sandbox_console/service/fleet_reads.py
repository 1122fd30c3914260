"""Reads the sandboxes of every backend, their samples and their output, with known secrets masked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing

from msgspec import Struct, structs

from sandbox_console.backends.abilities import Diagnosable
from sandbox_console.errors import Conflict, ConsoleError
from sandbox_console.model.access import access
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.event import Changed
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, HostKey, Sandbox, SandboxRef, Stats
from sandbox_console.service.host_options import HostOptions
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.hub import Hub
from sandbox_console.service.reads.live_logs import LiveLogs
from sandbox_console.service.reads.lookup import LookupResult, host_label
from sandbox_console.service.reads.masking import Masking
from sandbox_console.service.reads.watcher import StatsPump
from sandbox_console.service.sessions.lost_recreations import LostRecreations


class LastSeen(Struct, frozen=True):
    """How many sandboxes a silent host had, and since when it is silent (seconds since the epoch, 0 if unknown)."""

    count: int
    silent_since: float


class FleetReads:
    """What a console reads of its fleet. None of it changes anything, or is recorded."""

    def __init__(
        self, fleet: Fleet, hub: Hub, masking: Masking, recreations: LostRecreations, logs: LiveLogs, interval_s: float
    ) -> None:
        """``interval_s`` is the time between two samples of a sandbox on screen."""
        self.fleet, self.hub, self.masking, self.recreations = fleet, hub, masking, recreations
        self._logs = logs
        self._stats = StatsPump(fleet, hub.publish, interval_s, lambda: [*hub.sandboxes.values()])

    async def list(self, backend: str = "") -> tuple[Sequence[Sandbox], Sequence[BackendHealth]]:
        """All sandboxes now, and the health of each backend that was queried."""
        await self.masking.ready()
        sandboxes, healths = await self.fleet.listing(backend)
        return self.masking.sandboxes(sandboxes), healths

    async def names(self, backend: str = "") -> tuple[Sequence[Sandbox], Sequence[BackendHealth]]:
        """Like ``list``, but without details: only ref, name, status, labels and creator are certain.

        On bubblewrap it takes a thirtieth of the time, as a health check starts a program.
        """
        await self.masking.ready()
        sandboxes, healths = await self.fleet.brief(backend)
        return self.masking.sandboxes(sandboxes), healths

    async def list_as_answered(
        self, backend: str = "", patience_s: float = 0.0
    ) -> AsyncGenerator[tuple[tuple[Sequence[Sandbox], Sequence[BackendHealth]], Sequence[HostKey]], None]:
        """Like ``list``, in parts as they arrive, each with the (backend, host) pairs that have not answered yet.

        The first part has all that answer within ``patience_s`` seconds; the others follow one by one.
        """
        await self.masking.ready()
        async with aclosing(self.fleet.as_answered(backend, patience_s)) as parts:
            async for (sandboxes, healths), waiting in parts:
                yield (self.masking.sandboxes(sandboxes), healths), waiting

    def healths(self, places: Sequence[HostKey]) -> AsyncGenerator[BackendHealth, None]:
        """Each place's health, in this order. All are queried at once; those that were silent last time come last."""
        return self.fleet.healths(places)

    def healths_as_answered(
        self, places: Sequence[HostKey], patience_s: float
    ) -> AsyncGenerator[tuple[Sequence[BackendHealth], Sequence[HostKey]], None]:
        """Each place's health in parts as they arrive, each with the places that have not answered yet."""
        return self.fleet.healths_as_answered(places, patience_s)

    async def find(self, name: str, *, changing: bool = False, only_answering: bool = False) -> Sandbox:
        """The sandbox that NAME means. Raises NotFound, Ambiguous, BackendUnreachable."""
        [found] = await self.find_all([name], changing=changing, only_answering=only_answering)
        if isinstance(found, ConsoleError):
            raise found
        return found.sandbox

    async def find_all(
        self, names: Sequence[str], *, changing: bool = False, only_answering: bool = False, creating: bool = False
    ) -> Sequence[LookupResult | ConsoleError]:
        """What each NAME means, or why that is unknown. Each host is listed once for all names. See ``Fleet.find``."""
        if changing:  # a replacement that was left half done may have the name
            await self.recreations.look()
        await self.masking.ready()
        found = await self.fleet.find(names, changing=changing, only_answering=only_answering, creating=creating)
        return [
            one if isinstance(one, ConsoleError) else structs.replace(one, sandbox=self.masking.sandbox(one.sandbox))
            for one in found
        ]

    async def made_by(
        self, file: str, backend: str = "", *, only_answering: bool = False
    ) -> tuple[Sequence[Sandbox], Sequence[BackendHealth]]:
        """What ``up`` made of a file, and the hosts that do not answer and may have some of it. See ``Fleet``."""
        await self.masking.ready()
        sandboxes, silent = await self.fleet.made_by(file, backend, only_answering=only_answering)
        return self.masking.sandboxes(sandboxes), silent

    def known_of(self, file: str, backend: str = "") -> Sequence[str]:
        """The names of what ``up`` made of a file, as each host last listed them. No host is asked."""
        return self.fleet.known_of(file, backend)

    async def refuse_held(self, name: str) -> None:
        """Raise Conflict if a host that does not answer had this name, as there would be two when it is back."""
        for health in await self.fleet.holders(name):
            text = f"{host_label(health)} does not answer and held {name!r}: {health.reason}"
            raise Conflict(text, hint="choose another name, or give --only-answering")

    def held(self, health: BackendHealth) -> LastSeen | None:
        """What a host that does not answer had when it last did; None if nothing is known or may be told."""
        known = self.fleet.names.of((health.backend, health.host))
        if health.ok or not known.answered_at or access().labels:
            return None
        return LastSeen(len({one.id for one in known.names if one.id}), known.silent_since)

    def tell_once(self, health: BackendHealth) -> bool:
        """Whether it has yet to be reported that a backend cannot work here. From now on it counts as reported."""
        return self.fleet.names.tell_once((health.backend, health.host))

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One sandbox as it is now. Raises NotFound, BackendUnreachable after the host's timeout."""
        await self.masking.ready()
        return self.masking.sandbox(await self.fleet.inspect(ref))

    def host_options(self, backend: str, host: str) -> HostOptions:
        """What the configuration says about a host: its groups, labels and limits."""
        return self.fleet.tables.of((backend, host))

    def unused_host_tables(self) -> Sequence[str]:
        """The patterns of ``[hosts]`` tables that match no host."""
        return list(self.fleet.tables.unused(self.fleet.keys))

    @property
    def places(self) -> Sequence[HostKey]:
        """Every (backend, host), in the order of the config."""
        return self.fleet.keys

    async def health(self) -> Sequence[BackendHealth]:
        """Every backend's health, queried now."""
        return await self.fleet.health()

    async def capabilities(self, backend: str, host: str) -> Capabilities:
        """What a backend can do here."""
        return (await self.fleet.use(backend, host)).capabilities()

    def may_have(self, health: BackendHealth, capability: Capability) -> bool:
        """Whether a host that does not answer may have a capability. See ``Fleet.may_have``."""
        return self.fleet.may_have(health, capability)

    async def diagnose(self, backend: str, host: str) -> Sequence[Diagnosis]:
        """The results of a backend's checks of its machine; empty if it has nothing to check."""
        return await one.diagnose() if isinstance(one := await self.fleet.use(backend, host), Diagnosable) else ()

    # What goes on

    def show_stats(self, refs: Iterable[SandboxRef], *, rest_soon: bool = False) -> None:
        """Publish samples of these sandboxes, the running ones on screen, continuously, and of the others at times.

        ``rest_soon`` says that the list is sorted or filtered by samples, so the others are needed too.
        """
        self._stats.show(refs, rest_soon=rest_soon)

    def sample_all(self) -> None:
        """Publish samples of every running sandbox every few seconds from now on, for rules about them."""
        self._stats.sample_all()

    async def stats(self, ref: SandboxRef, interval_s: float = 1.0) -> AsyncIterator[Stats]:
        """Samples of one sandbox until it stops."""
        backend = await self.fleet.use(ref.backend, ref.host)
        async for stats in backend.stats(ref, interval_s):
            yield stats

    def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        """Batches of a sandbox's output: the bytes as they were written, with known secrets masked."""
        return self._logs.read(ref, query)

    async def close_stats(self) -> None:
        """End the samples."""
        await self._stats.close()

    def mask_again(self) -> None:
        """Publish again what has been shown of sandboxes and contains a value that was not known then."""
        for sandbox in list(self.hub.sandboxes.values()):
            if (masked := self.masking.sandbox(sandbox)) is not sandbox:
                self.hub.publish(Changed(masked))
