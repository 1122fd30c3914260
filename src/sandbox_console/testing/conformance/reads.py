"""Checks health, events, stats, and what a backend reports before a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sandbox_console.model.capability import Capability
from sandbox_console.model.event import BackendEvent, Changed, HealthChanged, Listed, Removed
from sandbox_console.model.sandbox import Status
from sandbox_console.testing.conformance.rig import Checks, Rig, wait_s


class _Watch:
    def __init__(self, rig: Rig) -> None:
        self.events: list[BackendEvent] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._follow(rig))

    async def _follow(self, rig: Rig) -> None:
        async for event in rig.backend.watch():
            self.events.append(event)
            self._news.set()

    async def until(self, fits: Callable[[BackendEvent], bool]) -> None:
        async with asyncio.timeout(wait_s()):
            while not any(fits(event) for event in self.events):
                self._news.clear()
                await self._news.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Reading(Checks):
    async def test_it_answers_and_tells_its_version(self, rig: Rig) -> None:
        health = await rig.backend.health()
        assert health.ok, health.reason
        assert (health.backend, health.host) == (rig.backend.name, rig.backend.host)

    async def test_every_missing_capability_has_a_reason(self, rig: Rig) -> None:
        capabilities = rig.backend.capabilities()
        assert all(capabilities.reason(one) for one in Capability if not capabilities.has(one))

    async def test_watching_begins_with_health_and_the_list(self, rig: Rig) -> None:
        ref = await rig.make(start=False)
        watch = _Watch(rig)
        await watch.until(lambda event: isinstance(event, HealthChanged) and event.health.ok)
        await watch.until(lambda event: isinstance(event, Listed) and ref in [one.ref for one in event.sandboxes])
        await watch.close()

    async def test_watching_tells_each_change(self, rig: Rig) -> None:
        rig.needs(Capability.STOP, Capability.REMOVE)
        watch = _Watch(rig)
        await watch.until(lambda event: isinstance(event, Listed))
        ref = await rig.make()

        def became(status: Status) -> Callable[[BackendEvent], bool]:
            return lambda event: (
                isinstance(event, Changed) and (event.sandbox.ref, event.sandbox.status) == (ref, status)
            )

        await watch.until(became(Status.RUNNING))
        await rig.stop(ref, grace_s=0.2)
        await watch.until(became(Status.EXITED))
        await rig.remove(ref)
        await watch.until(lambda event: isinstance(event, Removed) and event.ref == ref)
        await watch.close()

    async def test_an_end_by_itself_is_told(self, rig: Rig) -> None:
        rig.needs_sh(Capability.START)
        watch = _Watch(rig)
        await watch.until(lambda event: isinstance(event, Listed))
        ref = await rig.script("sleep 0.3; exit 5")

        def ended(event: BackendEvent) -> bool:
            if not isinstance(event, Changed) or event.sandbox.ref != ref or event.sandbox.exit is None:
                return False
            return event.sandbox.exit.code == 5

        await watch.until(ended)
        await watch.close()

    async def test_stats_sample_a_running_one(self, rig: Rig) -> None:
        rig.needs(Capability.STATS)
        ref = await rig.idle()
        samples = []
        async with asyncio.timeout(wait_s()):
            async for sample in rig.backend.stats(ref, 0.2):
                samples.append(sample)
                if len(samples) == 2:
                    break
        assert samples[-1].memory_bytes
        assert samples[-1].cpu_percent is not None

    async def test_stats_show_a_busy_cpu(self, rig: Rig) -> None:
        rig.needs_sh(Capability.STATS)
        ref = await rig.script("while :; do :; done")
        async with asyncio.timeout(wait_s()):
            async for sample in rig.backend.stats(ref, 0.5):
                if (sample.cpu_percent or 0) > 20:
                    break

    async def test_stats_end_with_the_sandbox(self, rig: Rig) -> None:
        rig.needs(Capability.STATS, Capability.KILL)
        ref = await rig.make()
        async with asyncio.timeout(wait_s()):
            async for _ in rig.backend.stats(ref, 0.1):
                if (await rig.look(ref)).status is Status.RUNNING:
                    await rig.backend.kill(await rig.permit("kill"), ref, "SIGKILL")

    async def test_a_good_spec_has_no_problems(self, rig: Rig) -> None:
        assert not {field: text for field, text in rig.backend.validate(rig.spec()).items() if text}
