from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker import watch
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.connection import Connection
from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.event import Changed, HealthChanged, Listed, Removed
from sandbox_console.model.log import LogGap, LogQuery
from sandbox_console.model.sandbox import HealthState, Status

pytestmark = requires("docker")


class Watcher:
    """Collects a backend's events in a task."""

    def __init__(self, backend):
        self.events = []
        self._news = asyncio.Condition()
        self._task = asyncio.ensure_future(self._run(backend))

    async def _run(self, backend):
        async for event in backend.watch():
            async with self._news:
                self.events.append((time.monotonic(), event))
                self._news.notify_all()

    async def until(self, wanted, seconds=60):
        """The first event that fits, from the start; and when it came."""
        async with asyncio.timeout(seconds), self._news:
            while True:
                for at, event in self.events:
                    if wanted(event):
                        return at, event
                await self._news.wait()

    def forget(self):
        self.events.clear()

    async def close(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def watcher(backend):
    made = Watcher(backend)
    await made.until(lambda event: isinstance(event, Listed))
    yield made
    await made.close()


def status(ref, wanted):
    return lambda event: isinstance(event, Changed) and event.sandbox.ref == ref and event.sandbox.status is wanted


async def test_health_and_the_list_come_first_then_what_changes(backend, make, watcher, permit):
    first, second = (event for _, event in watcher.events[:2])
    assert isinstance(first, HealthChanged)
    assert first.health.ok
    assert first.health.version
    assert isinstance(second, Listed)
    ref = await make()
    await watcher.until(status(ref, Status.RUNNING))
    await backend.pause(await permit("pause"), ref)
    await watcher.until(status(ref, Status.PAUSED))
    await backend.resume(await permit("resume"), ref)
    await backend.kill(await permit("kill"), ref, "SIGKILL")
    _, event = await watcher.until(status(ref, Status.EXITED))
    assert event.sandbox.exit.code == 137
    await backend.remove(await permit("remove"), ref, force=False)
    await watcher.until(lambda event: event == Removed(ref))


async def test_others_containers_are_shown_as_theirs(backend, watcher, docker_engine, unique):
    labels = {
        "com.docker.compose.project=shop": "compose:shop",
        "com.docker.compose.project=inspect-task-iab": "Inspect",
        "org.testcontainers=true": "testcontainers",
        "devcontainer.local_folder=/x": "devcontainer",
        "opensandbox.io/id=1": "OpenSandbox",
        "x=y": "",
    }
    names = {unique(): (label, maker) for label, maker in labels.items()}
    try:
        for name, (label, _) in names.items():
            docker_engine.docker("create", "--label", label, "--name", name, "--network", "none", IMAGE, "true")
        rows = {row.name: row for row in await backend.list()}
        for name, (_, maker) in names.items():
            assert (rows[name].managed, rows[name].maker, rows[name].spec) == (False, maker, None)
        _, event = await watcher.until(lambda event: isinstance(event, Changed) and event.sandbox.name == name)
        assert event.sandbox.managed is False
        facts = {fact.field: fact for fact in event.sandbox.effective}
        assert facts["capabilities"].value == "the engine's default"
    finally:
        docker_engine.docker("rm", "-f", *names)


async def test_a_forged_label_is_not_ours(backend, docker_engine, unique):
    name = unique()
    docker_engine.docker("create", "--label", "sandbox-console.managed=1", "--label", "sandbox-console.spec={[",
                         "--name", name, "--network", "none", IMAGE, "true")  # fmt: skip
    try:
        row = next(row for row in await backend.list() if row.name == name)
        assert (row.managed, row.labels) == (False, {})
    finally:
        docker_engine.docker("rm", "-f", name)


async def test_an_engine_that_crashes_is_seen_and_comes_back(backend, make, watcher, docker_engine, permit):
    ref = await make("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done")
    await watcher.until(status(ref, Status.RUNNING))
    lines = []
    gaps = []

    async def follow():
        async for batch in backend.logs(ref, LogQuery(follow=True)):
            for item in batch:
                (gaps if isinstance(item, LogGap) else lines).append(item)

    following = asyncio.ensure_future(follow())
    async with asyncio.timeout(60):
        while len(lines) < 10:
            await asyncio.sleep(0.02)
    docker_engine.crash()
    _, event = await watcher.until(lambda event: isinstance(event, HealthChanged) and not event.health.ok)
    assert event.health.state is HealthState.UNREACHABLE
    with pytest.raises(BackendUnreachable, match="connection refused"):
        await backend.list()
    health = await backend.health()
    assert "connection refused" in health.reason
    assert "start the engine" in health.hint
    watcher.forget()
    await asyncio.to_thread(docker_engine.start)
    await watcher.until(lambda event: isinstance(event, HealthChanged) and event.health.ok)
    _, listed = await watcher.until(lambda event: isinstance(event, Listed))
    assert ref in {row.ref for row in listed.sandboxes}
    before = len(lines)
    async with asyncio.timeout(60):
        while len(lines) < before + 10:
            await asyncio.sleep(0.02)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    numbers = [int(item.data) for item in lines]
    assert len(numbers) == len(set(numbers))
    assert numbers == sorted(numbers)
    assert len(gaps) == 1
    await backend.kill(await permit("kill"), ref, "SIGKILL")


async def test_a_frozen_engine_is_unreachable_and_not_waited_for(backend, docker_engine):
    docker_engine.freeze()
    try:
        async with asyncio.timeout(60):
            health = await backend.health()
        assert health.state is HealthState.UNREACHABLE
        assert "answer" in health.reason
    finally:
        docker_engine.thaw()


async def test_an_engine_that_freezes_while_it_is_watched_is_seen(backend, watcher, docker_engine, monkeypatch):
    monkeypatch.setattr("sandbox_console.backends.docker.watch.QUIET_S", 0.5)
    watcher.forget()
    docker_engine.docker("rm", docker_engine.docker("create", "--network", "none", IMAGE))  # it waits anew from now on
    docker_engine.freeze()
    try:
        _, event = await watcher.until(lambda event: isinstance(event, HealthChanged) and not event.health.ok, 60)
        assert event.health.state is HealthState.UNREACHABLE
    finally:
        docker_engine.thaw()
    watcher.forget()
    await watcher.until(lambda event: isinstance(event, HealthChanged) and event.health.ok, 60)
    await watcher.until(lambda event: isinstance(event, Listed), 60)


async def test_closing_after_a_crash_leaks_nothing(engine, recwarn):
    made = DockerBackend("default")
    await made.open()
    watcher = Watcher(made)
    await watcher.until(lambda event: isinstance(event, Listed))
    before = len(list(Path("/proc/self/fd").iterdir()))
    engine.crash()
    await watcher.close()
    await made.close()
    await asyncio.sleep(0)
    await asyncio.to_thread(engine.start)
    assert len(list(Path("/proc/self/fd").iterdir())) < before
    assert not [warning for warning in recwarn if "nclosed" in str(warning.message)]


async def test_the_first_list_waits_for_one_look_at_the_engine(engine, monkeypatch):
    looks = []
    refresh = Connection.refresh

    async def counted(connection):
        looks.append(connection)
        await refresh(connection)

    monkeypatch.setattr(Connection, "refresh", counted)
    monkeypatch.setattr(watch, "JUST_NOW_S", 60.0)
    backend = DockerBackend("default")
    await backend.open()
    watcher = Watcher(backend)
    try:
        await watcher.until(lambda event: isinstance(event, Listed))
        assert len(looks) == 1
        assert (await backend.health()).ok
        assert len(looks) == 2, "who asks for the health now gets that of now"
    finally:
        await watcher.close()
        await backend.close()
