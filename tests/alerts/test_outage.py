"""A receiver that is away loses no alert, and what arrives twice has the same id: over an hour, restarts and kill -9."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.alerts.conftest import Make, Receiver, message, until, write_config

from sandbox_console.errors import ConsoleError
from sandbox_console.model.alert import Alert
from sandbox_console.service import Config, Console, open_console
from sandbox_console.service.alert_options import AlertChannel, AlertOptions, AlertRule
from sandbox_console.service.alerts.engine import AlertEngine
from sandbox_console.service.alerts.outbox import MOST_S, Outbox
from sandbox_console.service.alerts.store import AlertStore, Changes
from sandbox_console.service.alerts.watch import watch
from sandbox_console.testing.fake_backend import FakeBackend


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


async def test_an_hour_without_the_receiver(home: Path, receiver: Receiver, tmp_path: Path) -> None:
    """120 alerts are made in the hour; each one arrives once, oldest first, and few tries were made meanwhile."""
    clock, store = Clock(), AlertStore(tmp_path / "alerts")
    options = AlertOptions(channels={"ops": AlertChannel(kind="webhook", url=receiver.url)})
    async with open_console(Config(alerts=options), backends=[FakeBackend()]) as console:
        outbox = Outbox(console, store, options, now=clock)
        receiver.status = 503
        for number in range(3600):
            clock.now += 1.0
            if number % 30 == 0:
                store.commit(Changes(messages=[(message(id_=f"msg_{number:04d}"), ("ops",))]), clock.now)
                if number == 1800:  # another process goes on where this one was killed
                    outbox = Outbox(console, store, options, now=clock)
            await outbox.deliver("ops")
        assert len(store.waiting()) == 120
        assert 12 <= receiver.tries <= 80
        receiver.status = 200
        for _ in range(int(2 * MOST_S)):
            clock.now += 1.0
            await outbox.deliver("ops")
        assert store.waiting() == []
        arrived = [one["id"] for one in receiver.got]
        assert sorted(arrived) == [f"msg_{number:04d}" for number in range(0, 3600, 30)]
        assert len(arrived) == len(set(arrived))
    store.close()


async def test_what_is_too_old_is_given_up_and_recorded(home: Path, receiver: Receiver, tmp_path: Path) -> None:
    clock, store = Clock(), AlertStore(tmp_path / "alerts")
    options = AlertOptions(channels={"ops": AlertChannel(kind="webhook", url=receiver.url)}, keep_days=1.0)
    receiver.status = 500
    async with open_console(Config(alerts=options), backends=[FakeBackend()]) as console:
        store.commit(Changes(messages=[(message(), ("ops", "gone"))]), clock.now)
        outbox = Outbox(console, store, options, now=clock)
        await outbox.deliver("ops")
        assert [one.error for one in store.due("ops", 2e9)] == ["it answered 500"]
        clock.now += 86401
        await outbox.deliver("ops")
        assert [one.channel for one in store.waiting()] == ["gone"]
        from sandbox_console.model.audit import AuditQuery

        [row] = await console.history(AuditQuery(action="alert-delivery"))
        assert (row.outcome, row.end.body["error"], row.attempt.body["attempts"]) == ("failed", "it answered 500", 2)
    store.close()


async def test_one_bad_channel_holds_up_no_other(home: Path, receiver: Receiver, tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts")
    hangs = await asyncio.start_server(lambda *_: asyncio.sleep(60), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{hangs.sockets[0].getsockname()[1]}/"
    options = AlertOptions(channels={
        "hangs": AlertChannel(kind="webhook", url=url, timeout_s=60.0), "ops": AlertChannel(kind="webhook", url=receiver.url),
    })  # fmt: skip
    async with open_console(Config(alerts=options), backends=[FakeBackend()]) as console:
        store.commit(Changes(messages=[(message(), ("hangs", "ops"))]), 1e9)
        task = asyncio.create_task(Outbox(console, store, options).run())
        await until(lambda: receiver.got)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    hangs.close()
    store.close()


async def test_two_processes_never_run_the_rules_at_once(home: Path) -> None:
    options = AlertOptions(rules={"died": AlertRule(on="state")})
    async with open_console(Config(alerts=options), backends=[FakeBackend()]) as console:
        told: list[str] = []
        first = asyncio.create_task(watch(console))
        await asyncio.sleep(0.5)
        second = asyncio.create_task(watch(console, problem=told.append))
        await until(lambda: told)
        assert told == [f"process {os.getpid()} runs the rules; waiting for its end"]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await until(lambda: told[-1] == "")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_a_full_disk_keeps_what_was_found_for_later(
    console: Console, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Alert] = []
    store = AlertStore(console.audit_log.path.parents[1] / "alerts")
    engine = await AlertEngine.open(
        console, store, AlertOptions(rules={"fatal": AlertRule(on="log", pattern="FATAL")}), notice=seen.append
    )
    await engine.tick()
    commit = AlertStore.commit

    def full(*_: object) -> None:
        raise ConsoleError("the alerts cannot be used: database or disk is full")

    monkeypatch.setattr(AlertStore, "commit", full)
    await make("sh", "-c", "echo FATAL; sleep 60", name="web")
    for _ in range(30):
        await engine.tick()
        if engine.problem:
            break
        await asyncio.sleep(0.2)
    assert "disk is full" in engine.problem
    assert seen == []
    monkeypatch.setattr(AlertStore, "commit", commit)
    await engine.tick()
    assert [(one.rule, one.name) for one in seen] == [("fatal", "web")]
    assert engine.problem == ""
    await engine.close()
    store.close()


CONFIG = """
[alerts.rules.fatal]
on = "log"
pattern = "FATAL"
throttle = "0s"
[alerts.rules.died]
on = "state"
[alerts.channels.ops]
kind = "webhook"
url = "{url}"
"""
BOXES = 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_kill_9_at_any_moment(console: Console, make: Make, home: Path, receiver: Receiver) -> None:
    """`watch` is killed again and again while sandboxes write and die and the receiver is away; every alert arrives."""
    write_config(home, CONFIG.format(url=receiver.url))
    await receiver.stop()
    order = random.Random(3)
    process = await started(home)
    await until(lambda: _begun(home), 60)  # a rule is about what happens once it is there
    for number in range(BOXES):
        await make("sh", "-c", f"sleep 0.3; echo FATAL {number}; sleep 0.{number % 5}; exit 3", name=f"box{number:02d}")
        await asyncio.sleep(order.uniform(0.05, 1.2))
        if number % 2:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            process = await started(home)
    await asyncio.sleep(3)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    _an_hour_passes(home)
    await receiver.start()
    receiver.status = 500  # it comes back ill
    process = await started(home)
    await until(lambda: receiver.tries > 2)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    receiver.status = 200
    _an_hour_passes(home)
    process = await started(home)
    store = AlertStore(home / "state" / "alerts")
    expected = {(rule, f"box{number:02d}") for rule in ("fatal", "died") for number in range(BOXES)}
    await until(lambda: expected <= _found(receiver) and not store.waiting(), 60)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 128 + signal.SIGTERM
    ids = Counter(
        (one["rule"], alert["name"], alert["id"])
        for one in receiver.got
        for alert in one["alerts"]
        if one["status"] == "firing"
    )
    assert {(rule, name) for rule, name, _ in ids} == expected
    assert len(ids) == len(expected)  # one id for each, however often it was sent
    by_message: dict[str, str] = {}
    for one in receiver.got:  # and a message that came twice is the same one
        assert by_message.setdefault(one["id"], str(one["alerts"])) == str(one["alerts"])
    store.close()


async def started(home: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox_console", "--backend", "bubblewrap", "watch",
        env=os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


def _found(receiver: Receiver) -> set[tuple[str, str]]:
    return {(one["rule"], alert["name"]) for one in receiver.got for alert in one["alerts"]}


def _begun(home: Path) -> bool:
    """Whether a console has noted that both rules began."""
    try:
        path = home / "state" / "alerts" / "alerts.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return db.execute("SELECT count(*) FROM rule").fetchone() == (2,)
    except sqlite3.OperationalError:  # there is no file, or no table, yet
        return False


def _an_hour_passes(home: Path) -> None:
    """All times in the outbox become an hour older."""
    with sqlite3.connect(home / "state" / "alerts" / "alerts.db") as db:
        db.execute("UPDATE delivery SET next_at = next_at - 3600")
    db.close()
