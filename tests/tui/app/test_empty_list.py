"""Everything that a key of the main screen does, where there is no sandbox: none of it crashes, is silent, or leads
into nothing."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import screen_text, until
from textual.binding import Binding

from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.detail.tab_bar import TABS
from sandbox_console.tui.keys.main_keys import MAIN_KEYS
from sandbox_console.tui.widgets.table.marked_table import MarkedTable
from sandbox_console.tui.widgets.table.table import FleetTable

NEEDS_ONE = {
    "edit", "menu", "logs", "shell", "spec", "egress", "egress-draft", *(f"tab-{tab.id}" for tab in TABS), "next-tab",
    "previous-tab", "start", "stop", "restart", "pause", "changes", "attach", "rename", "commit", "snapshot", "kill",
    "remove", "fullscreen", "copy", "copy-command", "compare", "why", "timeline", "shell-choose", "copy-mode", "adopt", "reapply",
    "container",
}  # fmt: skip
PAGES = {
    "create", "egress-inbox", "audit-log", "images", "snapshots", "pulse", "columns", "merge-logs", "backends",
    "messages", "help", "alerts", "create-from", "kept-shells", "recordings",
}  # fmt: skip
ACTIONS = {one.id: one.action for one in MAIN_KEYS if isinstance(one, Binding) and one.id}
MOVES = [one.action for one in (*FleetTable.BINDINGS, *MarkedTable.BINDINGS) if isinstance(one, Binding)]


@pytest.mark.parametrize(("size", "dead"), [((120, 40), False), ((80, 24), True)], ids=["empty", "dead"])
async def test_every_action_on_a_list_without_a_row(run_app, size, dead):
    words = "No backend answers" if dead else "No sandboxes"
    async with run_app(FakeBackend(dead=dead), size=size, ready=False) as (app, pilot):
        main = app.main
        await until(pilot, lambda: words in screen_text(app))
        await until(pilot, lambda: "n New" in screen_text(app) and "q Quit" in screen_text(app))
        for action in sorted(NEEDS_ONE):
            app.message_log.clear()
            await app.run_action(ACTIONS[action], main)
            await until(pilot, lambda: app.message_log)
            assert app.message_log[-1][1:] == ("warning", "No sandbox is selected."), action
            assert app.screen is main, action
            assert not main.has_class("-detail"), action
        for action in sorted(PAGES) if dead else ():  # how they look with nothing in them the pictures tell
            await app.run_action(ACTIONS[action], main)
            await until(pilot, lambda: app.screen is not main)
            await pilot.press("escape")
            await until(pilot, lambda: app.screen is main)
        for action in [ACTIONS[one] for one in sorted(ACTIONS.keys() - NEEDS_ONE - PAGES - {"quit"})]:
            await app.run_action(action, main)
        for action in MOVES:
            await app.run_action(action, main.table)
        app.clear_notifications()
        main.fleet.reset()
        await until(pilot, lambda: words in screen_text(app) and app.screen is main)
