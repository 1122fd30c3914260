"""Rules on real sandboxes: each kind fires for what it is about, and for nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self

import pytest
from tests.alerts.conftest import Make, until
from tests.incident.conftest import until_ended
from tests.library.conftest import IMAGES

from sandbox_console.model import action
from sandbox_console.model.alert import Alert, AlertState
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.service.alert_options import AlertOptions, AlertRule
from sandbox_console.service.alerts.engine import AlertEngine
from sandbox_console.service.alerts.store import AlertStore
from sandbox_console.service.alerts.watch import alerts_folder


class Watched:
    """The rules of a console while a test runs."""

    def __init__(self, console: Console, rules: dict[str, AlertRule]) -> None:
        self.console, self.options = console, AlertOptions(rules=rules)
        self.store = AlertStore(alerts_folder(console))
        self.seen: list[Alert] = []
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        engine = await AlertEngine.open(self.console, self.store, self.options, notice=self.seen.append)
        await engine.tick()
        self.task = asyncio.create_task(engine.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.store.close()

    def of(self, state: AlertState = AlertState.FIRING) -> list[tuple[str, str]]:
        return [(one.rule, one.name) for one in self.seen if one.state is state]

    def text(self, rule: str) -> str:
        return next(one.text for one in self.seen if one.rule == rule)


async def kill(console: Console, ref: SandboxRef) -> None:
    await console.perform(action.Kill(ref), consent=Consent(yes=True, confirm=ref.id)).result()


async def test_a_death_fires_with_its_verdict_and_is_over_when_it_runs_again(console: Console, make: Make) -> None:
    old = await until_ended(console, await make("sh", "-c", "exit 4", name="old"))
    async with Watched(
        console, {"died": AlertRule(on="state"), "ended": AlertRule(on="state", states=("exited",))}
    ) as watched:
        ref = await make("sh", "-c", "sleep 1; exit 3", name="ill")
        await make("sh", "-c", "sleep 0.5; exit 0", name="well")
        await until(lambda: len(watched.of()) == 3)
        assert sorted(watched.of()) == [("died", "ill"), ("ended", "ill"), ("ended", "well")]
        assert watched.text("died") == "its command failed: exit 3"
        await console.perform(action.Start(ref)).result()
        await until(lambda: ("died", "ill") in watched.of(AlertState.RESOLVED))
    assert old.name not in {one.name for one in watched.seen}  # it had ended before


async def test_what_a_person_ended_is_no_error(console: Console, make: Make) -> None:
    async with Watched(
        console, {"died": AlertRule(on="state"), "kills": AlertRule(on="audit", actions=("kill",))}
    ) as watched:
        ours = await make("sleep", "1000", name="ours")
        await make("sh", "-c", "sleep 2; exit 7", name="theirs")
        await kill(console, ours)
        await until(lambda: len(watched.of()) == 2)
        await asyncio.sleep(1.5)
        assert sorted(watched.of()) == [("died", "theirs"), ("kills", "ours")]
        assert watched.text("kills").startswith("kill by ")


async def test_lines_of_a_log_are_counted_and_cleaned(console: Console, make: Make) -> None:
    rules = {
        "fatal": AlertRule(on="log", pattern="FATAL"),
        "often": AlertRule(on="log", pattern="again", count=3, within="1m"),
        "seldom": AlertRule(on="log", pattern="again", count=4, within="1m"),
        "others": AlertRule(on="log", pattern="FATAL", filter="name=other*"),
    }
    async with Watched(console, rules) as watched:
        await make(
            "sh",
            "-c",
            r"printf 'FATAL \033]52;c;AAAA\007 \342\200\256gnp\n'; for i in 1 2 3; do echo again; done; sleep 60",
            name="web",
        )
        await until(lambda: len(watched.of()) == 2)
        await asyncio.sleep(1.5)
        assert sorted(watched.of()) == [("fatal", "web"), ("often", "web")]
    assert watched.text("fatal") == "FATAL ␛]52;c;AAAA␇ <U+202E>gnp"
    assert watched.text("often").startswith("3 times within 1m: again")


async def test_a_line_right_before_the_end_is_seen(console: Console, make: Make) -> None:
    async with Watched(console, {"fatal": AlertRule(on="log", pattern="FATAL")}) as watched:
        for number in range(5):
            await make("sh", "-c", "echo FATAL now; exit 1", name=f"quick{number}")
        await until(lambda: len(watched.of()) == 5)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(x|xx)*y", "(.*)*(.*)*!"])
async def test_a_pattern_and_a_line_made_to_take_for_ever(console: Console, make: Make, pattern: str) -> None:
    async with Watched(
        console, {"slow": AlertRule(on="log", pattern=pattern), "end": AlertRule(on="log", pattern="the end")}
    ) as watched:
        await make(
            "sh",
            "-c",
            "head -c 3000000 /dev/zero | tr '\\0' a; echo; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end; sleep 60",
            name="web",
        )
        await until(lambda: ("end", "web") in watched.of(), 60)


async def test_use_above_a_threshold_for_a_time(console: Console, make: Make) -> None:
    rules = {
        "busy": AlertRule(on="metric", metric="cpu", above=40, lasting="2s"),
        "never": AlertRule(on="metric", metric="cpu", above=40, lasting="1h"),
        "loud": AlertRule(on="metric", metric="log", above="20k"),
        "full": AlertRule(on="metric", metric="memory", above="90%", filter="name=idle"),
    }
    async with Watched(console, rules) as watched:
        ref = await make("sh", "-c", "while :; do :; done", name="busy")
        await make("sh", "-c", "while :; do head -c 60000 /dev/zero | tr '\\0' x; echo; sleep 0.2; done", name="loud")
        await make("sleep", "1000", name="idle", memory_mib=64)
        await until(lambda: {("busy", "busy"), ("loud", "loud")} <= set(watched.of()), 60)
        assert not {"never", "full"} & {rule for rule, _ in watched.of()}
        assert "CPU is" in watched.text("busy")
        await console.perform(action.Remove(ref, force=True), consent=Consent(yes=True, confirm=ref.id)).result()
        await until(lambda: ("busy", "busy") in watched.of(AlertState.RESOLVED))
        assert next(
            one.text for one in watched.seen if one.state is AlertState.RESOLVED and one.rule == "busy"
        ).endswith("it was removed")


async def test_a_loop_of_restarts(console: Console, make: Make) -> None:
    async with Watched(
        console, {"loop": AlertRule(on="restarts", count=2, within="1m"), "calm": AlertRule(on="restarts", count=9)}
    ) as watched:
        ref = await make("sh", "-c", "sleep 0.2; exit 1", name="loop")
        for _ in range(2):
            await until_ended(console, ref)
            await asyncio.sleep(1.1)
            await console.perform(action.Start(ref)).result()
        await until(watched.of)
        assert watched.of() == [("loop", "loop")]


async def test_each_alert_is_in_the_audit_log_and_in_the_timeline(console: Console, make: Make) -> None:
    async with Watched(
        console, {"fatal": AlertRule(on="log", pattern="FATAL"), "all": AlertRule(on="audit", count=50)}
    ) as watched:
        ref = await make("sh", "-c", "echo FATAL; sleep 60", name="web")
        await until(watched.of)
        async with asyncio.timeout(20):
            while not (rows := await console.history(AuditQuery(action="alert"))) or not rows[0].outcome:
                await asyncio.sleep(0.1)
    [row] = rows
    assert (row.outcome, row.attempt.target, row.attempt.body["rule"], row.attempt.body["text"]) == (
        "ok",
        str(ref),
        "fatal",
        "FATAL",
    )
    assert row.attempt.body["alert"] == watched.seen[0].id


@pytest.mark.parametrize("backend", ["docker"], indirect=True)
async def test_an_engine_that_dies_and_comes_back(backend: str, home: Path, docker_engine) -> None:
    rules = {"down": AlertRule(on="backend", severity="critical"), "died": AlertRule(on="state", states=("running",))}
    async with open_console(Config(), only_backend=backend) as console:
        [place] = console.places
        ref = (
            await console.perform(
                action.Create(SandboxSpec("stays", IMAGES[backend], ("sleep", "1000")), *place)
            ).result()
        ).ref
        async with Watched(console, rules) as watched:
            await until(lambda: ("died", "stays") in watched.of())
            docker_engine.crash()
            try:
                await until(lambda: any(rule == "down" for rule, _ in watched.of()), 60)
            finally:
                docker_engine.start()
            await until(lambda: any(rule == "down" for rule, _ in watched.of(AlertState.RESOLVED)), 60)
            # what is known of a sandbox stays while its engine is away
            assert ("died", "stays") not in watched.of(AlertState.RESOLVED)
        await console.perform(action.Remove(ref, force=True), consent=Consent(yes=True, confirm=ref.id)).result()
