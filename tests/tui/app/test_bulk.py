"""One verb on several: one question that lists them, a result and a row for each, nothing half-told."""

from __future__ import annotations

import asyncio

import pytest
from tests.tui.app.scene import NOW, ref, samples, sandbox, screen_text, until
from textual.widgets import Button, Input

from sandbox_console.errors import BackendError, BackendUnreachable
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.policy.rules import Rules
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.bulk.bulk_run import AT_ONCE, ItemOutcome
from sandbox_console.tui.bulk.results_screen import BulkConfirm, BulkScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen


def on(app, kind):
    return lambda: isinstance(app.screen, kind)


async def press_all(pilot, app, key):
    await pilot.press("asterisk", key)
    await until(pilot, on(app, BulkConfirm))


def fates(run):
    return {item.sandbox.name: str(item.fate) for item in run.items}


async def over(pilot, app):
    await until(pilot, lambda: app.bulk.runs and app.bulk.runs[-1].done)
    return app.bulk.runs[-1]


async def rows(app):
    return await app.service.history(AuditQuery(limit=500))


async def test_the_question_lists_each_with_what_is_left_out_and_why(run_app, fake):
    async with run_app() as (app, pilot):
        await press_all(pilot, app, "x")
        text = screen_text(app)
        assert "Stop 2 sandboxes?" in text
        for words in ("agent", "aaaaaaaaaaaa", "● running", "it is exited", "it is lost", "4 of 6 marked do not fit"):
            assert words in text
        assert "its id must be typed" in text
        await pilot.press("down", "down", "down", "down", "down")
        await until(pilot, lambda: "theirs was not made by this console" in screen_text(app))
        assert "sandbox-console stop fake/local/aaaaaaaaaaaa fake/local/bbbbbbbbbbbb" in text
        assert app.focused.id == "cancel"
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert fake.permits == []
        assert await rows(app) == []


async def test_each_is_done_with_its_own_row_and_loses_its_mark(run_app, fake):
    fake.faults.verbs["stop"] = None
    async with run_app() as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        await until(pilot, on(app, BulkScreen))
        run = await over(pilot, app)
        assert fates(run) == {
            "agent": "ok", "builder": "ok", "crashed": "skipped", "done": "skipped", "theirs": "skipped",
            "lost": "skipped",
        }  # fmt: skip
        entries = await rows(app)
        assert sorted(entry.attempt.target for entry in entries) == [
            "fake/local/aaaaaaaaaaaa", "fake/local/bbbbbbbbbbbb",
        ]  # fmt: skip
        assert {item.audit_id for item in run.items} - {None} == {entry.attempt.seq for entry in entries}
        await until(pilot, lambda: "● 2 ok" in screen_text(app))
        assert "– 4 skipped" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, on(app, TextScreen))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is app.main)
        assert {one.name for one in app.main.marked} == {"crashed", "done", "theirs", "lost"}


async def test_a_failure_is_told_with_its_cause_and_the_others_go_on(run_app, fake):
    real = fake.stop

    async def stop(permit, ref_, grace_s):
        if ref_.id.startswith("a"):
            raise BackendError("the engine is busy")
        await real(permit, ref_, grace_s)

    fake.stop = stop
    async with run_app() as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        run = await over(pilot, app)
        assert fates(run)["agent"] == "failed"
        assert fates(run)["builder"] == "ok"
        await until(pilot, lambda: "the engine is busy" in screen_text(app))
        assert {one.name for one in app.main.marked} >= {"agent"}
        fake.stop = real
        await pilot.press("r")
        await until(pilot, on(app, BulkConfirm))
        assert "Stop 1 sandbox?" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: len(app.bulk.runs) and fates(app.bulk.runs[-1]).get("agent") == "ok")


async def test_a_backend_that_falls_silent_leaves_an_unknown(run_app, fake):
    async def stop(permit, ref_, grace_s):
        raise BackendUnreachable("the engine went away")

    fake.stop = stop
    async with run_app() as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        run = await over(pilot, app)
        assert fates(run)["agent"] == "unknown"


async def test_what_the_policy_denies_is_told_before_and_recorded(run_app, fake):
    config = Config(backend="fake", policy=Rules(deny=("stop",)))
    async with run_app(config=config) as (app, pilot):
        await press_all(pilot, app, "x")
        assert "refused: the policy denies stop" in screen_text(app)
        await pilot.press("y")
        run = await over(pilot, app)
        assert fates(run)["agent"] == "denied"
        assert {entry.outcome for entry in await rows(app)} == {"denied"}
        assert fake.permits == []


async def test_what_a_backend_cannot_do_is_told(run_app, fake):
    fake._capabilities = Capabilities(frozenset(Capability) - {Capability.PAUSE}, {Capability.PAUSE: "no freezer here"})
    async with run_app() as (app, pilot):
        await press_all(pilot, app, "p")
        assert "3 will be refused and recorded" in screen_text(app)
        assert "no freezer here" in screen_text(app)
        await pilot.press("y")
        run = await over(pilot, app)
        assert fates(run)["agent"] == "unsupported"


async def test_the_worst_takes_the_verb_and_the_count_typed(run_app, fake):
    async with run_app() as (app, pilot):
        await press_all(pilot, app, "ctrl+d")
        assert isinstance(app.focused, Input)
        assert "Type remove 5 to confirm" in screen_text(app)
        assert app.screen.query_one("#agree", Button).disabled
        await pilot.press(*"remove 4", "enter")
        assert isinstance(app.screen, BulkConfirm)
        app.screen.query_one(Input).value = "remove 5"
        await pilot.pause()
        await pilot.press("enter")
        run = await over(pilot, app)
        assert run.counts[ItemOutcome.OK] == 5
        await until(pilot, lambda: [one.name for one in app.fleet.sandboxes.values()] == ["theirs"])


