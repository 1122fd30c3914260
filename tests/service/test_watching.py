"""Watching a backend that answers and ends at once does not become a busy loop."""

from __future__ import annotations

import asyncio

from msgspec import structs

from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.event import Changed, HealthChanged, Listed, Sampled
from sandbox_console.model.sandbox import BackendHealth, HealthState, Status
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads import stats_sweep, watcher
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.known_names import KnownNames
from sandbox_console.service.reads.masking import Masking
from sandbox_console.service.reads.start_turns import StartTurns
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


class Starting(FakeBackend):
    """One of many hosts. It counts how many connect at the same time, and answers once ``go`` is set."""

    now, most, begun = 0, 0, []

    def __init__(self, host: str, go: asyncio.Event) -> None:
        super().__init__(host=host)
        self._go = go

    async def open(self) -> None:
        Starting.begun.append(self.host)
        Starting.now += 1
        Starting.most = max(Starting.now, Starting.most)
        await self._go.wait()
        Starting.now -= 1


async def started(hosts, monkeypatch, *, waited_s=60.0, few=False):
    """A watcher of these hosts, and what it told."""
    monkeypatch.setattr(watcher, "StartTurns", lambda *, held: StartTurns(3, waited_s, held=held))
    Starting.now, Starting.most, Starting.begun = 0, 0, []
    told = []
    watch = watcher.Watcher(Fleet(hosts), told.append, Masking(Vault({})))
    watch.start(few=few)
    await asyncio.sleep(0.05)
    return watch, told


async def listed(told, count):
    async with asyncio.timeout(30):
        while sum(isinstance(event, Listed) for event in told) < count:
            await asyncio.sleep(0.01)


async def test_many_hosts_connect_in_turn(monkeypatch):
    go = asyncio.Event()
    watch, told = await started([Starting(f"h{at}", go) for at in range(10)], monkeypatch)
    assert Starting.begun == ["h0", "h1", "h2"]
    go.set()
    await listed(told, 10)
    assert Starting.most == 3
    await watch.close()


async def test_hosts_that_do_not_answer_pass_their_turn_on(monkeypatch):
    never, go = asyncio.Event(), asyncio.Event()
    go.set()
    hosts = [*(Starting(f"frozen{at}", never) for at in range(3)), *(Starting(f"h{at}", go) for at in range(5))]
    watch, told = await started(hosts, monkeypatch, waited_s=0.02)
    await listed(told, 5)
    await watch.close()


async def test_most_hosts_wait_until_somebody_watches(monkeypatch):
    go = asyncio.Event()
    go.set()
    watch, told = await started([Starting(f"h{at}", go) for at in range(10)], monkeypatch, waited_s=0.02, few=True)
    await listed(told, 3)
    await asyncio.sleep(0.1)
    assert Starting.begun == ["h0", "h1", "h2"]
    watch.start()
    await listed(told, 10)
    await watch.close()


async def test_hosts_that_were_silent_the_last_time_connect_last():
    go = asyncio.Event()
    names = KnownNames()
    names.fell_silent(("fake", "h0"))
    watch = watcher.Watcher(
        Fleet([Starting(f"h{at}", go) for at in range(2)], names), lambda event: None, Masking(Vault({}))
    )
    Starting.begun = []
    watch.start()
    await asyncio.sleep(0.05)
    assert Starting.begun == ["h1", "h0"]
    await watch.close()


class Dead(FakeBackend):
    """It does not answer until ``back`` is set."""

    back = False

    async def watch(self):
        if not self.back:
            health = BackendHealth(self.name, self.host, HealthState.UNREACHABLE, "no answer", silent=True)
            yield HealthChanged(health)
            yield HealthChanged(health)
            raise BackendUnreachable("no answer")
        async for event in super().watch():
            yield event


async def test_what_a_host_listed_before_it_died_is_shown_with_its_date_and_counted_as_unknown(box, tmp_path):
    key = (box.ref.backend, box.ref.host)
    running = structs.replace(box, status=Status.RUNNING)
    KnownNames(tmp_path).listed(key, [running], 1.0)
    KnownNames(tmp_path).fell_silent(key)
    silent_since = KnownNames(tmp_path).of(key).silent_since
    dead, told = Dead([running], host=box.ref.host), []
    watch = watcher.Watcher(Fleet([dead], KnownNames(tmp_path)), told.append, Masking(Vault({})))
    watch.start()
    async with asyncio.timeout(30):
        while not any(isinstance(event, HealthChanged) and "no answer" in event.health.reason for event in told):
            await asyncio.sleep(0.01)
    [row] = [event.sandbox for event in told if isinstance(event, Changed)]
    assert (row.ref, row.name, row.status, row.image) == (box.ref, box.name, Status.UNKNOWN, box.image)
    assert "silent since 20" in row.detail
    assert not any(isinstance(event, Listed) for event in told)  # it is not a list: nothing follows of what is missing
    health = [event.health for event in told if isinstance(event, HealthChanged)]
    assert health[-1].since == silent_since
    dead.back = True
    await listed(told, 1)
    assert next(event.sandboxes for event in told if isinstance(event, Listed))[0].status is Status.RUNNING
    await watch.close()


async def test_hosts_of_one_backend_share_the_classes_that_guard_them():
    fleet = Fleet([FakeBackend(host="h1"), FakeBackend(host="h2")])
    one, two = [await fleet.use("fake", host) for host in ("h1", "h2")]
    assert type(one) is type(two)
    assert (one.host, two.host) == ("h1", "h2")
    await fleet.close()
