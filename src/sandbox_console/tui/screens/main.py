"""The main screen: header, list, and the selected sandbox from near."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service import Console, find_paths
from sandbox_console.tui import asking
from sandbox_console.tui.filters import Filter, FilterError, parse_filter
from sandbox_console.tui.keys import MAIN_KEYS
from sandbox_console.tui.messages import FormAsked
from sandbox_console.tui.offers import VERBS
from sandbox_console.tui.panes.audit import AuditPane, entry_words
from sandbox_console.tui.panes.detail import Detail
from sandbox_console.tui.panes.empty import empty_words
from sandbox_console.tui.panes.header import HeaderBar
from sandbox_console.tui.panes.marks import MarkBar
from sandbox_console.tui.panes.split import Split
from sandbox_console.tui.panes.together import compare, merge_logs
from sandbox_console.tui.rows import COLUMNS, Rows
from sandbox_console.tui.screens.text import TextScreen
from sandbox_console.tui.state import FleetState, News
from sandbox_console.tui.widgets.marked import MarkedTable
from sandbox_console.tui.widgets.table import HEADER_ROWS, FleetTable
from sandbox_console.tui.words import shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.app import ConsoleApp

WIDE = (100, 30)
"""From this size on the list and the detail are both in view."""
AGE_S = 1.0
YOUNG_S = 60.0
SELDOM = 10
"""Ages are told anew every second while a sandbox is younger than YOUNG_S, else every SELDOM seconds: telling those of
1,000 costs 30 ms."""
STATS_DELAY_S = 0.2


class MainScreen(Screen[None]):
    """Shows the state that the app gives it, and posts what a person asks."""

    DEFAULT_CSS = """
    MainScreen { layout: vertical; background: $background; }
    MainScreen #list { height: 1fr; }
    MainScreen #filter-line { height: 1; display: none; background: $panel; }
    MainScreen #filter-line.-on { display: block; }
    MainScreen #filter { width: 1fr; height: 1; border: none; padding: 0; background: $panel; }
    MainScreen #filter-mark { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    MainScreen #filter-note { width: auto; padding: 0 1; color: $text-warning; }
    MainScreen #empty { display: none; height: 1fr; content-align: center middle; text-align: center; padding: 0 2; }
    MainScreen.-empty #empty { display: block; }
    MainScreen.-empty #fleet { display: none; }
    MainScreen Detail { display: none; }
    MainScreen.-wide Detail { display: block; height: 1fr; border-top: solid $border-blurred; }
    MainScreen.-wide Detail:focus-within { border-top: solid $primary; }
    MainScreen.-empty Detail { display: none; }
    MainScreen.-wide.-side { layout: grid; grid-size: 2; grid-rows: auto 1fr 1; }
    MainScreen.-wide.-side HeaderBar { column-span: 2; }
    MainScreen.-wide.-side Detail { border-top: none; border-left: solid $border-blurred; }
    MainScreen.-wide.-side Footer { column-span: 2; }
    MainScreen.-detail #list { display: none; }
    MainScreen.-detail Detail { display: block; height: 1fr; border-top: none; }
    MainScreen FleetTable:focus > .table--cursor { background: $block-cursor-background; color: $foreground; }
    MainScreen Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = MAIN_KEYS

    def __init__(self, console: Console, publish: Callable[[News], None], clock: Callable[[], float]) -> None:
        super().__init__()
        self.service = console
        self._publish = publish
        self._clock = clock
        self._rows = Rows()
        self.state = FleetState()
        self._filter: Filter = parse_filter("")
        self._awaited: SandboxRef | None = None
        self._stats_asked = False
        self.compared: Sandbox | None = None
        self.split = Split(find_paths().state)
        self._ticks = 0

    def compose(self) -> ComposeResult:
        yield HeaderBar()
        with Vertical(id="list"):
            with Horizontal(id="filter-line"):
                yield Static("/", id="filter-mark")
                yield Input(id="filter", compact=True)
                yield Static(id="filter-note")
            yield MarkedTable(COLUMNS, id="fleet")
            yield Static(id="empty")
            yield MarkBar()
        yield Detail(self.service, self._publish)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.table.focus()
        self.set_interval(AGE_S, self._tick)
        self.watch(self.table, "scroll_y", self._ask_stats, init=False)

    @property
    def table(self) -> MarkedTable:
        """The list."""
        return self.query_one("#fleet", MarkedTable)

    @property
    def detail(self) -> Detail:
        """The selected sandbox from near."""
        return self.query_one(Detail)

    @property
    def selected(self) -> Sandbox | None:
        """The sandbox under the cursor."""
        key = self.table.cursor_key
        return self.state.sandboxes.get(key) if isinstance(key, SandboxRef) else None

    @property
    def console_app(self) -> ConsoleApp:
        """The app."""
        app: ConsoleApp = self.app  # type: ignore[assignment]
        return app

    @property
    def marked(self) -> list[Sandbox]:
        """The marked sandboxes, in the order they were marked."""
        return [self.state.sandboxes[ref] for ref in self.table.marked if ref in self.state.sandboxes]

    # --- what is shown

    def show(self, state: FleetState) -> None:
        """Show another state."""
        self.state = state
        with contextlib.suppress(NoMatches):  # the screen is being taken down, child by child
            self._draw()

    def select(self, ref: SandboxRef) -> None:
        """Put the cursor on a sandbox, at once or when it comes."""
        self._awaited = ref
        self._draw()

    def _tick(self) -> None:
        self._ticks += 1
        newest = max((one.created_at or 0 for one in self.state.sandboxes.values()), default=0)
        if self._clock() - newest < YOUNG_S or self._ticks % SELDOM == 0:
            self._draw()

    def _draw(self) -> None:
        if not self.is_mounted or not self.children:  # news may come while the app is ending
            return
        state = self.state
        shown = [sandbox for sandbox in state.sandboxes.values() if self._filter.matches(sandbox, state, self._clock())]
        shown.sort(key=lambda one: (-(one.created_at or 0), one.name))  # newest first, till sorted otherwise
        self.set_class(not shown, "-empty")
        self.table.set_rows(self._rows.of(state, shown, self._clock()))
        self.table.keep_marks(state.sandboxes)
        self._show_marks()
        if self._awaited is not None and self.table.move_to(self._awaited):
            self._awaited = None
        self.query_one(HeaderBar).show(state, read_only=self.service.read_only, width=self.size.width)
        if not shown:
            words = empty_words(state, self._filter, read_only=self.service.read_only)
            self.query_one("#empty", Static).update(words)
        self._note_filter(len(shown))
        self.split.apply(self, len(shown))
        self._show_detail()
        self._ask_stats()

    @on(MarkedTable.MarksChanged)
    def _show_marks(self) -> None:
        shown = {row.key for row in self.table.rows} if self.table.marks else set()
        self.query_one(MarkBar).show(self.marked, sum(one.ref not in shown for one in self.marked))

    def _note_filter(self, shown: int) -> None:
        total = len(self.state.sandboxes)
        words = f"{shown} of {total}, {total - shown} hidden {self._filter.note}  Esc clears" if self._filter else ""
        self.query_one("#filter-note", Static).update(Content(words))
        typing = self.query_one("#filter", Input).has_focus
        self.query_one("#filter-line").set_class(typing or bool(self._filter), "-on")

    def _show_detail(self) -> None:
        on_screen = self.has_class("-wide") or self.has_class("-detail")
        self.detail.show(self.selected, self.state, on_screen=on_screen)

    def _ask_stats(self) -> None:
        if not self._stats_asked:
            self._stats_asked = True
            self.set_timer(STATS_DELAY_S, self._show_stats)

    def _show_stats(self) -> None:
        self._stats_asked = False
        top = self.table.scroll_offset.y
        page = self.table.rows[top : top + max(0, self.table.size.height - HEADER_ROWS)]
        found = (self.state.sandboxes.get(row.key) for row in page if isinstance(row.key, SandboxRef))
        self.service.show_stats(one.ref for one in found if one is not None and one.status is Status.RUNNING)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= WIDE[0] and event.size.height >= WIDE[1], "-wide")
        self._draw()

    # --- the list and the filter

    @on(FleetTable.Moved, "#fleet")
    def _moved(self) -> None:
        self._show_detail()

    @on(FleetTable.Chosen, "#fleet")
    def _chosen(self) -> None:
        self._open_detail()

    def _open_detail(self) -> None:
        if not self.has_class("-wide"):
            self.add_class("-detail")
        self._show_detail()
        self.call_after_refresh(self.detail.focus_tab)

    def action_filter(self) -> None:
        """Type a filter."""
        self.remove_class("-detail")
        self.query_one("#filter-line").add_class("-on")
        self.query_one("#filter", Input).focus()

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        with contextlib.suppress(FilterError):  # the rows of the last good one stay
            self._filter = parse_filter(event.value)
        self._draw()

    @on(Input.Submitted, "#filter")
    def _filter_kept(self) -> None:
        self._focus_list()

    def _focus_list(self) -> None:
        self.table.focus()
        self.call_after_refresh(self._draw)

    def action_sort(self, column: str) -> None:
        """Sort by a column, or turn the order round."""
        self.table.sort_by(column)

    # --- moving about

    def action_back(self) -> None:
        """One step back: out of the detail, then no marks, then out of the filter."""
        typing = self.query_one("#filter", Input).has_focus
        if not typing and (self.has_class("-detail") or self.detail.has_focus_within):
            self.remove_class("-detail")
            self._focus_list()
        elif self.table.marks and not typing:
            self.table.action_unmark()
        elif self._filter or typing:
            self.query_one("#filter", Input).value = ""
            self._focus_list()

    def on_terminal_view_left(self) -> None:
        self.action_back()

    def action_leave_terminal(self) -> None:
        """Shown in the footer; the terminal itself takes the key."""
        self.action_back()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        return action != "leave_terminal" or self.detail.shells.in_terminal

    def action_fullscreen(self) -> None:
        """Give the whole screen to the detail, or take it back."""
        self.toggle_class("-detail")
        if self.has_class("-detail"):
            self._open_detail()
        else:
            self._show_detail()
            self._focus_list()

    def action_tab(self, tab: str) -> None:
        """Look at a tab of the detail."""
        self.detail.pick(tab)
        self._open_detail()

    def action_step(self, by: int) -> None:
        """Look at the next tab."""
        self.detail.step(by)
        self._open_detail()

    def action_side(self) -> None:
        """The detail beside the list, or under it."""
        self.split.turn()
        self._draw()

    def action_share(self, step: int) -> None:
        """Give the detail more room, or less."""
        place = self.query_one("#list").size
        now = (
            place.width * 100 // max(1, self.size.width) if self.split.side else place.height * 100 // self.size.height
        )
        self.split.move(step, now)
        self._draw()

    def action_shell(self) -> None:
        """Go to the sandbox's shell, or open one."""
        sandbox = self.selected
        if sandbox is None:
            self.notify("No sandbox is selected.", severity="warning")
            return
        self.detail.pick("shell")
        if not self.has_class("-wide"):
            self.add_class("-detail")
        self._show_detail()
        self.call_after_refresh(self.detail.shells.enter, sandbox)

    # --- several at once

    def action_merge(self) -> None:
        """The logs of marked sandboxes, or of those with a label, in one; again: back to one."""
        self.run_worker(merge_logs(self, list(self.state.sandboxes.values()), self.marked))

    def action_compare(self) -> None:
        """Two sandboxes beside each other: the two marked, or this one and the next one chosen."""
        compare(self, self.marked, self.selected)

    # --- asking

    def action_create(self) -> None:
        """Make a sandbox."""
        self.post_message(FormAsked())

    def action_edit(self) -> None:
        """Edit the selected one."""
        sandbox = self.selected
        if sandbox is None:
            self.notify("No sandbox is selected.", severity="warning")
        elif not sandbox.managed or sandbox.spec is None:
            self.notify(
                f"{shown_name(sandbox)} was not made by this console, so its spec is not known and cannot be edited.",
                title="edit", severity="warning",
            )  # fmt: skip
        else:
            self.post_message(FormAsked(sandbox))

    def action_pause(self) -> None:
        """Pause, or resume."""
        asking.ask_pause(self)

    def action_verb(self, name: str) -> None:
        """Ask for something to be done to the marked sandboxes, or to the selected one."""
        asking.ask(self, VERBS[name])

    action_bulk = action_verb

    def action_copy_command(self) -> None:
        """Copy the command that does the same as a key."""
        self.app.run_worker(asking.copy_command(self))

    def action_unmark(self) -> None:
        """Take all marks away."""
        self.table.action_unmark()

    def action_copy(self) -> None:
        """Copy what the command line calls the sandbox."""
        if self.selected is not None:
            self.app.copy_to_clipboard(str(self.selected.ref))
            self.notify(f"Copied {self.selected.ref}")

    @on(MarkedTable.MenuAsked)
    def action_menu(self) -> None:
        """All that can be done to the marked sandboxes, or to the selected one."""
        self.app.run_worker(asking.menu(self))

    @on(AuditPane.Opened)
    def _show_entry(self, event: AuditPane.Opened) -> None:
        self.app.push_screen(TextScreen(f"Audit row {event.entry.attempt.seq}", entry_words(event.entry)))
