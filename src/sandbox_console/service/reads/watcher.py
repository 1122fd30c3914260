"""Runs the tasks that pass events from the backends to the hub while somebody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from msgspec import structs

from sandbox_console.backends.base import Backend
from sandbox_console.errors import ConsoleError
from sandbox_console.model.access import limited_to, process_access
from sandbox_console.model.event import Changed, Event, HealthChanged, Listed, Sampled
from sandbox_console.model.sandbox import BackendHealth, HealthState, HostKey, Sandbox, SandboxRef
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.masking import Masking
from sandbox_console.service.reads.scope import shown_event
from sandbox_console.service.reads.start_turns import StartTurns
from sandbox_console.service.reads.stats_sweep import Sweep

_RETRY_S = (0.5, 1.0, 2.0, 5.0)
_LISTED_S = 5.0
"""How long before its report a list may have begun. What was requested meanwhile is not in it."""

_LASTED_S = 10.0
"""After a stream that lasted this long, the first retry is quick again."""

Publish = Callable[[Event], None]


class Watcher:
    """One task for each backend, started by the first viewer."""

    def __init__(self, fleet: Fleet, publish: Publish, masking: Masking) -> None:
        self._fleet, self._masking = fleet, masking
        self._publish = publish
        self._tasks: list[asyncio.Task[None]] = []
        self._answered: set[HostKey] = set()
        self._away: dict[HostKey, float] = {}
        self._turns = StartTurns(held=False)

    @property
    def running(self) -> bool:
        """Whether the hub receives every change."""
        return bool(self._tasks)

    def start(self, *, few: bool = False) -> None:
        """Watch every backend. With ``few`` only some connect, and the others when it is called again without."""
        if not self._tasks:
            self._turns = StartTurns(held=few)
            with limited_to(process_access):  # whoever is the first to ask
                silent_last = sorted(self._fleet.keys, key=lambda key: self._fleet.names.of(key).silent)
                self._tasks = [asyncio.create_task(self._watch(*key)) for key in silent_last]
        if not few:
            self._turns.go_on()

    async def close(self) -> None:
        """Stop."""
        await _end(self._tasks)
        self._tasks = []

    async def _watch(self, name: str, host: str) -> None:
        self._publish(HealthChanged(BackendHealth(name, host, HealthState.CONNECTING)))
        turn = await self._turns.take()
        failures = 0
        while True:
            began = time.monotonic()
            try:
                backend = await self._fleet.use(name, host)
                async for event in backend.watch():
                    if isinstance(event, Listed):
                        self._fleet.names.listed((name, host), event.sandboxes, time.time() - _LISTED_S)
                        turn.end()
                    await self._masking.ready()
                    self._tell(shown_event(event, process_access()))
                reason = "its event stream ended"
            except ConsoleError as error:
                reason = error.message
            except Exception as error:  # noqa: BLE001 - a bug in one backend must not blind the others
                reason = f"{type(error).__name__}: {error}"
            self._tell(HealthChanged(BackendHealth(name, host, HealthState.UNREACHABLE, reason)))
            turn.end()
            failures = 0 if time.monotonic() - began > _LASTED_S else failures
            await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
            failures += 1

    def _tell(self, event: Event) -> None:
        """Publish an event. After the health of a host that has not answered come the sandboxes that it last listed."""
        rows: Iterable[Sandbox] = ()
        if isinstance(event, HealthChanged):
            health = event.health
            rows = self._kept(health)
            event = HealthChanged(structs.replace(health, since=self._since(health)))
        self._publish(self._masking.event(self._marked(event)))
        for row in rows:
            self._publish(self._masking.event(self._marked(Changed(row))))

    def _kept(self, health: BackendHealth) -> list[Sandbox]:
        """What a host listed the last time that it answered, unless it has been shown already."""
        key = (health.backend, health.host)
        if key in self._answered or key in self._away or health.state is not HealthState.UNREACHABLE:
            return []
        names = self._fleet.names
        if not names.of(key).answered_at:
            return []
        names.fell_silent(key) if health.silent else names.went_away(key)
        self._away[key] = names.of(key).silent_since or time.time()
        return [] if process_access().labels else names.of(key).sandboxes(SandboxRef(*key, ""))

    def _since(self, health: BackendHealth) -> float:
        """Since when a host that answered before does not, 0 for one that never did."""
        key = (health.backend, health.host)
        if health.ok:
            self._answered.add(key)
            self._away.pop(key, None)
        elif key in self._answered and health.state is not HealthState.CONNECTING:
            self._away.setdefault(key, time.time())
        return self._away.get(key, health.since)

    def _marked(self, event: Event) -> Event:
        """The event, with sandboxes in quarantine marked."""
        if isinstance(event, Changed):
            return Changed(self._fleet.marked(event.sandbox))
        if isinstance(event, Listed) and self._fleet.holds is not None and self._fleet.holds.all():
            return structs.replace(event, sandboxes=tuple(self._fleet.marked(sandbox) for sandbox in event.sandboxes))
        return event


class StatsPump:
    """Streams stats of the sandboxes on screen, and sweeps ``others`` slowly, as streams are expensive."""

    def __init__(
        self, fleet: Fleet, publish: Publish, interval_s: float, others: Callable[[], Iterable[Sandbox]] = tuple
    ) -> None:
        self._fleet = fleet
        self._publish = publish
        self._interval_s = interval_s
        self._tasks: dict[SandboxRef, asyncio.Task[None]] = {}
        self._sweep = Sweep(fleet, publish, others, self._tasks.__contains__)
        self._all_soon = False

    def sample_all(self) -> None:
        """Sample every running sandbox soon, all the time, whether it is shown or not."""
        self._all_soon = True
        self._sweep.start()
        self._sweep.hurry(True)

    def show(self, refs: Iterable[SandboxRef], *, rest_soon: bool = False) -> None:
        """Sample only these from now on; ended streams are started again when shown again.

        With ``rest_soon`` the others are sampled soon, too.
        """
        self._sweep.start()
        self._sweep.hurry(rest_soon or self._all_soon)
        sandbox_refs = set(refs)
        for ref in self._tasks.keys() - sandbox_refs:
            self._tasks.pop(ref).cancel()
        for ref in sandbox_refs:
            if ref not in self._tasks or self._tasks[ref].done():
                self._tasks[ref] = asyncio.create_task(self._pump(ref))

    async def close(self) -> None:
        """Stop all."""
        await self._sweep.close()
        await _end(list(self._tasks.values()))
        self._tasks.clear()

    async def _pump(self, ref: SandboxRef) -> None:
        try:
            backend: Backend = await self._fleet.use(ref.backend, ref.host)
            async for stats in backend.stats(ref, self._interval_s):
                self._publish(Sampled(ref, stats))
        except ConsoleError:
            return  # it stopped or its backend went away, which the list shows
        except Exception:  # noqa: BLE001 - a backend's bug costs this row its figures until it is shown again, no more
            return


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
