"""The audit screen over the fleet: what it shows, filters, opens, and where it leads."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.tui.app.scene import NOW, ref, screen_text, until
from textual.widgets import Input

from sandbox_console.audit.journal import Journal
from sandbox_console.model.audit import AuditQuery, Outcome
from sandbox_console.tui.audit.audit_screen import AuditScreen, parse_filter
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.main.main_screen import MainScreen
from sandbox_console.tui.widgets.table.table import FleetTable

HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202eevil\u200b"
AGENT = str(ref("aaaaaaaaaaaa"))
WAIT_S = 30.0


def rows(app):
    return [row.cells for row in app.screen.query_one(FleetTable).rows]


async def write(app, *told):
    """Rows as another console writes them: (verb, target, body, outcome)."""
    journal = await Journal.open(app.service.audit_log.path, "user:other")
    for verb, target, body, outcome in told:
        permit = await journal.begin(verb, "fake", target, body)
        await journal.finish(permit, outcome, 1000, {})
    await journal.close()


STORY = (
    ("create", "fake/local/name:agent", {"spec": {"name": "agent", "image": "python:3.12"}}, Outcome.OK),
    ("update", AGENT, {"name": "agent", "diff": {"image": ["python:3.12", "python:3.13"], "env": ["A"]}}, Outcome.OK),
    ("exec", AGENT, {"name": "agent", "argv": ["rm", "-rf", HOSTILE]}, Outcome.DENIED),
    ("stop", str(ref("bbbbbbbbbbbb")), {"name": HOSTILE}, Outcome.UNKNOWN),
    ("start", str(ref("gone")), {"name": "gone"}, Outcome.FAILED),
)


async def open_screen(app, pilot, count=5):
    await pilot.press("h")
    await until(pilot, lambda: isinstance(app.screen, AuditScreen) and len(rows(app)) == count, WAIT_S)
    await until(pilot, lambda: "the chain holds" in screen_text(app), WAIT_S)


async def test_everything_is_shown_and_what_others_write_comes_by_itself(run_app):
    async with run_app() as (app, pilot):
        await write(app, *STORY)
        await open_screen(app, pilot)
        assert [cells[2] for cells in rows(app)] == ["start", "stop", "exec", "update", "create"]
        text = screen_text(app)
        assert "5 actions" in text
        assert "3 denied, failed or unknown" in text
        assert "⊘ denied" in text
        assert "? unknown" in text
        await write(app, ("kill", AGENT, {"name": "agent"}, Outcome.OK))
        await until(pilot, lambda: rows(app)[0][2] == "kill", WAIT_S)


async def test_filters_trouble_and_back(run_app):
    async with run_app() as (app, pilot):
        await write(app, *STORY)
        await open_screen(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: len(rows(app)) == 3, WAIT_S)
        await pilot.press("x")
        await until(pilot, lambda: len(rows(app)) == 5, WAIT_S)
        await pilot.press("slash")
        app.screen.query_one(Input).value = "action:exec rm"
        await until(pilot, lambda: [cells[2] for cells in rows(app)] == ["exec"], WAIT_S)
        await pilot.press("enter")
        assert isinstance(app.focused, FleetTable)
        await pilot.press("slash")
        app.screen.query_one(Input).value = "outcome:good"
        await until(pilot, lambda: "'good' is none of" in screen_text(app), WAIT_S)
        await pilot.press("escape")
        await until(pilot, lambda: len(rows(app)) == 5, WAIT_S)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MainScreen), WAIT_S)


async def test_a_row_opens_with_its_diff_and_leads_to_its_sandbox(run_app):
    async with run_app() as (app, pilot):
        await write(app, *STORY)
        await open_screen(app, pilot)
        table = app.screen.query_one(FleetTable)
        [key] = [row.key for row in table.rows if row.cells[2] == "update"]
        assert table.move_to(key)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen), WAIT_S)
        text = screen_text(app)
        assert '- "python:3.12"' in text
        assert '+ "python:3.13"' in text
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, AuditScreen), WAIT_S)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, MainScreen), WAIT_S)
        await until(pilot, lambda: app.main.selected and str(app.main.selected.ref) == AGENT, WAIT_S)


async def test_a_row_about_no_sandbox_leads_nowhere(run_app):
    async with run_app() as (app, pilot):
        await write(app, STORY[0])
        await open_screen(app, pilot, 1)
        await pilot.press("s")
        await until(pilot, lambda: "names no sandbox" in screen_text(app), WAIT_S)


async def test_a_log_that_was_edited_is_shown_broken_and_does_not_hurt_the_screen(run_app):
    async with run_app() as (app, pilot):
        await write(app, *STORY)
        await open_screen(app, pilot)
        with closing(sqlite3.connect(app.service.audit_log.path)) as db:
            for [name] in db.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
                db.execute(f"DROP TRIGGER {name}")
            db.execute("UPDATE record SET outcome = 'fine', ts_ns = 9223372036854775807 WHERE outcome = 'denied'")
            db.execute("""UPDATE record SET body = '{"spec":7,"argv":8,"diff":9}' WHERE action = 'update'""")
            db.commit()
        await pilot.press("v")
        await until(pilot, lambda: "BROKEN" in screen_text(app), WAIT_S)
        assert "was edited" in screen_text(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen), WAIT_S)


async def test_a_log_that_cannot_be_written_says_so(run_app):
    async with run_app() as (app, pilot):
        await write(app, *STORY)
        app.service.audit_log.note_problem("the disk is full")
        await pilot.press("h")
        await until(pilot, lambda: "it cannot be written: the disk is full" in screen_text(app), WAIT_S)
        await until(pilot, lambda: len(rows(app)) == 5, WAIT_S)


async def test_hostile_text_is_clean_and_fires_nothing(run_app):
    async with run_app() as (app, pilot):
        await write(app, *STORY)
        await open_screen(app, pilot)
        shown = "".join(cell for cells in rows(app) for cell in cells)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[@click=app.quit]x[/]" in shown
        for number in range(4, 10):
            await pilot.click(FleetTable, offset=(60, number))
        assert app.is_running


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", AuditQuery(limit=9)),
        ("actor:user:me", AuditQuery(limit=9, actor="user:me")),
        ("since:1h python", AuditQuery(limit=9, since=NOW - 3600, text="python")),
        ("outcome:denied,unknown a b", AuditQuery(limit=9, outcome="denied,unknown", text="a b")),
        ("action:", AuditQuery(limit=9)),
        ("http://acme.org", AuditQuery(limit=9, text="http://acme.org")),
    ],
)
def test_the_filter_line(text, query):
    assert parse_filter(text, NOW, 9) == (query, "")


@pytest.mark.parametrize("text", ["since:soon", "outcome:good"])
def test_what_the_filter_line_cannot_mean(text):
    found, problem = parse_filter(text, NOW, 9)
    assert found == AuditQuery(limit=9)
    assert problem