async def test_the_command_of_many_has_three_lines_on_a_small_terminal(run_app):
    many = FakeBackend([sandbox(f"{at:012}", f"agent-{at:02}") for at in range(20)], clock=lambda: NOW)
    async with run_app(many, size=(80, 24)) as (app, pilot):
        await press_all(pilot, app, "x")
        await until(pilot, lambda: "sandbox-console stop" in screen_text(app))
        lines = [line.strip(" │✓▸") for line in screen_text(app).splitlines()]
        [first] = [at for at, line in enumerate(lines) if line.startswith("$ sandbox-console stop fake/")]
        assert [line.startswith("fake/local/") for line in lines[first + 1 : first + 3]] == [True, True]
        assert lines[first + 2].endswith("…")
        assert "Cancel" in screen_text(app)


async def test_nothing_that_fits_cannot_be_confirmed(run_app, fake):
    async with run_app() as (app, pilot):
        app.main.table.move_to(ref("cccccccccccc"))
        await pilot.press("space", "x")
        await until(pilot, on(app, BulkConfirm))
        await pilot.press("y")
        assert isinstance(app.screen, BulkConfirm)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert app.bulk.runs == []


@pytest.fixture
def held(fake):
    """Twenty running sandboxes whose stop waits to be let go."""
    fleet = [sandbox(f"{at:012}", f"agent-{at:02}") for at in range(20)]
    fake = FakeBackend(fleet, stats=samples(), clock=lambda: NOW)
    fake.go = asyncio.Event()
    fake.inside = fake.most = 0
    real = fake.stop

    async def stop(permit, ref_, grace_s):
        fake.inside += 1
        fake.most = max(fake.most, fake.inside)
        try:
            await fake.go.wait()
            await real(permit, ref_, grace_s)
        finally:
            fake.inside -= 1

    fake.stop = stop
    return fake


async def test_no_more_than_a_bound_are_in_flight_and_leaving_the_page_ends_nothing(run_app, held):
    async with run_app(held) as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        await until(pilot, lambda: held.inside == AT_ONCE)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        await until(pilot, lambda: "↻ stopping" in screen_text(app))
        held.go.set()
        run = await over(pilot, app)
        assert run.counts == {ItemOutcome.OK: 20}
        assert held.most == AT_ONCE
        await until(pilot, lambda: any("20 ok" in note.message for note in app._notifications))
        assert len({entry.attempt.target for entry in await rows(app)}) == 20
        await pilot.press("J")
        await until(pilot, on(app, BulkScreen))


async def test_the_key_shows_the_run_that_was_told_of(run_app, held):
    async with run_app(held) as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        await until(pilot, lambda: held.inside == AT_ONCE)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        first = app.bulk.runs[-1]
        await pilot.press("ctrl+backslash", "end", "space", "p")
        await until(pilot, on(app, BulkConfirm))
        await pilot.press("y")
        await until(pilot, lambda: app.bulk.runs[-1] is not first and app.bulk.runs[-1].done)
        await pilot.press("escape")
        held.go.set()
        await until(pilot, lambda: any("J shows each" in note.message for note in app._notifications))
        await pilot.press("J")
        await until(pilot, on(app, BulkScreen))
        assert app.screen.run_shown is first


async def test_begin_no_more_leaves_the_rest_alone(run_app, held):
    async with run_app(held) as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        await until(pilot, lambda: held.inside == AT_ONCE)
        await until(pilot, on(app, BulkScreen))
        await pilot.press("x")
        held.go.set()
        run = await over(pilot, app)
        assert run.counts == {ItemOutcome.OK: AT_ONCE, ItemOutcome.CANCELLED: 20 - AT_ONCE}
        await pilot.press("x")
        await until(pilot, lambda: any("No change is waiting" in note.message for note in app._notifications))
        assert len(await rows(app)) == AT_ONCE


async def test_quitting_in_the_middle_tells_what_runs_and_what_never_will(run_app, held):
    async with run_app(held) as (app, pilot):
        await press_all(pilot, app, "x")
        await pilot.press("y")
        await until(pilot, lambda: held.inside == AT_ONCE)
        await until(pilot, on(app, BulkScreen))
        await app.run_action("app.quit")
        await until(pilot, on(app, ConfirmScreen))
        text = " ".join(screen_text(app).replace("│", " ").split())
        assert f"stop 20 sandboxes: {AT_ONCE} running, {20 - AT_ONCE} waiting" in text
        assert f"Not started: {20 - AT_ONCE}" in text
        console = app.service
        await pilot.press("y")
        await until(pilot, lambda: not app.is_running)
        [told] = app._exit_renderables
        assert "cancelled and recorded as cancelled: agent-" in str(told)
        await console.close()
        assert [entry.outcome for entry in await rows(app)] == ["cancelled"] * AT_ONCE


async def test_hostile_names_are_shown_letter_by_letter(run_app):
    bad = sandbox("0123456789abcdef", "[@click=app.quit]x[/]\x1b]52;c;eA==\x07", Status.RUNNING)
    async with run_app(FakeBackend([bad], clock=lambda: NOW)) as (app, pilot):
        await press_all(pilot, app, "x")
        assert "[@click=app.quit]x[/]␛" in screen_text(app)
        await pilot.press("y")
        await over(pilot, app)
        await until(pilot, lambda: isinstance(app.screen, BulkScreen) and "● 1 ok" in screen_text(app))
        assert "[@click=app.quit]x[/]␛" in screen_text(app)
        assert SandboxRef("fake", "local", "0123456789abcdef") not in app.main.table.marked
