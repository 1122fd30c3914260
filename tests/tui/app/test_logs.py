"""The Logs tab: what is older, what is shared, what was copied and saved, what starts again."""

from __future__ import annotations

import time

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, NS, ref, sandbox, screen_text, until
from textual.widgets import Input

from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.event import Removed
from sandbox_console.model.log import MAYBE_ROTATED, LogGap, LogRecord, Stream
from sandbox_console.model.sandbox import Status
from sandbox_console.service import Config
from sandbox_console.service.config import HighlightRule, LogOptions, TuiOptions
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.keys.main_keys import tab_digits
from sandbox_console.tui.logs import older_lines
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
    monkeypatch.setattr(older_lines, "OLDER_LINES", 20)
    now = time.time()
    fake.sandboxes[AGENT] = structs.replace(fake.sandboxes[AGENT], created_at=now - 7200)
    fake._logs[AGENT] = [line(now - 3000 + at, f"line {at}\n") for at in range(1000)]
    async with run_app() as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 10)
        await pilot.press("l", "k", "pageup", "k")
        await until(pilot, lambda: view.total > 20)
        assert texts(view) == [f"line {at}" for at in range(1000 - view.total, 1000)]
        asked.clear()
        view.action_ago(60)
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
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("enter")
        await until(pilot, lambda: list(app._notifications))
        [told] = [one.message for one in app._notifications]
        assert told.startswith("5 lines, ")
        assert told.endswith("all: sandbox-console logs agent > FILE")
        [file] = tmp_path.glob("*.log")
        assert file.read_bytes().startswith(b"step 4")


async def test_saving_asks_where(run_app, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total)
        for name, last in (("none.log", "escape"), ("elsewhere/one.log", "enter")):
            await pilot.press("l", "ctrl+s")
            await until(pilot, lambda: isinstance(app.screen, AskScreen))
            line = app.screen.query_one(Input)
            assert line.value.startswith(f"{tmp_path}/agent-")
            line.value = name
            await pilot.press(last)
            await until(pilot, lambda: app.screen is app.main)
        await until(pilot, (tmp_path / "elsewhere/one.log").exists)
        assert not list(tmp_path.glob("*.log"))


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


@pytest.fixture
def long_log(fake, monkeypatch):
    """A log of which the tail is ten lines of a thousand; ``needle`` is in two lines long before it."""
    monkeypatch.setattr("sandbox_console.tui.logs.logs_tab.TAIL", 10)
    fake._logs[AGENT] = [line(NOW - 3000 + at, f"line {at}{' needle' * (at in (3, 500))}\n") for at in range(1000)]
    return fake._logs[AGENT]


async def test_a_search_goes_on_into_older_lines(run_app, long_log):
    async with run_app() as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 10)
        await pilot.press("l", "slash", *"needle", "enter")
        await until(pilot, lambda: "match 2/2: needle  the log begins here" in screen_text(app))
        assert texts(view) == [item.data.decode().rstrip("\n") for item in long_log]
        assert "line 500 needle" in screen_text(app), "the nearest above what was in view"
        await pilot.press("N")
        await until(pilot, lambda: "match 1/2" in screen_text(app))
        await pilot.press("escape", "ampersand", *"needle", "enter")
        await until(pilot, lambda: texts(view) == ["line 3 needle", "line 500 needle"])


async def test_the_first_line_is_the_true_beginning_and_what_rotation_took_is_counted(run_app, long_log):
    long_log.insert(0, LogGap(long_log[0].at_ns, "rotated away", 12_000))
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total == 10)
        await pilot.press("l", "g")
        await until(pilot, lambda: "the log begins here; 12,000 lines rotated away" in screen_text(app))
        assert texts(logs_of(app).view)[:2] == ["[12,000 lines lost: rotated away]", "line 0"]
        assert "12,000 lines lost: rotated away" in screen_text(app)


async def test_a_second_search_says_what_rotation_took_too(run_app, long_log):
    long_log.insert(0, LogGap(long_log[0].at_ns, "rotated away", 12_000))
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total == 10)
        for word in ("needle", "thread"):
            await pilot.press("l", "slash", *word, "enter")
            said = f"{word}  the log begins here; 12,000 lines rotated away"
            await until(pilot, lambda said=said: said in screen_text(app))
            await pilot.press("escape")


async def test_what_rotation_took_uncounted_is_said(run_app, long_log):
    long_log.insert(0, LogGap(long_log[0].at_ns, "rotated away", None))
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total == 10)
        await pilot.press("l", "slash", *"thread", "enter")
        await until(pilot, lambda: "the log begins here; older ones rotated away, not counted" in screen_text(app))


