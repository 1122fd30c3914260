"""The Logs tab: what is older, what is shared, what was copied and saved, what starts again."""

from __future__ import annotations

import time

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, NS, ref, sandbox, screen_text, until

from sandbox_console.model.event import Removed
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Status
from sandbox_console.service import Config
from sandbox_console.service.config import HighlightRule, LogOptions
from sandbox_console.tui.logs import log_feed
from sandbox_console.tui.logs.logs_tab import LogsPane

AGENT, BUILDER = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


def logs_of(app):
    return app.main.query_one("#logs", LogsPane)


def line(at_s, text, stream=Stream.STDOUT):
    return LogRecord(int(at_s * NS), stream, text.encode())


def texts(view):
    return [view.lines.line_at(row).data.decode().rstrip("\n") for row in range(view.shown)]


async def merge(app, pilot, *ids):
    for one in ids:
        app.main.table.move_to(ref(one))
        await pilot.pause()
        await pilot.press("space")
    await pilot.press("L")
    await until(pilot, lambda: logs_of(app).merged)


@pytest.fixture
def asked(fake, monkeypatch):
    """The queries that the backend was asked."""
    found, logs = [], fake.logs

    def asks(ref, query):
        found.append(query)
        return logs(ref, query)

    monkeypatch.setattr(fake, "logs", asks)
    return found


async def test_a_time_before_the_oldest_line_is_asked_for_once_and_as_far_as_there_is_room(
    run_app, fake, asked, monkeypatch
):
    monkeypatch.setattr("sandbox_console.tui.logs.logs_tab.TAIL", 10)
    monkeypatch.setattr(log_feed, "OLDER_LINES", 20)
    now = time.time()
    fake.sandboxes[AGENT] = structs.replace(fake.sandboxes[AGENT], created_at=now - 7200)
    fake._logs[AGENT] = [line(now - 3000 + at, f"line {at}\n") for at in range(1000)]
    async with run_app() as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 10)
        await pilot.press("l", "g", "g")
        await until(pilot, lambda: view.total > 20)
        assert texts(view) == [f"line {at}" for at in range(1000 - view.total, 1000)]
        asked.clear()
        await pilot.press("6")
        await until(pilot, lambda: view.total == 1000)
        assert texts(view) == [f"line {at}" for at in range(1000)]
        assert len(asked) == 1, "a long log must not be read again for each page of it"


async def test_older_lines_of_several_are_not_to_be_had_and_it_says_so(run_app):
    async with run_app() as (app, pilot):
        await merge(app, pilot, AGENT, BUILDER)
        await until(pilot, lambda: logs_of(app).view.total == 9)
        await pilot.press("g", "g")
        await until(pilot, lambda: "older lines come in a sandbox's own log" in screen_text(app))


async def test_merged_logs_go_on_when_one_starts_again(run_app, fake):
    async with run_app() as (app, pilot):
        await merge(app, pilot, AGENT, BUILDER)
        await until(pilot, lambda: logs_of(app).view.total == 9)
        one = fake.sandboxes[AGENT]
        await fake._put(structs.replace(one, status=Status.EXITED))
        await until(pilot, lambda: "FOLLOWING 1 of 2" in screen_text(app))
        await fake._put(structs.replace(one, started_at=NOW))
        await until(pilot, lambda: "FOLLOWING [9/9]" in screen_text(app))
        await fake.say(ref(AGENT), line(NOW, "up again\n"))
        await until(pilot, lambda: texts(logs_of(app).view)[-1:] == ["up again"])
        assert logs_of(app).view.total == 10


async def test_a_sandbox_that_comes_with_the_label_is_among_the_merged(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("L", *"team=red", "enter")
        await until(pilot, lambda: logs_of(app).view.total == 9 and "1 sandbox by time" in screen_text(app))
        fake._logs["cafe"] = [line(NOW, "hello\n")]
        await fake._put(sandbox("cafe", "newcomer", labels={"team": "red"}))
        fake._logs["twin"] = [line(NOW + 1, "me too\n")]
        await fake._put(sandbox("twin", "newcomer", labels={"team": "red"}))
        await fake._put(sandbox("beef", "other", labels={"team": "blue"}))
        await until(pilot, lambda: texts(logs_of(app).view)[-2:] == ["hello", "me too"])
        await until(pilot, lambda: "twin newcomer me too" in screen_text(app))
        assert "newcomer      hello" in screen_text(app), "two of one name are told apart"
        assert "3 sandboxes by time" in screen_text(app)


async def test_the_log_of_one_that_went_while_it_was_among_others_stays(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("L", *"team", "enter")
        await until(pilot, lambda: logs_of(app).view.total == 9)
        await fake.say(ref(AGENT), line(NOW, "last words"))
        await until(pilot, lambda: logs_of(app).view.total == 10)
        await pilot.press("m")
        del fake.sandboxes[AGENT]
        await fake.tell(Removed(ref(AGENT)))
        await until(pilot, lambda: logs_of(app)._sandbox.ref != ref(AGENT))
        assert logs_of(app).merged, "nobody chose another"
        await until(pilot, lambda: "FOLLOWING" not in screen_text(app))
        await pilot.press("L", "p", "enter")
        await until(pilot, lambda: "agent is gone since" in screen_text(app))
        assert texts(logs_of(app).view) == [*(f"step {at} of 9" for at in range(9)), "last words"]


async def test_what_is_copied_has_no_colours_left_in_it(run_app, fake):
    fake._logs[AGENT] = [line(NOW - 1, "\x1b[1;31mred\x1b[0m and \x1b]0;title\x07\u202eplain\n")]
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total == 1)
        await pilot.press("l", "c")
        await until(pilot, lambda: app.clipboard)
        assert app.clipboard == "red and ]0;titleplain"


async def test_saving_says_what_is_not_in_it(run_app, fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sandbox_console.tui.logs.logs_tab.TAIL", 5)
    async with run_app() as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 5)
        await pilot.press("l", "ctrl+s")
        await until(pilot, lambda: list(app._notifications))
        [told] = [one.message for one in app._notifications]
        assert told.startswith("5 lines, ")
        assert told.endswith("all: sandbox-console logs agent > FILE")
        [file] = tmp_path.glob("*.log")
        assert file.read_bytes().startswith(b"step 4")


async def test_a_rule_of_the_config_colours_what_it_finds(run_app, fake):
    rules = {"steps": HighlightRule(pattern="step [13]", style="warn")}
    async with run_app(fake, config=Config(backend="fake", logs=LogOptions(highlight=rules))) as (app, pilot):
        view = logs_of(app).view

        def coloured():
            ink = view.get_component_rich_style("log--warn").color
            runs = [run for _, strip in view.drawn() for run in strip if run.style is not None]
            return [run.text for run in runs if run.style.color == ink]

        await until(pilot, lambda: view.shown == 9 and coloured() == ["step 1", "step 3"])


async def test_list_and_detail_stand_as_they_were_left(run_app):
    async with run_app() as (app, pilot):
        shown, detail = app.main.fleet, app.main.detail
        await pilot.press("vertical_line")
        await until(pilot, lambda: detail.region.x >= shown.region.right > 0)
        before = shown.region.width
        await pilot.press("plus")
        await until(pilot, lambda: shown.region.width < before)
        left = shown.region
    async with run_app() as (app, pilot):
        await until(pilot, lambda: app.main.fleet.region == left)
        await pilot.press("vertical_line")
        await until(pilot, lambda: app.main.detail.region.y >= app.main.fleet.region.bottom > 0)
