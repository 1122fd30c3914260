"""Several shells: tabs, splits, broadcast, names, closing and opening again, by keys."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import ref, screen_text, until
from textual.events import Paste
from textual.widgets import Input

from sandbox_console.errors import BackendError
from sandbox_console.model.guest import GuestProcess
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.shell.shell_box import ShellArea
from sandbox_console.tui.shell.shell_flow import started_by_shells
from sandbox_console.tui.shell.shell_screen import ShellScreen
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

AGENT, BUILDER = ref("aaaaaaaaaaaa"), ref("bbbbbbbbbbbb")
LEAVE = "ctrl+right_square_bracket"


def typing(app):
    return lambda: isinstance(app.screen, ShellScreen) and isinstance(app.focused, TerminalView)


def on(app, kind):
    return lambda: isinstance(app.screen, kind) and app.screen.is_mounted


def shells(app):
    return app.main.detail.shells.open


def texts(app):
    """What each shell shows, in the order of the tabs, without the prompt."""
    return [one.link.view.screen_text().strip() if one.link else one.reason for one in shells(app)]


async def page(pilot, app, count=1):
    """Open the page with a shell, and ``count`` of them side by side."""
    await pilot.press("dollar_sign")
    await until(pilot, typing(app))
    for at in range(1, count):
        await pilot.press(LEAVE, "vertical_line")
        await until(pilot, lambda at=at: shells(app).open_count == at + 1 and typing(app)())


async def test_tabs_and_splits_keep_their_shells_and_show_them_again(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await page(pilot, app)
        await pilot.press(*"one", LEAVE, "vertical_line")
        await until(pilot, lambda: shells(app).open_count == 2 and typing(app)())
        await pilot.press(*"two", LEAVE, "minus")
        await until(pilot, lambda: shells(app).open_count == 3 and typing(app)())
        await pilot.press(*"three", LEAVE, "n")
        await until(pilot, lambda: shells(app).open_count == 4 and typing(app)())
        await pilot.press(*"four")
        await until(pilot, lambda: texts(app) == ["$ one", "$ two", "$ three", "$ four"])
        assert len(shells(app).tabs) == 2
        await pilot.press(LEAVE, "1")
        await until(pilot, lambda: "three" in screen_text(app) and "one" in screen_text(app))
        assert app.focused is shells(app).active.link.view
        await pilot.press(LEAVE, "left")
        await until(pilot, lambda: "one" in app.focused.screen_text())
        await pilot.press(LEAVE, "right")
        await until(pilot, lambda: "two" in app.focused.screen_text())
        await pilot.press(LEAVE, "down")
        await until(pilot, lambda: "three" in app.focused.screen_text())
        await pilot.press(*" more")
        await until(pilot, lambda: "$ three more" in texts(app))
        await pilot.press(LEAVE, "tab")
        await until(pilot, lambda: "four" in app.focused.screen_text())
        await pilot.press(LEAVE, "escape")
        await until(pilot, lambda: app.screen is app.main and isinstance(app.focused, FleetTable))
        assert shells(app).open_count == 4
        await pilot.press("dollar_sign")
        await until(pilot, lambda: typing(app)() and "four" in app.focused.screen_text())
        assert len(shells(app).tabs) == 2, "nothing more was opened"


async def test_a_page_that_is_drawn_while_its_parts_are_away_breaks_nothing(run_app):
    async with run_app() as (app, pilot):
        await page(pilot, app)
        await app.screen.query_one(ShellArea).remove()
        app.screen.draw()


async def test_a_shell_of_the_detail_is_the_same_on_the_page_and_back(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        await pilot.press(*"size", "enter")
        await until(pilot, lambda: "size" in app.focused.screen_text() and "120" in app.focused.screen_text())
        await pilot.press(LEAVE, "dollar_sign")
        await until(pilot, typing(app))
        await until(pilot, lambda: "size" in app.focused.screen_text())
        await pilot.press(*"size", "enter")
        await until(pilot, lambda: "38 120" in app.focused.screen_text())
        await pilot.press(LEAVE, "q", "s")
        await until(pilot, lambda: app.screen is app.main and isinstance(app.focused, TerminalView))
        assert "38 120" in app.focused.screen_text()
        assert shells(app).open_count == 1


async def test_a_broadcast_types_into_the_marked_ones_after_one_question(run_app):
    async with run_app() as (app, pilot):
        await page(pilot, app, 3)
        await pilot.press(LEAVE, "b")
        await until(pilot, lambda: any("needs two marked shells" in told for _, _, told in app.message_log))
        await pilot.press("space", "left")
        await until(pilot, typing(app))
        await pilot.press(LEAVE, "space", "b")
        await until(pilot, on(app, ConfirmScreen))
        assert "Type into 2 shells at once?" in screen_text(app)
        await pilot.press("y")
        await until(pilot, typing(app))
        await until(pilot, lambda: "BROADCAST to 2 shells" in screen_text(app))
        assert app.screen.has_class("-broadcast")
        assert [box.has_class("-receives") for box in app.screen._boxes.values()].count(True) == 2
        await pilot.press(*"hi")
        await until(pilot, lambda: sorted(texts(app)) == ["$", "$ hi", "$ hi"])
        app.post_message(Paste("a\nb"))
        await until(pilot, on(app, ConfirmScreen))
        assert "Paste into 2 shells?" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: sum("you typed: hia" in text for text in texts(app)) == 2)
        await pilot.press(LEAVE, "b", "i", *"alone")
        await until(pilot, lambda: sum("alone" in text for text in texts(app)) == 1)
        assert "BROADCAST" not in screen_text(app)


async def test_a_broadcast_ends_with_the_page_and_with_the_shells(run_app):
    async with run_app() as (app, pilot):
        await page(pilot, app, 2)
        await pilot.press(LEAVE, "asterisk", "b", "y")
        await until(pilot, lambda: shells(app).broadcasting and typing(app)())
        await pilot.press(LEAVE, "escape")
        await until(pilot, lambda: app.screen is app.main)
        assert not shells(app).broadcasting
        await pilot.press("dollar_sign")
        await until(pilot, typing(app))
        await pilot.press(LEAVE, "b", "y")
        await until(pilot, lambda: shells(app).broadcasting and typing(app)())
        await pilot.press(*"exit 3", "enter")
        await until(pilot, lambda: shells(app).open_count == 0)
        assert not shells(app).broadcasting
        await until(pilot, lambda: screen_text(app).count("■ ended: exit 3") == 2)


async def test_one_that_ends_shows_its_exit_and_opens_again_in_its_place(run_app):
    async with run_app() as (app, pilot):
        await page(pilot, app, 2)
        await pilot.press(*"exit 7", "enter", "q", "n")  # typed for the guest, which is gone
        await until(pilot, lambda: "■ ended: exit 7" in screen_text(app))
        assert "Enter opens it again  x closes it" in screen_text(app)
        assert len(shells(app).tabs) == 1
        await until(pilot, lambda: app.focused is None)
        await pilot.press("enter")
        await until(pilot, lambda: shells(app).open_count == 2 and typing(app)())
        await pilot.press(*"back")
        await until(pilot, lambda: sorted(texts(app)) == ["$", "$ back"])


async def test_closing_asks_only_where_something_runs(run_app, fake, monkeypatch):
    running = [GuestProcess(1, 0, command="sleep infinity"), GuestProcess(9, 1, command="/bin/bash")]

    async def processes(ref):
        return running

    monkeypatch.setattr(fake, "processes", processes)
    async with run_app() as (app, pilot):
        await page(pilot, app, 2)
        await pilot.press(LEAVE, "x")
        await until(pilot, lambda: len([*shells(app)]) == 1)
        assert app.screen is not app.main, "the other one is shown"
        await until(pilot, typing(app))
        running.append(GuestProcess(12, 9, command="make -j 4 \x1b[31m"))
        await pilot.press(LEAVE, "x")
        await until(pilot, on(app, ConfirmScreen))
        assert "make -j 4" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ShellScreen))
        assert shells(app).open_count == 1
        await until(pilot, typing(app))
        await pilot.press(LEAVE, "x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main and not [*shells(app)])


async def test_a_full_screen_program_is_asked_about_and_a_failing_backend_too(run_app, fake):
    async with run_app() as (app, pilot):
        await page(pilot, app)
        shells(app).active.link.view.feed(b"\x1b[?1049h")
        await pilot.press(LEAVE, "x")
        await until(pilot, lambda: "A full-screen program runs in it." in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ShellScreen))


async def test_a_tab_gets_a_name_a_bell_a_title_and_all_of_them_are_clean(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await page(pilot, app)
        await pilot.press(LEAVE, "n")
        await until(pilot, lambda: shells(app).open_count == 2 and typing(app)())
        first = next(iter(shells(app)))
        first.link._take(b"\x07\x1b]2;evil\xe2\x80\xae[@click=app.quit]x[/]\x07")
        await until(pilot, lambda: "♪" in screen_text(app).splitlines()[0])
        line = screen_text(app).splitlines()[0]
        assert "\u202e" not in line
        assert "evil" in line
        await pilot.press(LEAVE, "comma")
        await until(pilot, lambda: bool(app.screen.query(Input)))
        app.screen.query_one(Input).value = "deploy"
        await pilot.press("enter")
        await until(pilot, lambda: "2 deploy" in screen_text(app).splitlines()[0])
        await pilot.press("1")
        await until(pilot, typing(app))
        await until(pilot, lambda: "♪" not in screen_text(app).splitlines()[0])


LINKS = {  # what the guest writes: the question's title, its host, and whether it is only copied
    "a name over another address": (
        b"\x1b]8;;https://evil.example/\x1b\\good.example\x1b]8;;\x1b\\",
        "evil.example",
    ),
    "a name in the address": (b"https://good.example@evil.example/x", "evil.example"),
    "letters of another alphabet": ("https://g\u043e\u043egle.example/".encode(), "g\\u043e\\u043egle.example"),
    "a direction": (b"\x1b]8;;https://evil.example/\xe2\x80\xaegpj.exe\x1b\\x\x1b]8;;\x1b\\", "evil.example"),
    "a file of this machine": (b"\x1b]8;;file:///etc/passwd\x1b\\here\x1b]8;;\x1b\\", "none"),
    "a script": (b"\x1b]8;;javascript:alert(1)\x1b\\here\x1b]8;;\x1b\\", "none"),
}


@pytest.mark.parametrize("case", LINKS)
async def test_a_link_is_opened_only_by_a_question_that_shows_where_it_leads(run_app, monkeypatch, case):
    text, host = LINKS[case]
    monkeypatch.setenv("DISPLAY", ":9")
    opened = []
    async with run_app(size=(80, 24)) as (app, pilot):
        monkeypatch.setattr(app, "open_url", opened.append)
        await page(pilot, app)
        clipboard = app.clipboard
        view = shells(app).active.link.view
        view.feed(b"\r\n" + text + b"\r\n")
        await until(pilot, lambda: "$" in view.screen_text())
        await pilot.press(LEAVE, "left_curly_bracket", "f")
        await until(pilot, on(app, ConfirmScreen))
        await until(pilot, lambda: f"Host: {host}" in screen_text(app))
        assert not {"\u202e", "\u043e"} & set(screen_text(app).partition("Host:")[2].partition("wrote")[0])
        assert ("Open this address?" in screen_text(app)) == (host != "none")
        await pilot.press("escape")
        await until(pilot, typing(app))
        assert (opened, app.clipboard) == ([], clipboard)


async def test_shells_of_other_sandboxes_by_choice_and_by_marks(run_app):
    async with run_app(size=(120, 40)) as (app, pilot):
        await page(pilot, app)
        await pilot.press(LEAVE, "O")
        await until(pilot, on(app, MenuScreen))
        assert "crashed" not in screen_text(app), "it does not run"
        await pilot.press("b")
        await until(pilot, lambda: shells(app).open_count == 2 and typing(app)())
        assert {one.sandbox.ref for one in shells(app)} == {AGENT, BUILDER}
        assert len(shells(app).tabs) == 1
        await pilot.press(LEAVE, "escape", "home", "space", "j", "space", "dollar_sign")
        await until(pilot, on(app, ConfirmScreen))
        assert "Open 2 shells?" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: shells(app).open_count == 4 and typing(app)())
        assert [len(tab.shells) for tab in shells(app).tabs] == [2, 2]


async def test_zoom_resize_own_tab_and_join(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await page(pilot, app, 2)
        wide = app.focused.size.width
        await pilot.press(LEAVE, "z")
        await until(pilot, lambda: app.focused and app.focused.size.width > 1.5 * wide)
        await pilot.press(LEAVE, "z")
        await until(pilot, lambda: app.focused and app.focused.size.width == wide)
        await pilot.press(LEAVE, "plus", "plus", "enter")
        await until(pilot, lambda: app.focused and app.focused.size.width > wide)
        await pilot.press(LEAVE, "exclamation_mark")
        await until(pilot, lambda: len(shells(app).tabs) == 2 and typing(app)())
        await pilot.press(LEAVE, "J")
        await until(pilot, lambda: len(shells(app).tabs) == 1 and typing(app)())


async def test_what_is_typed_while_one_opens_goes_to_it(run_app, fake):
    fake.faults.verbs["shell"] = 0.5
    async with run_app() as (app, pilot):
        await pilot.press("dollar_sign", *"hello")
        await until(pilot, lambda: typing(app)() and "hello" in app.focused.screen_text())


async def test_one_that_is_refused_says_why_and_another_try_works(run_app, fake):
    fake.faults.verbs["shell"] = BackendError("the engine is busy", hint="wait")
    async with run_app() as (app, pilot):
        await pilot.press("dollar_sign")
        await until(pilot, lambda: "the engine is busy" in screen_text(app) and "opens it again" in screen_text(app))
        del fake.faults.verbs["shell"]
        await until(pilot, lambda: app.focused is None)
        await pilot.press("enter")
        await until(pilot, typing(app))


@pytest.mark.parametrize(
    ("command", "busy"),
    [
        ("bash", True), ("-sh", True), ("/usr/bin/zsh -l", True), ("sh -c 'sleep 9'", False), ("python3", False),
        ("", False), ("bash script.sh", False),
    ],
)  # fmt: skip
def test_what_counts_as_started_by_a_shell(command, busy):
    found = started_by_shells([GuestProcess(7, 1, command=command), GuestProcess(8, 7, command="vim x")])
    assert found == (["      8  vim x"] if busy else [])
