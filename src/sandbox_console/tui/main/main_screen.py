"""The main screen: header, list, and the detail of the selected sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from functools import partial
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.css.query import NoMatches
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input

from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.service import Console
from sandbox_console.tui.detail.audit_tab import AuditPane, entry_words
from sandbox_console.tui.detail.detail_pane import Detail
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.fleet.empty_state import empty_words
from sandbox_console.tui.fleet.fleet_pane import FleetList
from sandbox_console.tui.fleet.groups import GroupKey
from sandbox_console.tui.fleet.header import HeaderBar
from sandbox_console.tui.fleet.mark_bar import MarkBar
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.keys.main_keys import MAIN_KEYS
from sandbox_console.tui.main.cursor import CursorPlaces
from sandbox_console.tui.main.list_actions import ListActions
from sandbox_console.tui.main.sandbox_actions import AskActions
from sandbox_console.tui.state.fleet_state import FleetState, News
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.marked_table import MarkedTable
from sandbox_console.tui.widgets.table.table import HEADER_ROWS, FleetTable

WIDE = (100, 30)
"""The smallest size at which the list and the detail are both shown."""
AGE_S = 1.0
YOUNG_S = 60.0
SELDOM = 10
"""Ages are updated every second while a sandbox is younger than YOUNG_S, otherwise every SELDOM seconds: updating
1,000 of them costs 30 ms."""
STATS_DELAY_S = 0.2
LOOK_S = 0.1
"""Seconds before the detail shows another sandbox. This takes 20 ms, too long for each one that the cursor passes."""


class MainScreen(CursorPlaces, ListActions, AskActions):
    """Shows the state that the app passes to it, and posts the user's requests."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; background: $background; }
    MainScreen Detail { display: none; }
    MainScreen.-wide Detail { display: block; height: 1fr; border-top: solid $border-blurred; }
    MainScreen.-wide Detail:focus-within { border-top: solid $primary; }
    MainScreen.-wide.-side { layout: grid; grid-size: 2; grid-rows: auto 1fr 1; }
    MainScreen.-wide.-side HeaderBar { column-span: 2; }
    MainScreen.-wide.-side Detail { border-top: none; border-left: solid $border-blurred; }
    MainScreen.-wide.-side KeyBar { column-span: 2; }
    MainScreen.-detail #list { display: none; }
    MainScreen.-detail Detail { display: block; height: 1fr; border-top: none; }
    MainScreen FleetTable:focus > .table--cursor { background: $block-cursor-background; color: $foreground; }
    MainScreen KeyBar { height: 1; }
    """
    AUTO_FOCUS: ClassVar[str] = "#fleet"
    BINDINGS: ClassVar[list[BindingType]] = MAIN_KEYS

    def __init__(self, console: Console, publish: Callable[[News], None], clock: Callable[[], float]) -> None:
        super().__init__(console, clock)
        self._publish = publish
        self._stats_asked = False
        self._look: Timer | None = None
        self._looked_at: Hashable | None = None
        self._alone = self._late = self._resumed = False

    def compose(self) -> ComposeResult:
        yield HeaderBar()
        yield self.fleet
        yield Detail(self.service, self._publish)
        yield KeyBar()

    def on_mount(self) -> None:
        self.table.focus()
        self.set_interval(AGE_S, self._tick)
        self.watch(self.table, "scroll_y", self._ask_stats, init=False)

    # --- drawing

    def show(self, state: FleetState) -> None:
        """Show a new state."""
        self.state = state
        with contextlib.suppress(NoMatches):  # the screen is being removed, child by child
            self.draw()

    def _tick(self) -> None:
        self.ticks += 1
        if self._clock() - self.fleet.newest_at < YOUNG_S or self.ticks % SELDOM == 0:
            with contextlib.suppress(NoMatches):  # on a busy machine it may not have all its widgets yet, or no more
                self.draw()

    def draw(self) -> None:
        """Draw the current state in the chosen way."""
        if not self.is_mounted or not self.children:  # news may arrive while the app is ending
            return
        self._late = self._covered
        if self._late:
            return
        state = self.state
        found = self.fleet.show(state, self._clock())
        shown, options = found.sandboxes, self.fleet.options
        typing = self.fleet.typing
        self._stand_alone(not shown and not typing)
        self.table.keep_marks(state.sandboxes)
        self._show_marks()
        self.place_cursor(state)
        header = self.query_one(HeaderBar)
        header.show(state, read_only=self.service.read_only, width=self.size.width)
        header.show_view(options, found.hidden, len(state.sandboxes), self.fleet.view_name, typing=typing)
        if not shown:
            self.table.show_message(
                empty_words(state, options, read_only=self.service.read_only, key=partial(key_of, self))
            )
        self.split.apply(self, max(len(found.rows), len(state.sandboxes)) if shown or typing else 0)
        self._look_soon()
        self._ask_stats()

    @property
    def _covered(self) -> bool:
        """Whether another screen hides this one. Drawing thousands of unseen rows took most of a bulk action's time."""
        stack = self.app.screen_stack
        above = stack[stack.index(self) + 1 :] if self in stack else ()
        return any(not isinstance(screen, ModalScreen) for screen in above)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        event.refresh_styles = self._resumed  # the first time, it was styled a moment ago on mounting
        self._resumed = True
        if self._late:
            self.draw()

    @on(MarkedTable.MarksChanged)
    def _show_marks(self) -> None:
        marked, table = self.marked, self.table
        every = not self.fleet.hidden.total and not self.fleet.options.group
        shown = set() if every or not marked else {row.key for row in table.rows}
        self.query_one(MarkBar).show(marked, 0 if every else sum(sandbox.ref not in shown for sandbox in marked))

    def _stand_alone(self, alone: bool) -> None:
        """Give an empty list the room of the detail, but not during typing: the detail would flicker with each letter.

        This sets the style directly, as a class on the screen restyles all its widgets, which takes 60 ms.
        """
        if alone == self._alone:
            return
        self._alone = alone
        if alone:
            self.detail.styles.display = "none"
        else:
            self.detail.styles.clear_rule("display")
            self.detail.refresh(layout=True)

    def _look_soon(self) -> None:
        """Update the detail: at once for news of its sandbox, or for another one when the cursor rests on it.

        While a filter is typed, changing to no sandbox and back also waits: either delays a key by 40 ms.
        """
        on_screen = self.has_class("-wide") or self.has_class("-detail")
        at_once = not self.fleet.typing and (self._looked_at is None or self.selected is None)
        if not on_screen or at_once or self._looked_at == self.table.cursor_key:
            self.show_detail()
        elif self._look is None:
            self._look = self.set_timer(LOOK_S, self.show_detail)
        else:
            self._look.reset()

    def show_detail(self) -> None:
        """Show the selected sandbox in the detail."""
        if self._look is not None:
            self._look.stop()
            self._look = None
        self._looked_at = self.table.cursor_key
        on_screen = self.has_class("-wide") or self.has_class("-detail")
        self.detail.show(self.selected, self.state, on_screen=on_screen)

    def show_log(self, ref: SandboxRef, at_ns: int) -> None:
        """Show the log of a sandbox at a time."""
        self.go_to(ref)
        self.detail.pick("logs")
        self.open_detail()
        self.detail.logs.look_at(ref, at_ns)

    def _ask_stats(self) -> None:
        if not self._stats_asked:
            self._stats_asked = True
            self.set_timer(STATS_DELAY_S, self._show_stats)

    def _show_stats(self) -> None:
        self._stats_asked = False
        top = self.table.top
        page = self.table.rows[top : top + max(0, self.table.size.height - HEADER_ROWS)]
        found = [self.state.sandboxes.get(row.key) for row in page if isinstance(row.key, SandboxRef)]
        there = [sandbox for sandbox in found if sandbox is not None]
        running = [sandbox.ref for sandbox in there if sandbox.status is Status.RUNNING]
        self.service.show_stats(running, rest_soon=self.fleet.by_samples)
        self.service.denials.show(sandbox.ref for sandbox in there)

    def fit(self, size: Size) -> None:
        """Set the classes for a size, before the screen is styled for the first time."""
        self.set_class(_wide(size), "-wide")

    def on_resize(self, event: events.Resize) -> None:
        wide = _wide(event.size)
        if not wide and self.has_class("-wide") and self.detail.has_focus_within and not self.has_class("-detail"):
            self.add_class("-detail", "-for-lack-of-room")  # keep showing what the user is working in
        elif wide and self.has_class("-for-lack-of-room"):
            self.remove_class("-detail", "-for-lack-of-room")
        self.set_class(wide, "-wide")
        self.draw()

    # --- the list and the filter

    @on(FleetTable.Moved, "#fleet")
    def _moved(self) -> None:
        self._look_soon()

    @on(FleetTable.Sorted, "#fleet")
    def _sorted(self) -> None:
        self._ask_stats()  # the visible rows have changed

    @on(FleetTable.Chosen, "#fleet")
    def _chosen(self, event: FleetTable.Chosen) -> None:
        if isinstance(event.key, GroupKey):
            self.fleet.fold(event.key)
        else:
            self.open_detail()

    @on(FleetList.Rearranged)
    def _rearranged(self) -> None:
        self.draw()

    def action_unmark(self) -> None:
        """Remove all marks."""
        self.table.action_unmark()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        if action == "filter":
            return not isinstance(self.focused, Input)  # an input takes the key, so do not show the hint
        return action != "leave_terminal" or self.detail.shells.in_terminal

    @on(AuditPane.Opened)
    def _show_entry(self, event: AuditPane.Opened) -> None:
        self.app.push_screen(TextScreen(f"Audit row {event.entry.attempt.seq}", partial(entry_words, event.entry)))


def _wide(size: Size) -> bool:
    return size.width >= WIDE[0] and size.height >= WIDE[1]
