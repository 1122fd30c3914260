"""What keys do: each flow from the key to the backend and back to the screen."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, NS, fleet, ref, sandbox, screen_text, until
from textual import events
from textual.screen import Screen
from textual.widgets import Button, Input, OptionList

from sandbox_console.errors import BackendError, BackendUnreachable
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Status
from sandbox_console.policy.rules import Rules
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.detail.tab_bar import TabBar
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen, TooSmallScreen
from sandbox_console.tui.form.form_rows import FormRow
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.terminal.terminal import TerminalView


def on(app, kind):
    return lambda: isinstance(app.screen, kind)


def names(app):
    return [app.fleet.sandboxes[row.key].name for row in app.main.table.rows]


async def select(app, pilot, id_):
    app.main.table.move_to(ref(id_))
    await pilot.pause()


# --- the list


async def test_the_list_shows_every_state_and_follows_changes(run_app, fake):
    async with run_app() as (app, pilot):
        text = screen_text(app)
        for words in ("● running", "■ exited", "? lost", "out of memory", "exit 3", "1 host", "theirs ◇"):
            assert words in text
        await select(app, pilot, "dddddddddddd")
        await fake.tell(_changed(sandbox("abababababab", "newcomer")))
        await until(pilot, lambda: "newcomer" in names(app))
        assert app.main.selected.name == "done", "the cursor stays on its sandbox"


def _changed(one):
    from sandbox_console.model.event import Changed

    return Changed(one)


async def test_samples_are_asked_for_running_rows_in_view_only(run_app, fake):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        assert {app.fleet.sandboxes[one].status for one in app.fleet.stats} == {Status.RUNNING}
        assert "187%" in screen_text(app)


async def test_the_filter_hides_as_one_types_and_escape_clears(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("slash", *"agent")
        await until(pilot, lambda: names(app) == ["agent"])
        assert "1 of 6   hidden: 5 by the filter" in screen_text(app)
        await pilot.press("enter")
        assert isinstance(app.focused, FleetTable)
        await pilot.press("slash", *"xyz")
        await until(pilot, lambda: not names(app))
        assert "Nothing matches xyz" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: len(names(app)) == 6)
        assert isinstance(app.focused, FleetTable)


async def test_shift_and_a_letter_sorts(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("N")
        assert names(app) == sorted(names(app))
        await pilot.press("N")
        assert names(app) == sorted(names(app), reverse=True)


# --- empty, dead, unwritable, small


async def test_no_sandboxes_says_how_to_make_one(run_app):
    async with run_app(FakeBackend(), ready=False) as (app, pilot):
        await until(pilot, lambda: "Press n to create one" in screen_text(app))


async def test_a_dead_backend_is_named_with_its_reason(run_app):
    dead = FakeBackend(dead=True, reason="connection refused")
    async with run_app(dead, ready=False) as (app, pilot):
        await until(pilot, lambda: "No backend answers" in screen_text(app))
        assert "connection refused" in screen_text(app)


async def test_a_backend_that_dies_leaves_its_rows_marked(run_app, fake):
    async with run_app() as (app, pilot):
        await fake.die("socket closed")
        await until(pilot, lambda: "✕ fake unreachable: socket closed" in screen_text(app))
        assert "? running" in screen_text(app)
        await until(pilot, lambda: "? 6 stale" in screen_text(app).splitlines()[0])
        assert "3 running" not in screen_text(app), "nobody knows"
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "▾ fake  6  ? 6 stale" in screen_text(app))
        await fake.revive()
        await until(pilot, lambda: "● running" in screen_text(app))
        await until(pilot, lambda: "▾ fake  6  ● 3 running" in screen_text(app))


async def test_an_unwritable_audit_log_is_a_banner_and_nothing_is_done(run_app, fake, tmp_path):
    (tmp_path / "home" / "state").mkdir(parents=True)
    (tmp_path / "home" / "state" / "audit").write_text("a file where the folder should be")
    async with run_app() as (app, pilot):
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: "AUDIT LOG UNWRITABLE" in screen_text(app))
        assert fake.permits == []
        assert app.main.selected.status is Status.RUNNING


async def test_too_small_covers_the_app_and_gives_it_back(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.resize_terminal(50, 12)
        await until(pilot, on(app, TooSmallScreen))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: app.screen is app.main)


async def test_too_small_lays_nothing_out_again_and_again(run_app, monkeypatch):
    laid_out = []
    monkeypatch.setattr(Screen, "_refresh_layout", lambda self, *a, _real=Screen._refresh_layout, **k: (
        laid_out.append(type(self)), _real(self, *a, **k)
    ))  # fmt: skip
    async with run_app() as (app, pilot):
        await pilot.press("3")
        for size in ((3, 10), (3, 60)):
            await pilot.resize_terminal(*size)
            await until(pilot, on(app, TooSmallScreen))
            await pilot.pause(0.2)
            laid_out.clear()
            await pilot.pause(0.5)
            assert len(laid_out) < 5, "two scroll bars ask for the same cells"
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: app.screen is app.main and "ASKED" in screen_text(app))


async def test_too_small_from_the_start_and_with_a_page_that_came_over_it(run_app):
    async with run_app(size=(50, 12), ready=False) as (app, pilot):
        await until(pilot, on(app, TooSmallScreen))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: app.screen is app.main)
        await pilot.resize_terminal(50, 12)
        await until(pilot, on(app, TooSmallScreen))
        app.action_backends()
        await until(pilot, on(app, TextScreen))
        await pilot.resize_terminal(80, 24)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_the_cursor_stays_where_it_was_put_when_an_action_ends(run_app, fake):
    go, stop = asyncio.Event(), fake.stop

    async def slow(*more):
        await go.wait()
        await stop(*more)

    fake.stop = slow
    async with run_app() as (app, pilot):
        await select(app, pilot, "aaaaaaaaaaaa")
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.work.in_flight)
        await select(app, pilot, "bbbbbbbbbbbb")
        go.set()
        await until(pilot, lambda: any("agent stopped" in note.message for note in app._notifications))
        assert app.main.selected.name == "builder", "the next key would have been for another sandbox"


async def test_a_new_one_is_gone_to_but_not_out_of_the_detail(run_app, fake):
    async with run_app() as (app, pilot):
        await select(app, pilot, "bbbbbbbbbbbb")
        app.main.select_new(ref("cccccccccccc"), in_place=False)
        assert app.main.selected.name == "crashed"
        await pilot.press("l")
        await until(pilot, lambda: app.main.detail.has_focus_within)
        app.main.select_new(ref("dddddddddddd"), in_place=False)
        assert app.main.selected.name == "crashed"
        app.main.select_new(ref("dddddddddddd"), in_place=True)
        assert app.main.selected.name == "done"


async def test_a_page_that_names_a_sandbox_goes_to_it_or_says_why_not(run_app):
    async with run_app() as (app, pilot):
        app.main.fleet.set_filter("state=running")
        await until(pilot, lambda: len(app.main.table.rows) == 3)
        for id_, words in (("dddddddddddd", "done is hidden"), ("000000000000", "no longer exists")):
            app.main.go_to(ref(id_))
            await until(pilot, lambda words=words: any(words in note.message for note in app._notifications))
        before = app.main.table.cursor_key
        app.main.fleet.set_filter("")
        await until(pilot, lambda: len(app.main.table.rows) == 6)
        assert app.main.table.cursor_key == before, "it was not waited for"


# --- the detail


async def test_logs_follow_the_selected_row_and_only_it(run_app, fake):
    async with run_app() as (app, pilot):
        pane = app.main.detail.query_one("LogsPane")
        await until(pilot, lambda: pane.view.total == 9)
        await fake.say(ref("aaaaaaaaaaaa"), LogRecord(int(NOW * NS), Stream.STDOUT, b"late line\n"))
        await until(pilot, lambda: "late line" in screen_text(app))
        await select(app, pilot, "bbbbbbbbbbbb")
        await until(pilot, lambda: pane.following and pane.view.total == 0)
        await fake.say(ref("aaaaaaaaaaaa"), LogRecord(int(NOW * NS) + 1, Stream.STDOUT, b"of another\n"))
        await fake.say(ref("bbbbbbbbbbbb"), LogRecord(int(NOW * NS), Stream.STDOUT, b"mine\n"))
        await until(pilot, lambda: "mine" in screen_text(app))
        assert "of another" not in screen_text(app)


async def test_logs_that_were_left_go_on_without_repeating(run_app, fake):
    async with run_app() as (app, pilot):
        pane = app.main.detail.query_one("LogsPane")
        await until(pilot, lambda: pane.view.total == 9)
        await pilot.press("y")
        await until(pilot, lambda: not pane.following)
        await fake.say(ref("aaaaaaaaaaaa"), LogRecord(int(NOW * NS), Stream.STDOUT, b"meanwhile\n"))
        await pilot.press("l")
        await until(pilot, lambda: pane.view.total == 10)


async def test_ctrl_s_saves_the_raw_log(run_app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with run_app() as (app, pilot):
        pane = app.main.detail.query_one("LogsPane")
        await until(pilot, lambda: pane.view.total == 9)
        await pilot.press("l", "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("enter")
        await until(pilot, lambda: list(tmp_path.glob("agent-aaaaaaaaaaaa-*.log")))
        [file] = tmp_path.glob("*.log")
        await until(pilot, lambda: file.read_bytes().startswith(b"step 0 of 9\nstep 1"))


async def test_the_spec_shows_asked_effective_and_what_is_not_enforced(run_app, fake):
    fake._capabilities = Capabilities(
        frozenset(Capability) - {Capability.SNAPSHOT}, {Capability.SNAPSHOT: "no such file system"}
    )
    async with run_app() as (app, pilot):
        await pilot.press("y")
        await until(pilot, lambda: "not enforced" in screen_text(app))
        for words in ("0.5", "acme.org:80,443", "by the gateway", "no cgroup is writable", "no such file system"):
            assert words in screen_text(app) or words == "no such file system"
        assert "no such file system" in str(app.main.detail.query_one("#spec-text").content)


async def test_the_audit_tab_shows_this_sandboxes_rows_live(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("9")
        await until(pilot, lambda: "No audit rows" in screen_text(app))
        await pilot.press("escape", "x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: "stop" in screen_text(app) and "● ok" in screen_text(app).split("OUTCOME")[-1])
        await pilot.press("9", "enter")
        await until(pilot, on(app, TextScreen))
        assert "user:tester" in screen_text(app)


async def test_at_80x24_enter_opens_the_detail_and_escape_goes_back(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        assert not app.main.detail.display
        await pilot.press("enter")
        await until(pilot, lambda: app.main.detail.display)
        assert not app.main.table.is_on_screen or not app.main.query_one("#list").display
        await pilot.press("escape")
        await until(pilot, lambda: not app.main.detail.display)
        assert isinstance(app.focused, FleetTable)


# --- shells


async def test_a_shell_stays_open_while_others_are_looked_at(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        view = app.focused
        await pilot.press(*"hello")
        await until(pilot, lambda: "hello" in view.screen_text())
        await pilot.press("ctrl+right_square_bracket")
        await until(pilot, lambda: isinstance(app.focused, FleetTable))
        await select(app, pilot, "bbbbbbbbbbbb")
        await until(pilot, lambda: "1 more open" in screen_text(app))
        assert "agent ❯_" in screen_text(app)
        await select(app, pilot, "aaaaaaaaaaaa")
        await pilot.press("s")
        await until(pilot, lambda: app.focused is view)
        assert app.main.detail.shells.open_count == 1


async def test_a_shell_says_which_secret_it_is_without(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("j")
        await until(pilot, lambda: app.main.selected.name == "builder")
        await pilot.press("s")
        await until(pilot, lambda: "shell open, without TOKEN" in screen_text(app))
        words = "TOKEN cannot be read here: it is not handed over, and not masked where shown."
        await until(pilot, lambda: any(words in told for _, _, told in app.message_log))


async def test_the_end_of_a_shell_is_told_with_its_code(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        await pilot.press(*"exit 3", "enter")
        await until(pilot, lambda: "ended: exit 3" in screen_text(app))
        assert app.main.detail.shells.open_count == 0
        await until(pilot, lambda: not isinstance(app.focused, TerminalView))


async def test_a_shell_in_what_does_not_run_is_refused_with_the_reason(run_app):
    async with run_app() as (app, pilot):
        await select(app, pilot, "dddddddddddd")
        await pilot.press("s")
        await until(pilot, lambda: "is exited, not running" in screen_text(app))


# --- lifecycle


async def test_stop_asks_with_the_focus_on_cancel(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        assert app.focused.id == "cancel"
        for words in ("aaaaaaaaaaaa", "$ sandbox-console stop fake/local/aaaaaaaaaaaa"):
            assert words in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert fake.permits == []
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.main.selected.status is Status.EXITED)


async def test_kill_takes_the_id(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("ctrl+k")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press(*"agent", "enter")
        assert app.screen.query_one("#agree", Button).disabled
        assert fake.permits == []
        app.screen.query_one(Input).value = "aaaaaaaaaaaa"
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: fake.sandboxes["aaaaaaaaaaaa"].status is Status.EXITED)


async def test_what_others_made_takes_its_id_for_a_stop_too(run_app, fake):
    async with run_app() as (app, pilot):
        await select(app, pilot, "eeeeeeeeeeee")
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        assert "was not made by this console" in screen_text(app)
        await pilot.press("y")
        assert fake.permits == []
        app.screen.query_one(Input).value = "eeeeeeeeeeee"
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: fake.sandboxes["eeeeeeeeeeee"].status is Status.EXITED)


async def test_start_restart_pause_resume_and_remove(run_app, fake):
    async with run_app() as (app, pilot):
        for id_, key, done in (
            ("dddddddddddd", "t", lambda: fake.sandboxes["dddddddddddd"].status is Status.RUNNING),
            ("dddddddddddd", "p", lambda: fake.sandboxes["dddddddddddd"].status is Status.PAUSED),
            ("dddddddddddd", "p", lambda: fake.sandboxes["dddddddddddd"].status is Status.RUNNING),
            ("aaaaaaaaaaaa", "r", lambda: len(fake.permits) == 5),
            ("cccccccccccc", "ctrl+d", lambda: "cccccccccccc" not in fake.sandboxes),
        ):
            await select(app, pilot, id_)
            await pilot.press(key)
            await until(pilot, on(app, ConfirmScreen))
            await pilot.press("y")
            await until(pilot, done)
            await until(pilot, lambda: not app.work.in_flight)


async def test_a_failure_is_told_with_its_hint_and_kept(run_app, fake):
    fake.faults.verbs["stop"] = BackendError("the engine is busy", hint="try again")
    async with run_app() as (app, pilot):
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: "the engine is busy" in screen_text(app))
        await pilot.press("v")
        await until(pilot, on(app, TextScreen))
        assert "stop agent: the engine is busy try again (audit row 1)" in " ".join(screen_text(app).split())


async def test_read_only_is_a_badge_and_a_denial_on_record(run_app, fake):
    async with run_app(read_only=True) as (app, pilot):
        assert "READ-ONLY" in screen_text(app)
        await pilot.press("x")
        await until(pilot, lambda: "the console is read-only" in screen_text(app))
        assert not on(app, ConfirmScreen)()
        assert fake.permits == []
        [entry] = await app.service.history(AuditQuery())
        assert entry.outcome == "denied"


async def test_the_menu_greys_what_cannot_be_done_with_the_reason(run_app, fake):
    fake._capabilities = Capabilities(frozenset(Capability) - {Capability.PAUSE}, {Capability.PAUSE: "no freezer"})
    async with run_app() as (app, pilot):
        await pilot.press("m")
        await until(pilot, on(app, MenuScreen))
        assert "no freezer" in screen_text(app)
        assert app.screen.query_one(OptionList).get_option("verb('pause')").disabled
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))


async def test_the_palette_has_every_action(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("ctrl+p")
        await until(pilot, lambda: "Stop agent" in screen_text(app))
        await pilot.press(*"messag", "enter")
        await until(pilot, on(app, TextScreen))


async def test_help_names_the_keys_that_work_here(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, on(app, TextScreen))
        for words in ("In the list", "Everywhere on this screen", "Ctrl+d", "Remove"):
            assert words in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


# --- the form


async def fill(app, pilot, **texts):
    for name, text in texts.items():
        row_of(app, name).put(text)
    await pilot.pause()


def row_of(app, name):
    return next(row for row in app.screen.query(FormRow) if row.field.name == name)


async def test_create_shows_errors_beside_their_fields_and_keeps_what_was_typed(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        wrong = {"name": "bad name!", "memory_mib": "512 apples", "cpus": "0", "egress": "https://x.io/y", "secrets": "NOPE",
                 "workspace": "relative", "labels": "team", "image": ""}  # fmt: skip
        await fill(app, pilot, **wrong)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(app.screen.query("FormRow.-wrong")) == len(wrong))
        assert "is not a size" in screen_text(app)
        assert {name: row_of(app, name).text for name in wrong} == wrong
        assert app.focused.id == "field-name"
        assert fake.permits == []


async def test_create_makes_it_and_selects_it(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await pilot.press(*"fresh")
        await fill(app, pilot, image="python:3.12", cpus="0.5", memory_mib="64M", labels="team=red")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is app.main and app.main.selected.name == "fresh")
        made = app.main.selected
        assert (made.status, made.spec.memory_mib, made.labels) == (Status.RUNNING, 64, {"team": "red"})


async def test_create_that_fails_says_why_in_the_form(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, name="agent", image="python:3.12")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "the name 'agent' is taken" in screen_text(app))
        assert isinstance(app.screen, FormScreen)
        assert app.screen.query_one("#field-name", Input).value == "agent"


async def test_closing_the_form_does_not_cancel_the_create(run_app, fake):
    fake.faults.verbs["create"] = 0.3
    async with run_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, name="slow", image="python:3.12")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.work.in_flight)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        await until(pilot, lambda: app.main.selected is not None and app.main.selected.name == "slow")


async def test_edit_shows_the_plan_and_a_live_change_goes_through(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, cpus="2")
        await until(pilot, lambda: "● live" in screen_text(app))
        await fill(app, pilot, image="python:3.13")
        await until(pilot, lambda: "↻ recreate" in screen_text(app))
        await fill(app, pilot, image="python:3.12")
        await until(pilot, lambda: "Applied live" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        assert fake.permits == []
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main and fake.sandboxes["aaaaaaaaaaaa"].spec.cpus == 2)


async def test_edit_that_the_backend_cannot_do_is_refused_beside_the_field(run_app, fake):
    fake._capabilities = Capabilities(
        frozenset(Capability) - {Capability.EGRESS_ALLOWLIST}, {Capability.EGRESS_ALLOWLIST: "there is no gateway"}
    )
    async with run_app() as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, egress="example.org")
        await until(pilot, lambda: "✕ unsupported" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "there is no gateway" in screen_text(app))
        assert fake.permits == []


async def test_a_failed_recreate_leaves_the_old_one_and_says_so(run_app, fake):
    fake.faults.verbs["create"] = BackendError("no space left")
    async with run_app() as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, image="python:3.13")
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: "The old sandbox is as it was: running" in " ".join(screen_text(app).split()))
        assert fake.sandboxes["aaaaaaaaaaaa"].image == "python:3.12"
        assert not app._notifications, "a message would say it again, over the buttons"
        assert any("no space left" in text for _, _, text in app.message_log)


async def test_a_policy_that_asks_is_answered_in_a_dialog(run_app, fake):
    async with run_app(config=Config(backend="fake", policy=Rules(ask=("create",)))) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, name="asked", image="python:3.12")
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        assert "the policy asks before create" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: any(one.name == "asked" for one in fake.sandboxes.values()))


# --- quitting


async def test_quit_is_at_once_when_nothing_is_lost(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running or app._exit


@pytest.mark.parametrize("what", ["action", "shell"])
async def test_quit_asks_where_something_would_end(run_app, fake, what):
    fake.faults.verbs["stop"] = 30.0
    async with run_app() as (app, pilot):
        if what == "action":
            await pilot.press("x")
            await until(pilot, on(app, ConfirmScreen))
            await pilot.press("y")
            await until(pilot, lambda: "↻ stopping" in screen_text(app))
        else:
            await pilot.press("s")
            await until(pilot, lambda: isinstance(app.focused, TerminalView))
            await pilot.press("ctrl+right_square_bracket")
            await until(pilot, lambda: isinstance(app.focused, FleetTable))
        await pilot.press("q")
        await until(pilot, on(app, ConfirmScreen))
        assert "Quit?" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


def test_the_scene_has_all_kinds():
    assert {one.status for one in fleet()} >= {Status.RUNNING, Status.EXITED, Status.LOST}


async def test_what_is_typed_while_a_shell_opens_goes_to_it(run_app, fake):
    fake.faults.verbs["shell"] = 0.5
    async with run_app() as (app, pilot):
        await pilot.press("s", *"hello")
        app.post_message(events.Paste(" and pasted"))
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        await until(pilot, lambda: "hello and pasted" in app.focused.screen_text())


async def test_a_shell_that_opens_behind_another_tab_takes_no_keys(run_app, fake):
    fake.faults.verbs["shell"] = 0.5
    async with run_app() as (app, pilot):
        detail = app.main.detail
        await pilot.press("s")
        await until(pilot, lambda: any(one.opening for one in detail.shells.open))
        detail.post_message(TabBar.Picked("spec"))  # as a click does
        await until(pilot, lambda: detail.shells.open_count == 1)
        await pilot.pause(0.1)
        assert detail.tab == "spec"
        assert not detail.shells.in_terminal
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))


async def test_what_is_typed_past_a_shells_end_does_nothing(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        await pilot.press(*"exit 3", "enter")
        await until(pilot, lambda: app.main.detail.shells.open_count == 0)
        await pilot.press("ctrl+d", "n", "e")
        assert app.screen is app.main
        await until(pilot, lambda: not isinstance(app.focused, TerminalView))


async def test_logs_come_back_with_their_backend(run_app, fake, monkeypatch):
    monkeypatch.setattr("sandbox_console.tui.logs.log_feed.RETRY_S", 0.1)
    async with run_app() as (app, pilot):
        await until(pilot, lambda: logs_of(app).view.total)
        await fake.die("connection refused")
        await select(app, pilot, "bbbbbbbbbbbb")
        await until(pilot, lambda: "connection refused" in screen_text(app))
        await fake.revive()
        await until(pilot, lambda: logs_of(app).following and not logs_of(app).query_one("#log-note").display)


def logs_of(app):
    return app.main.query_one("#logs", LogsPane)


@pytest.mark.parametrize(
    ("id_", "fault", "words"),
    [
        ("aaaaaaaaaaaa", None, "FOLLOWING [9/9]"),
        ("cccccccccccc", None, "NOT RUNNING: exited [0/0]"),
        ("bbbbbbbbbbbb", BackendError("no such log"), "REFUSED: no such log [0/0]"),
        ("bbbbbbbbbbbb", BackendUnreachable("no answer"), "WAITING for its backend [0/0]"),
    ],
)
async def test_the_log_says_follows_only_where_it_does(run_app, fake, id_, fault, words):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: "FOLLOWING [9/9]" in screen_text(app))
        if fault:
            fake.faults.verbs["logs"] = fault
        await select(app, pilot, id_)
        await until(pilot, lambda: words in screen_text(app))


async def test_the_log_of_a_sandbox_that_ends_and_starts_again_says_so(run_app, fake):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: "FOLLOWING [9/9]" in screen_text(app))
        one = fake.sandboxes["aaaaaaaaaaaa"]
        await fake._put(structs.replace(one, status=Status.EXITED))
        await pilot.press("l", "g")
        await until(pilot, lambda: "NOT RUNNING: exited" in screen_text(app) and "PAUSED" not in screen_text(app))
        await fake._put(structs.replace(one, started_at=NOW))
        await until(pilot, lambda: "PAUSED" in screen_text(app))
        await pilot.press("G")
        await until(pilot, lambda: "FOLLOWING [9/9]" in screen_text(app))


async def test_ctrl_c_says_in_plain_words_how_to_quit(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "q quits." in screen_text(app))
        assert "[b]" not in screen_text(app)


async def test_the_question_before_quitting_counts_one_shell_as_one(run_app, monkeypatch):
    async with run_app() as (app, pilot):
        monkeypatch.setattr(type(app.main.detail.shells), "open_count", 1)
        await pilot.press("q")
        await until(pilot, lambda: "1 open shell: ended." in screen_text(app))


async def test_several_lines_pasted_into_a_shell_are_asked_about_once(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        view = app.focused
        app.post_message(events.Paste("echo one\necho two"))
        await until(pilot, on(app, ConfirmScreen))
        assert "echo two" in screen_text(app)
        assert "one" not in view.screen_text()
        await pilot.press("escape")
        await until(pilot, lambda: app.focused is view)
        app.post_message(events.Paste("echo three\necho four\n"))
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: "four" in view.screen_text())
        assert "one" not in view.screen_text()
        assert app.screen is app.main
