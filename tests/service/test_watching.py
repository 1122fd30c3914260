"""Watching a backend that answers and ends at once does not become a busy loop."""

from __future__ import annotations

import asyncio

from msgspec import structs

from sandbox_console.model.event import HealthChanged, Listed, Sampled
from sandbox_console.model.sandbox import Status
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads import stats_sweep, watcher
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.masking import Masking
from sandbox_console.testing.fake_backend import FakeBackend


class Flapping(FakeBackend):
    """Its stream gives one event and ends."""

    async def watch(self):
        yield Listed(self.name, self.host, ())


async def test_a_stream_that_ends_at_once_is_asked_ever_more_rarely(monkeypatch):
    pauses: list[float] = []
    slept = asyncio.Event()
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            slept.set()
        await really_sleep(0)

    monkeypatch.setattr(watcher.asyncio, "sleep", sleep)
    told = []
    watch = watcher.Watcher(Fleet([Flapping()]), told.append, Masking(Vault({})))
    watch.start()
    await asyncio.wait_for(slept.wait(), 30)
    await watch.close()
    assert pauses[:6] == [0.5, 1.0, 2.0, 5.0, 5.0, 5.0]
    assert any(isinstance(event, HealthChanged) and "ended" in event.health.reason for event in told)


async def test_a_bug_in_a_stats_stream_ends_that_stream_alone(box, home):
    class Broken(FakeBackend):
        async def stats(self, ref, interval_s):
            raise RuntimeError("no such counter")
            yield

    pump = watcher.StatsPump(Fleet([Broken([box])]), lambda event: None, 1.0)
    pump.show([box.ref])
    (task,) = pump._tasks.values()
    await task
    assert task.exception() is None
    await pump.close()


async def test_what_is_off_screen_is_sampled_now_and_then(box, home, monkeypatch):
    monkeypatch.setattr(stats_sweep, "EVERY_S", 0.05)
    monkeypatch.setattr(stats_sweep, "SAMPLE_S", 0.01)
    other = structs.replace(box, ref=structs.replace(box.ref, id="other"), status=Status.RUNNING)
    ended = structs.replace(box, ref=structs.replace(box.ref, id="ended"), status=Status.EXITED)
    broken = structs.replace(other, ref=structs.replace(box.ref, id="gone"))
    told: list[Sampled] = []
    pump = watcher.StatsPump(
        Fleet([FakeBackend([box, other, ended])]), told.append, 1000.0, lambda: [box, broken, other, ended]
    )
    pump.show([box.ref])
    async with asyncio.timeout(30):
        while sum(event.ref == other.ref for event in told) < 2:
            await asyncio.sleep(0.01)
    await pump.close()
    assert {event.ref for event in told} == {box.ref, other.ref}
    assert sum(event.ref == box.ref for event in told) == 1
    assert len(asyncio.all_tasks()) == 1


async def test_what_is_off_screen_is_sampled_at_once_when_its_samples_decide_what_is_on_screen(box, home, monkeypatch):
    monkeypatch.setattr(stats_sweep, "SAMPLE_S", 0.01)
    monkeypatch.setattr(stats_sweep, "SOON_EVERY_S", 0.05)
    told: list[Sampled] = []
    pump = watcher.StatsPump(Fleet([FakeBackend([box])]), told.append, 1000.0, lambda: [box])
    pump.show([])
    pump.show([], rest_soon=True)
    async with asyncio.timeout(30):
        while len(told) < 2:
            await asyncio.sleep(0.01)
    pump.show([], rest_soon=False)
    await pump.close()
    assert len(asyncio.all_tasks()) == 1