async def test_what_rotation_may_have_taken_is_said_where_the_backend_does_not_know(run_app, long_log):
    long_log.append(LogGap(long_log[0].at_ns, MAYBE_ROTATED))
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total == 10)
        await pilot.press("l", "slash", *"thread", "enter")
        said = "older ones may have been rotated away: the engine does not count them"
        await until(pilot, lambda: said in screen_text(app))
        assert "the log begins here" not in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_a_search_has_not_seen_is_told_whole_on_each_screen(run_app, long_log, size):
    long_log.insert(0, LogGap(long_log[0].at_ns, "rotated away", 123_456_789))
    async with run_app(size=size) as (app, pilot):
        await pilot.press("l")
        await until(pilot, lambda: logs_of(app).view.total == 10)
        await pilot.press("slash", *"needle of many letters", "enter")
        await until(pilot, lambda: "the log begins here; 123,456,789 lines rotated away" in screen_text(app))
        assert "match 0/0" in screen_text(app)


async def test_what_has_no_room_is_counted_in_a_search_and_at_the_beginning(run_app, fake, long_log):
    fake._logs[AGENT][:] = [
        line(NOW - 3000 + at / 8, f"line {at}{' needle' * (at in (3, 500))}{'x' * 1000}\n") for at in range(8000)
    ]
    config = Config(backend="fake", tui=TuiOptions(log_memory_mib=1, stats_interval_s=3600.0))
    async with run_app(config=config) as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 10)
        await pilot.press("l", "slash", *"needle", "enter")
        await until(pilot, lambda: "match 0/0: needle  2 more in " in screen_text(app))
        held = len(view.store)
        assert f"2 more in {8000 - held:,} older lines not in memory" in screen_text(app)
        await pilot.press("escape", "g")
        await until(pilot, lambda: "the log begins here" in screen_text(app))
        found = texts(view)
        assert found[0].startswith("line 0x")
        [gap] = [text for text in found if text.startswith("[")]
        missing = 8000 - (len(found) - 1)
        assert gap == f"[{missing:,} lines lost: memory had no room for it: tui.log_memory_mib]"
        assert view.store.size_bytes <= 2 * view.store.cap_bytes
        await pilot.press("slash", *"needle", "enter")
        await until(pilot, lambda: f"{missing:,} lines of a gap not looked at" in screen_text(app))


async def test_a_search_that_cannot_look_at_older_lines_says_so(run_app, fake, long_log):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total == 10)
        fake.faults.verbs["logs"] = BackendUnreachable("the engine is gone")
        await pilot.press("l", "slash", *"needle", "enter")
        await until(
            pilot, lambda: "match 0/0: needle  older lines could not be read: the engine is gone" in screen_text(app)
        )


async def test_a_filter_holds_for_the_log_it_was_typed_for(run_app, fake, long_log):
    fake._logs[BUILDER] = [line(NOW, "built\n")]
    async with run_app() as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 10)
        await pilot.press("l", "ampersand", *"nowhere", "enter")
        await until(pilot, lambda: "No line of 1,000 passes the filter nowhere" in screen_text(app))
        assert "filtered from 1,000: nowhere" in screen_text(app)
        await pilot.press("tab")
        app.main.focus_list()
        app.main.table.move_to(ref(BUILDER))
        await until(pilot, lambda: texts(view) == ["built"])
        assert "filtered" not in screen_text(app)
        app.main.table.move_to(ref(AGENT))
        await until(pilot, lambda: "filtered from 1,000: nowhere" in screen_text(app))


async def test_escape_ends_the_search_then_the_filter_then_leaves_the_log(run_app, long_log):
    async with run_app() as (app, pilot):
        view = logs_of(app).view
        await until(pilot, lambda: view.total == 10)
        await pilot.press("l", "ampersand", *"line", "enter", "slash", *"needle", "enter", "slash", "x")
        await pilot.press("escape")
        assert view.patterns == ("needle", "line"), "the line that is typed in goes first"
        await pilot.press("escape")
        assert view.patterns == (None, "line")
        await pilot.press("escape")
        assert view.patterns == (None, None)
        assert view.has_focus
        await pilot.press("escape")
        assert app.main.table.has_focus


@pytest.mark.parametrize("tab", [tab for _, tab in tab_digits() if tab != "shell"])
async def test_in_every_tab_the_digits_are_the_tabs_of_the_row(run_app, tab):
    keys = dict(map(reversed, tab_digits()))
    async with run_app() as (app, pilot):
        for _, other in tab_digits():
            if other != "shell":
                await pilot.press(keys[tab])
                await until(pilot, lambda: app.main.detail.tab == tab and not app.main.detail.going_in)
                await pilot.press(keys[other])
                await until(pilot, lambda other=other: app.main.detail.tab == other)
