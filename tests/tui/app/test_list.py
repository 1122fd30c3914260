"""The list in the app: each key, each command, what is kept, and what the header says of it."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, ref, sandbox, screen_text, until
from textual import events
from textual.keys import _character_to_key
from textual.widgets import Input

from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.event import Changed
from sandbox_console.model.sandbox import SandboxRef, Stats, Status
from sandbox_console.service import Config
from sandbox_console.service.config import TuiOptions, ViewOptions
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.fleet.columns import BY_KEY
from sandbox_console.tui.fleet.columns_screen import ColumnsScreen
from sandbox_console.tui.fleet.command_parser import COMMANDS
from sandbox_console.tui.fleet.groups import GroupKey
from sandbox_console.tui.main.command_runner import command_help
from sandbox_console.tui.widgets.table.table import FleetTable


def names(app):
    return [app.fleet.sandboxes[row.key].name for row in app.main.table.rows if isinstance(row.key, SandboxRef)]


def heads(app):
    return [row.key.value for row in app.main.table.rows if isinstance(row.key, GroupKey)]


async def say(app, pilot, line):
    await pilot.press("colon")
    await until(pilot, lambda: app.main.fleet.command_line.input.has_focus)
    app.main.fleet.command_line.input.value = line
    await pilot.press("enter")
    await pilot.pause()


# --- the cursor


@pytest.mark.parametrize("moved", [False, True])
async def test_the_cursor_is_on_top_until_all_have_answered_or_it_is_moved(run_app, fake, moved):
    new = structs.replace(sandbox("9", "newest"), ref=ref("9", "late"), created_at=NOW)
    late = FakeBackend([new], name="late", clock=lambda: NOW)
    opened, go = late.open, asyncio.Event()

    async def slow(*more):
        await go.wait()
        return await opened(*more)

    late.open = slow
    async with run_app(fake, late) as (app, pilot):
        await until(pilot, lambda: len(names(app)) == 6)
        if moved:
            await pilot.press("j")
        before = app.main.selected.name
        go.set()
        await until(pilot, lambda: names(app)[0] == "newest")
        await until(pilot, lambda: app.main.ticks > 4)
        assert app.main.selected.name == (before if moved else "newest")
        await late.tell(Changed(structs.replace(new, ref=ref("8", "late"), name="later", created_at=NOW + 1)))
        await until(pilot, lambda: names(app)[0] == "later")
        assert app.main.selected.name == (before if moved else "newest"), "from then on it stays on its row"


# --- filter


async def test_a_bad_filter_says_where_and_the_rows_stay(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("slash", *"state=exited")
        await until(pilot, lambda: len(names(app)) == 2)
        await pilot.press(*" zz")
        app.main.fleet.filter_line.input.value = "state=exited cpuu>80"
        await until(pilot, lambda: "no field 'cpuu': did you mean cpu?" in screen_text(app))
        app.main.fleet.filter_line.input.value = "state=exited ("
        await until(pilot, lambda: "unterminated subpattern" in screen_text(app))
        caret, typed = (next(line for line in screen_text(app).splitlines() if sign in line) for sign in ("^ ", " / "))
        assert caret.index("^") == typed.index("(")
        app.main.fleet.filter_line.input.value = "state=exited"
        await until(pilot, lambda: "unterminated" not in screen_text(app))
        assert names(app) == ["crashed", "done"]


async def test_what_begins_a_field_finds_nothing_once_the_line_is_left(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("slash", *"mem")
        await until(pilot, lambda: app.main.fleet.shown.text == "mem")
        assert len(names(app)) == 6, "no name has it, but it may become mem>80"
        await pilot.press("enter")
        await until(pilot, lambda: "Nothing matches mem" in screen_text(app))
        await pilot.press("asterisk")
        assert not app.main.marked, "all filtered is none, not the fleet"
        await say(app, pilot, "filter host")
        await until(pilot, lambda: "Nothing matches host" in screen_text(app))


@pytest.mark.parametrize("typed", ["/name=agent", "/enamel", ":docker"])
async def test_what_is_typed_ahead_or_pasted_goes_to_the_line(run_app, typed):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: app.main.table.has_focus)
        for character in typed:
            app.post_message(events.Key(_character_to_key(character), character))
        line = app.main.query_one("#filter" if typed[0] == "/" else "#command", Input)
        await until(pilot, lambda: line.value == typed[1:])
        await pilot.pause()
        assert app.screen is app.main, "a letter was taken for a key of the list"
        assert app.main.state.busy == {}


async def test_the_rows_of_the_last_good_filter_stay(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("slash")
        line = app.main.fleet.filter_line.input
        line.value = "state=exited"
        await until(pilot, lambda: len(names(app)) == 2)
        line.value = "state=exited cpu>"
        await until(pilot, lambda: "a value is missing here" in screen_text(app))
        assert len(names(app)) == 2


async def test_a_filter_on_samples_follows_them(run_app):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await pilot.press("slash")
        app.main.fleet.filter_line.input.value = "cpu>80"
        await until(pilot, lambda: names(app) == ["builder"])


# --- what is hidden


async def test_faults_only_and_ours_only(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("z")
        await until(pilot, lambda: set(names(app)) == {"crashed", "done", "lost"})
        await until(pilot, lambda: "3 of 6   hidden: 3 by faults only" in screen_text(app))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: len(names(app)) == 6)
        await until(pilot, lambda: "hidden" not in screen_text(app))
        await pilot.press("Z")
        await until(pilot, lambda: "theirs" not in names(app))
        await until(pilot, lambda: "5 of 6   hidden: 1 by ours only" in screen_text(app))


async def test_an_empty_list_names_the_way_back(run_app):
    async with run_app(FakeBackend([sandbox("1", "well")], clock=lambda: NOW)) as (app, pilot):
        await pilot.press("z")
        await until(pilot, lambda: "Nothing is wrong." in screen_text(app))
        await until(pilot, lambda: "1 hidden." in screen_text(app) and "z shows what is well too" in screen_text(app))
        await pilot.press("z")
        await until(pilot, lambda: names(app) == ["well"])
        assert app.main.detail.display


# --- groups


async def test_groups_open_and_close_and_keep_the_selection(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await say(app, pilot, "group label:team")
        await until(pilot, lambda: heads(app) == ["blue", "red", ""])
        await until(pilot, lambda: "▾ red  1  ● 1 running" in screen_text(app))
        app.main.select(ref("aaaaaaaaaaaa"))
        await pilot.press("left")
        assert app.main.table.cursor_key == GroupKey("label:team", "red")
        await pilot.press("left")
        await until(pilot, lambda: "agent" not in names(app))
        await until(pilot, lambda: "▸ red  1" in screen_text(app))
        assert app.main.selected is None
        for key in ("right", "enter", "enter"):
            shown = "agent" in names(app)
            await pilot.press(key)
            await until(pilot, lambda shown=shown: ("agent" in names(app)) is not shown)
        await pilot.press("space")
        assert not app.main.marked, "a head is no sandbox"


async def test_the_group_key_goes_round_and_sorting_stays_within(run_app, fake):
    other = FakeBackend([sandbox("9", "alone")], name="other", clock=lambda: NOW)
    other.sandboxes = {ref("9", "other"): structs.replace(sandbox("9", "alone"), ref=ref("9", "other"))}
    async with run_app(fake, other) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.sandboxes) == 7)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: heads(app) == ["fake", "other"])
        await pilot.press("N", "N")
        assert names(app) == ["theirs", "lost", "done", "crashed", "builder", "agent", "alone"]
        for by in ("host", "image", ""):
            await pilot.press("ctrl+g")
            await until(pilot, lambda by=by: app.main.fleet.options.group == by)
        await until(pilot, lambda: not heads(app))


async def test_a_click_on_a_head_selects_and_a_double_click_turns_it(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("ctrl+g")
        await until(pilot, lambda: heads(app) == ["fake"])
        await pilot.click(app.main.table, offset=(4, 1), times=2)
        await until(pilot, lambda: not names(app))


# --- columns


async def test_columns_are_chosen_ordered_sized_and_kept(run_app, tmp_path):
    async with run_app(size=(200, 40)) as (app, pilot):
        await pilot.press("comma")
        await until(pilot, lambda: isinstance(app.screen, ColumnsScreen))
        await until(pilot, lambda: app.screen.query_one(FleetTable).move_to("host"))
        await pilot.press("space")
        assert app.main.fleet.choice.chosen.keys[-1] == "host"
        await pilot.press("shift+up", "K", "J")
        assert app.main.fleet.choice.chosen.keys[-2:] == ("host", "exit")
        await pilot.press("right", "plus", "left")
        assert dict(app.main.fleet.choice.chosen.widths)["host"] == BY_KEY["host"].min_width + 1
        await pilot.press("g", "space")
        assert app.main.fleet.choice.chosen.keys[0] == "state", "it is always there"
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert "host" in app.main.table.shown_columns
    kept = json.loads((tmp_path / "home" / "state" / "columns.json").read_text())
    assert kept["columns"][-2:] == ["host", "exit"]
    async with run_app(size=(200, 40)) as (app, pilot):
        assert "host" in app.main.table.shown_columns
        await pilot.press("comma")
        await until(pilot, lambda: isinstance(app.screen, ColumnsScreen))
        await pilot.press("u")
        assert "host" not in app.main.fleet.choice.chosen.keys


async def test_columns_by_the_mouse(run_app):
    async with run_app(size=(120, 40)) as (app, pilot):
        await pilot.press("comma")
        await until(pilot, lambda: isinstance(app.screen, ColumnsScreen))
        await until(pilot, lambda: app.screen.query_one(FleetTable).move_to("image"))
        for button, holds in (
            ("shown", lambda: "image" not in app.main.fleet.choice.chosen.keys),
            ("shown", lambda: app.main.fleet.choice.chosen.keys[-1] == "image"),
            ("up", lambda: app.main.fleet.choice.chosen.keys[-2] == "image"),
            ("wide", lambda: "image" in dict(app.main.fleet.choice.chosen.widths)),
            ("usual", lambda: not app.main.fleet.choice.chosen.widths),
            ("done", lambda: app.screen is app.main),
        ):
            await pilot.click(f"#columns-{button}")
            await until(pilot, holds)


async def test_every_column_is_reached_in_a_narrow_terminal(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        narrow = set(app.main.table.shown_columns)
        assert {"state", "name", "cpu", "memory", "exit"} <= narrow
        await pilot.press("w")
        seen = set(app.main.table.shown_columns)
        await until(pilot, lambda: "›" in screen_text(app))
        for _ in BY_KEY:
            await pilot.press("right")
            seen |= set(app.main.table.shown_columns)
            assert {"state", "name"} <= set(app.main.table.shown_columns)
        assert seen == set(BY_KEY)
        await until(pilot, lambda: "‹" in screen_text(app))
        for _ in BY_KEY:
            await pilot.press("left")
        assert app.main.table.skipped == 0
        await pilot.press("ctrl+w")
        assert set(app.main.table.shown_columns) == narrow


@pytest.mark.parametrize(
    ("key", "column"), [("C", "cpu"), ("M", "memory"), ("A", "age"), ("S", "state"), ("X", "exit"), ("R", "restarts")]
)
async def test_shift_and_a_letter_sorts_with_an_arrow(run_app, key, column):
    async with run_app(size=(160, 40)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await pilot.press(key)
        table = app.main.table
        assert (table.sort_column, table.sort_reverse) == (column, BY_KEY[column].largest)
        await pilot.pause()
        await until(pilot, lambda: f"{BY_KEY[column].title} {'▼' if table.sort_reverse else '▲'}" in screen_text(app))
        if key == "C":
            assert names(app)[:3] == ["builder", "agent", "theirs"]
        await pilot.press(key)
        assert table.sort_reverse is not BY_KEY[column].largest


async def test_equal_ones_stay_where_sorting_put_them(run_app):
    async with run_app(size=(160, 40)) as (app, pilot):
        await pilot.press("N", "N", "S")
        shown = names(app)
        app.main.draw()
        assert names(app) == shown, "the next news would have moved rows under a finger"
        await pilot.click(app.main.table, offset=(14, 0))  # the gap behind STATE
        await until(pilot, lambda: app.main.table.sort_reverse)


async def test_a_cut_name_keeps_its_signs(run_app):
    boxes = [
        sandbox("1" * 12, "a-name-that-is-longer-than-its-column-is-wide", managed=False),
        sandbox("2" * 12, "p\u0430ypal-1"),
        sandbox("3" * 12, "\u4e2d\u6587\u540d\u5b57"),
    ]
    async with run_app(FakeBackend(boxes, clock=lambda: NOW), size=(80, 24)) as (app, pilot):
        await until(pilot, lambda: "… ◇  " in screen_text(app))
        assert "⚠ p\u0430y… (222222…" in screen_text(app)
        assert "… (333333…" in screen_text(app)
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "ypal-1 (222222222222)" in screen_text(app))
        assert "\u4e2d\u6587\u540d\u5b57 (333333333333)" in screen_text(app)


async def test_a_load_near_its_limit_has_a_sign_beside_its_colour(run_app):
    boxes = [sandbox(id_ * 12, f"box-{id_}") for id_ in "123"]
    stats = {"1" * 12: [Stats(NOW, 49.0, 1 << 20)], "2" * 12: [Stats(NOW, 1.0, 210 << 20, 256 << 20)],
             "3" * 12: [Stats(NOW, 1.0, 1 << 20, 256 << 20)]}  # fmt: skip
    async with run_app(FakeBackend(boxes, stats=stats, clock=lambda: NOW), size=(80, 24)) as (app, pilot):
        await until(pilot, lambda: "49%!!" in screen_text(app) and "210M!" in screen_text(app))
        assert "1%!" not in screen_text(app)


# --- commands and views


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("exited", {"crashed", "done"}), ("fake", {"agent", "builder", "crashed", "done", "theirs", "lost"}),
        ("maker compose", {"theirs"}), ("label team=red", {"agent"}), ("image rust:1", {"builder"}),
        ("faults", {"crashed", "done", "lost"}), ("managed", {"agent", "builder", "crashed", "done", "lost"}),
        ("/exit=3", {"done"}), ("exited /done", {"done"}), ("fake label.team=blue", {"done"}), ("bad", {"crashed", "done", "lost"}),
    ],
)  # fmt: skip
async def test_a_command_shows(run_app, line, shown):
    config = Config(backend="fake", tui=TuiOptions(aliases={"bad": "faults"}))
    async with run_app(config=config) as (app, pilot):
        await say(app, pilot, line)
        await until(pilot, lambda: set(names(app)) == shown)
        assert isinstance(app.focused, FleetTable)
        await say(app, pilot, "all")
        await until(pilot, lambda: len(names(app)) == 6)


async def test_a_command_that_is_not_says_the_nearest_and_can_be_mended(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await say(app, pilot, "exitd")
        await until(pilot, lambda: "no command :exitd: did you mean :exited?" in screen_text(app))
        assert app.focused is app.main.fleet.command_line.input
        for line in (
            "sort colour",
            "group bakend",
            "view nope",
            "columns zzz",
            "filter cpu>x",
            "save a b",
            "pulse now",
        ):
            app.main.fleet.command_line.input.value = line
            await pilot.press("enter")
            await until(pilot, lambda line=line: app.main.fleet.command_line.has_class("-wrong"))
            assert app.main.fleet.command_line.input.value == line
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.focused, FleetTable))
        assert len(names(app)) == 6


async def test_tab_completes_and_up_says_again(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("colon", *"exi", "tab")
        assert app.main.fleet.command_line.input.value == "exited"
        await pilot.press("enter")
        await until(pilot, lambda: len(names(app)) == 2)
        await pilot.press("colon", "up")
        assert app.main.fleet.command_line.input.value == "exited"
        await pilot.press("down")
        assert app.main.fleet.command_line.input.value == ""
        await pilot.press("up", "escape", "colon", "up")
        assert app.main.fleet.command_line.input.value == "exited", "a line that was left is begun anew"
        await pilot.press("escape", "colon")
        await pilot.press(*"group label", "tab")
        assert app.main.fleet.command_line.input.value == "group label:team"


async def test_a_view_is_saved_and_shown_in_another_run(run_app):
    async with run_app(size=(160, 40)) as (app, pilot):
        for line in ("exited", "group label:team", "sort -age", "columns age why", "save ends"):
            await say(app, pilot, line)
        await until(pilot, lambda: "view ends" in screen_text(app))
        await say(app, pilot, "views")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await until(pilot, lambda: "state=exited" in screen_text(app))
    async with run_app(size=(160, 40)) as (app, pilot):
        await say(app, pilot, "view ends")
        await until(pilot, lambda: heads(app) == ["blue", ""])
        assert app.main.fleet.filter_line.input.value == "state=exited"
        assert (app.main.table.sort_column, app.main.table.sort_reverse) == ("age", True)
        assert [column.key for column in app.main.table.columns] == ["state", "name", "age", "exit"]
        await pilot.press("slash", "end", *" done")
        await until(pilot, lambda: names(app) == ["done"])
        assert "view ends" not in screen_text(app), "what is shown is another thing now"
        await pilot.press("escape")
        await say(app, pilot, "forget ends")
        await say(app, pilot, "view ends")
        await until(pilot, lambda: "no view 'ends'" in screen_text(app))


async def test_a_view_of_the_config_and_one_that_does_not_hold(run_app):
    views = {"mad": ViewOptions(filter="cpuu>1"), "ours": ViewOptions(managed=True, sort="name")}
    async with run_app(config=Config(backend="fake", tui=TuiOptions(views=views))) as (app, pilot):
        await say(app, pilot, "view ours")
        await until(pilot, lambda: names(app) == ["agent", "builder", "crashed", "done", "lost"])
        await say(app, pilot, "view mad")
        await until(pilot, lambda: "view mad: no field 'cpuu'" in screen_text(app))
        assert len(names(app)) == 5, "nothing has changed"


@pytest.mark.parametrize("line", ["audit", "egress", "pulse", "backends", "messages", "help", "new", "columns"])
async def test_a_command_opens_a_screen(run_app, line):
    async with run_app() as (app, pilot):
        await say(app, pilot, line)
        await until(pilot, lambda: app.screen is not app.main)


async def test_help_lists_every_command(run_app):
    async with run_app() as (app, pilot):
        await say(app, pilot, "?")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert all(f":{name}" in command_help().plain for name in COMMANDS)
        await until(pilot, lambda: ":group FIELD" in screen_text(app))


async def test_q_quits(run_app):
    async with run_app() as (app, pilot):
        await say(app, pilot, "q")
        await until(pilot, lambda: app._exit)


# --- denials


async def test_denials_of_rows_in_view_are_told_and_counted_once(run_app, fake):
    async with run_app(size=(200, 40)) as (app, pilot):
        for at, host in ((NOW - 9, "a.example.com"), (NOW - 5, "evil.example.com")):
            await fake.record(ref("aaaaaaaaaaaa"), EgressRecord(at, "agent", host, 443, allowed=False))
        await until(pilot, lambda: "⊘2 evil.example.com" in screen_text(app))
        app.main.fleet.set_filter("builder")
        await until(pilot, lambda: names(app) == ["builder"])
        app.main.fleet.set_filter("denied>1")
        await until(pilot, lambda: names(app) == ["agent"])
        await until(pilot, lambda: "⊘2 evil.example.com" in screen_text(app))


async def test_denials_of_all_sandboxes_are_known_wherever_the_list_stands(run_app):
    """Of 200, ten were refused something, and most of them are out of view: the filter and the sort have them all."""
    boxes = [sandbox(f"{number:012}", f"box-{number:03}") for number in range(200)]
    wanted = {f"box-{number:03}" for number in range(7, 200, 20)}
    evil = EgressRecord(NOW - 5, "box", "evil.example", 443, allowed=False)
    refused = {one.ref.id: [evil] for one in boxes if one.name in wanted}
    fake = FakeBackend(boxes, clock=lambda: NOW, within=Within(egress=refused))
    lists = []
    really_list = fake.list

    async def counted():
        lists.append(1)
        return await really_list()

    fake.list = counted
    async with run_app(fake, size=(120, 24)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.denied) == 10)
        app.main.fleet.set_filter("denied>0")
        await until(pilot, lambda: set(names(app)) == wanted)
        asked = len(lists)
        await pilot.press("i")
        await until(pilot, lambda: "1 host denied, 10 denials" in screen_text(app))
        await fake.record(boxes[0].ref, EgressRecord(NOW - 1, "box-000", "late.example", 443, allowed=False))
        await until(pilot, lambda: "2 hosts denied, 11 denials" in screen_text(app))
        assert len(lists) == asked, "the inbox asks no backend for its list"


async def test_the_detail_follows_when_the_cursor_rests(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("j")
        await until(pilot, lambda: app.main.detail._sandbox.ref == app.main.table.cursor_key)
        paused = structs.replace(app.main.selected, status=Status.PAUSED)
        app.service.hub.publish(Changed(paused))
        await until(pilot, lambda: app.main.detail._sandbox.status is Status.PAUSED)


async def test_nothing_moves_while_a_filter_is_typed(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("slash")
        assert isinstance(app.focused, Input)
        await until(pilot, lambda: "Enter keeps" in screen_text(app))
        places = {app.main.table.region}
        for text, said in (("(", "^ "), ("nothing-has-this", "Nothing matches"), ("a", "hidden: ")):
            app.main.fleet.filter_line.input.value = text
            await until(pilot, lambda said=said: said in screen_text(app))
            places.add(app.main.table.region)
        assert len(places) == 1


async def test_news_that_come_while_a_page_hides_the_list_are_there_when_it_is_back(run_app):
    one = sandbox("1", "one")
    backend = FakeBackend([one], clock=lambda: NOW)
    async with run_app(backend) as (app, pilot):
        app.action_pulse()
        await until(pilot, lambda: app.screen is not app.main)
        await backend.tell(Changed(structs.replace(one, name="renamed")))
        await until(pilot, lambda: app.fleet.sandboxes[one.ref].name == "renamed")
        assert app.main.table.rows[0].sandbox is one, "it was not drawn unseen"
        app.pop_screen()
        await until(pilot, lambda: "renamed" in screen_text(app))
