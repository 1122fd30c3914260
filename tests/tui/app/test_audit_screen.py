"""The audit screen: live, filtered, from a row to its sandbox, with the chain's state in sight."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.tui.app.scene import NOW, NS, ref, screen_text, until

from sandbox_console.audit import anchors, rows
from sandbox_console.errors import AuditUnavailable, BackendError
from sandbox_console.model.action import Exec, Pause, Remove, Start, Stop
from sandbox_console.model.audit import Outcome
from sandbox_console.service import Consent
from sandbox_console.tui.audit.audit_screen import AuditScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.widgets.table.table import FleetTable

A, B, THEIRS = ref("aaaaaaaaaaaa"), ref("bbbbbbbbbbbb"), ref("eeeeeeeeeeee")
HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\u202e"


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    """Row after row a second apart, so that a picture of them is the same each time."""
    ticks = itertools.count(int((NOW - 300) * NS), NS)
    monkeypatch.setattr(rows.time, "time_ns", lambda: next(ticks))
    monkeypatch.setattr(anchors.time, "time_ns", lambda: int(NOW * NS))


async def some(console):
    await console.perform(Pause(B)).result()
    with pytest.raises(BackendError):
        await console.perform(Stop(B)).result()
    with pytest.raises(Exception, match="not made by"):
        await console.perform(Remove(THEIRS)).result()
    await console.perform(Exec(A, ("echo", HOSTILE)), consent=Consent(yes=True)).result()


@pytest.fixture
def opened(run_app, fake):
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def open_(size=(120, 40)):
        fake.faults.verbs["stop"] = BackendError("the engine said no")
        async with run_app(size=size) as (app, pilot):
            await some(app.service)
            await pilot.press("h")
            await until(pilot, lambda: isinstance(app.screen, AuditScreen) and app.screen._verified)
            await until(pilot, lambda: len(app.screen.query_one(FleetTable).rows) == 4)
            yield app, pilot

    return open_


def shown(app):
    return [row.cells[2] for row in app.screen.query_one(FleetTable).rows]


async def test_it_shows_the_fleets_rows_and_the_chains_state(opened):
    async with opened() as (app, _):
        assert shown(app) == ["exec", "remove", "stop", "pause"]
        text = screen_text(app)
        assert "the chain holds: 8 rows" in text
        assert "2 denied, failed or unknown" in text
        assert "the engine said no" in text
        assert "\x1b" not in text
        assert "\u202e" not in text


async def test_new_rows_come_by_themselves(opened):
    async with opened() as (app, pilot):
        await app.service.perform(Start(A)).result()
        await until(pilot, lambda: shown(app)[0] == "start")


async def test_an_end_far_behind_the_newest_rows_is_seen(opened):
    async with opened() as (app, pilot):
        journal = await app.service.audit_log.journal()
        permit = await journal.begin("exec", "fake", str(A), {})
        for _ in range(25):
            await journal.refuse("exec", "fake", str(A), {}, Outcome.DENIED, {})
        await until(pilot, lambda: len(shown(app)) == 30)
        row = next(row for row in app.screen.query_one(FleetTable).rows if row.key == permit.audit_id)
        assert "in flight" in row.cells[3]
        await journal.finish(permit, Outcome.TIMED_OUT, 1, {})
        await until(pilot, lambda: any("timed_out" in row.cells[3] for row in app.screen.query_one(FleetTable).rows))


async def test_typing_ends_an_older_query_and_the_clock_does_not(opened, monkeypatch):
    monkeypatch.setattr("sandbox_console.tui.audit.audit_screen.LOOK_S", 0.05)
    asked, ended, looks = [], [], []
    async with opened() as (app, pilot):
        history = app.service.history

        async def slow(query):
            asked.append(query.text)
            try:
                if query.text == "e":
                    await asyncio.Event().wait()
                return await history(query)
            except asyncio.CancelledError:
                ended.append(query.text)
                raise

        monkeypatch.setattr(app.service, "history", slow)
        await pilot.press("slash", "e")
        await until(pilot, lambda: asked == ["e"])
        app.screen.set_interval(0.05, lambda: looks.append(1))
        await until(pilot, lambda: len(looks) > 5)
        assert (asked, ended) == (["e"], []), "it takes longer than the interval, and goes on"
        await pilot.press("c", "h", "o")
        await until(pilot, lambda: shown(app) == ["exec"])
        assert ended[0] == "e"


async def test_filters_narrow_it_and_say_what_they_do_not_understand(opened):
    async with opened() as (app, pilot):
        await pilot.press("x")
        await until(pilot, lambda: shown(app) == ["remove", "stop"])
        await pilot.press("x")
        await until(pilot, lambda: len(shown(app)) == 4)
        await pilot.press("slash", *"action:pause", "enter")
        await until(pilot, lambda: shown(app) == ["pause"])
        await pilot.press("escape")
        await until(pilot, lambda: len(shown(app)) == 4)
        await pilot.press("slash", *"outcome:bad")
        await until(pilot, lambda: "outcome: 'bad' is none of" in screen_text(app))
        await pilot.press("escape")
        await pilot.press("slash", *"echo", "enter")
        await until(pilot, lambda: shown(app) == ["exec"])
        assert isinstance(app.screen, AuditScreen)


async def test_a_row_opens_with_all_that_is_on_record(opened):
    async with opened() as (app, pilot):
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert "request_id" in screen_text(app)
        await pilot.press("escape")
        assert isinstance(app.screen, AuditScreen)


async def test_s_goes_to_the_rows_sandbox(opened):
    async with opened() as (app, pilot):
        await pilot.press("down", "down", "s")
        await until(pilot, lambda: app.screen is app.main)
        await until(pilot, lambda: app.main.selected.ref == B)


async def test_escape_leaves(opened):
    async with opened() as (app, pilot):
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_a_broken_chain_is_told_in_red(opened, monkeypatch):
    from tests.audit.conftest import spoil

    async with opened() as (app, pilot):
        spoil(app.service.audit_log.path, "UPDATE record SET actor = 'x' WHERE seq = 2")
        await pilot.press("v")
        await until(pilot, lambda: "BROKEN" in screen_text(app))
        assert "row 2" in screen_text(app)


async def test_an_unreadable_log_says_why(opened, monkeypatch):
    async with opened() as (app, pilot):

        async def fail():
            raise AuditUnavailable("the disk is gone")

        monkeypatch.setattr(app.service.audit_log, "newest", fail)
        await until(pilot, lambda: "the disk is gone" in screen_text(app))


async def test_it_looks_right(opened, sheets):
    async with opened() as (app, pilot):
        await sheets(app, pilot, "rows", ready=lambda: "the chain holds" in screen_text(app))
        await pilot.press("slash", *"outcome:bad")
        await sheets(app, pilot, "not-understood", ready=lambda: "is none of" in screen_text(app))
        await pilot.press("escape", "slash", *"nothing-like-this", "enter")
        await sheets(app, pilot, "empty", ready=lambda: shown(app) == [])
