"""The list of sandboxes with its input lines and the user's choice of what it shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import structs
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from sandbox_console.errors import UsageError
from sandbox_console.service.config import TuiOptions, ViewOptions
from sandbox_console.tui.fleet.arrangement import Arranged, Arranger, Hidden, ListOptions
from sandbox_console.tui.fleet.columns import SAMPLED_COLUMNS, Chosen, ColumnChoice, choose, column_key
from sandbox_console.tui.fleet.command_parser import Known, known_of
from sandbox_console.tui.fleet.filter.filter_parser import Filter, parse_filter
from sandbox_console.tui.fleet.fleet_rows import Showing
from sandbox_console.tui.fleet.groups import CYCLE, GroupKey, group_by
from sandbox_console.tui.fleet.input_lines import CommandLine, FilterLine
from sandbox_console.tui.fleet.mark_bar import MarkBar
from sandbox_console.tui.fleet.saved_views import Views
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.widgets.table.marked_table import MarkedTable
from sandbox_console.tui.widgets.table.table import FleetTable


class FleetList(Vertical):
    """Shows the fleet in the chosen way. Posts `Rearranged` when it must be redrawn."""

    DEFAULT_CSS = """
    FleetList { height: 1fr; }
    """

    class Rearranged(Message):
        """The choice of what to show has changed."""

    def __init__(self, options: TuiOptions, folder: Path, state: Callable[[], FleetState]) -> None:
        super().__init__(id="list")
        self._config = options
        self._state = state
        self._arranger = Arranger(Showing())
        self._folded: frozenset[GroupKey] = frozenset()
        self.options = ListOptions()
        self.views = Views(folder, options.views)
        self.choice = ColumnChoice(folder)
        self.view_name = ""
        self.sideways = False
        self.hidden = Hidden()
        self.filter_line = FilterLine()
        self.command_line = CommandLine(lambda: self.known(self._state()))
        self.table = MarkedTable(self.choice.chosen.columns(), id="fleet")
        self._lay_columns()

    def compose(self) -> ComposeResult:
        yield self.filter_line
        yield self.command_line
        yield self.table
        yield MarkBar()

    @property
    def typing(self) -> bool:
        """Whether the user is typing the filter."""
        return self.filter_line.input.has_focus

    @property
    def by_samples(self) -> bool:
        """Whether samples determine which sandboxes are shown."""
        return self.table.sort_column in SAMPLED_COLUMNS or self.options.shown.sampled

    @property
    def newest_at(self) -> float:
        """When the newest sandbox was created, or 0 if that is not known."""
        return self._arranger.newest_at

    @property
    def shown(self) -> Filter:
        """The filter in force."""
        return self.options.shown

    def known(self, state: FleetState) -> Known:
        """Return the names that a command can use."""
        return known_of(state, self.views.names, self._config.aliases)

    def show(self, state: FleetState, now: float) -> Arranged:
        """Show a state. Returns the rows in their order."""
        if self.options.shown.begun and not self.typing:
            self.options = structs.replace(self.options, shown=structs.replace(self.options.shown, begun=False))
        arranged = self._arranger.arrange(state, self.options, now)
        self.hidden = arranged.hidden
        self.table.set_rows(arranged.rows, arranged.natural)
        self.filter_line.show(self.options.shown)
        return arranged

    # --- what to show

    def _set_options(self, options: ListOptions, *, view: str = "") -> None:
        self.options, self.view_name = options, view
        self.post_message(self.Rearranged())

    @on(FilterLine.Changed)
    def _filtered(self, event: FilterLine.Changed) -> None:
        event.stop()
        same = event.shown.text == self.options.shown.text
        self._set_options(structs.replace(self.options, shown=event.shown), view=self.view_name if same else "")

    @on(events.DescendantFocus, "#filter")
    @on(events.DescendantBlur, "#filter")
    def _typing_changed(self) -> None:
        self.post_message(self.Rearranged())

    def set_filter(self, text: str) -> None:
        """Filter by a text. Raises FilterError."""
        self._put(text)
        self.post_message(self.Rearranged())

    def _put(self, text: str) -> None:
        shown = parse_filter(text)
        with self.prevent(FilterLine.Changed):
            self.filter_line.put(text)
        self.options = structs.replace(self.options, shown=shown)
        self.view_name = ""

    def toggle_faults(self) -> None:
        """Show only sandboxes with faults, or all."""
        self._set_options(structs.replace(self.options, faults=not self.options.faults))

    def toggle_managed(self) -> None:
        """Show only sandboxes that this console made, or all."""
        self._set_options(structs.replace(self.options, managed=not self.options.managed))

    def set_group(self, by: str) -> None:
        """Group by a field, or stop grouping."""
        self._folded = frozenset()
        self._set_options(structs.replace(self.options, group=by, folded=self._folded))

    def next_group(self) -> None:
        """Group by backend, then host, then image, then not at all."""
        at = CYCLE.index(self.options.group) if self.options.group in CYCLE else -1
        self.set_group(CYCLE[(at + 1) % len(CYCLE)])

    def fold(self, key: GroupKey, folded: bool | None = None) -> None:
        """Close or open a group. If ``folded`` is None, toggle it."""
        closed = key not in self._folded if folded is None else folded
        self._folded = self._folded | {key} if closed else self._folded - {key}
        self._set_options(structs.replace(self.options, folded=self._folded), view=self.view_name)

    def set_sort(self, word: str) -> None:
        """Sort by a column, descending with ``-``. An empty text removes the sort order. Raises UsageError."""
        if not word:
            self.table.unsort()
        else:
            self.sort_by(column_key(word.lstrip("-")), reverse=word.startswith("-"))
        self.post_message(self.Rearranged())

    def sort_by(self, key: str, *, reverse: bool | None = None) -> None:
        """Sort by a column, and show it from now on. Sorting by the current column again reverses the order."""
        if key not in {column.key for column in self.table.columns}:
            self.set_columns(choose((*self.choice.chosen.keys, key), self.choice.chosen.widths))
        self.table.sort_by(key, reverse=reverse)

    # --- columns

    def set_columns(self, chosen: Chosen, *, save: bool = True) -> None:
        """Show these columns. With ``keep``, they are saved for the next run."""
        self.choice.set(chosen, save=save)
        self._lay_columns()
        self.post_message(self.Rearranged())

    def toggle_wide(self) -> None:
        """Show every column, with Left and Right to scroll, or only those that fit."""
        self.sideways = not self.sideways
        self._lay_columns()
        self.post_message(self.Rearranged())

    def _lay_columns(self) -> None:
        columns = self.choice.chosen.columns(everything=self.sideways)
        self._arranger.showing.keys = tuple(column.key for column in columns)
        self.table.set_columns(columns, sideways=self.sideways)

    # --- views

    @property
    def view(self) -> ViewOptions:
        """What is shown now, as a view."""
        sort = f"{'-' * self.table.sort_reverse}{self.table.sort_column}" if self.table.sort_column else ""
        options = self.options
        return ViewOptions(
            filter=options.shown.text, group=options.group, sort=sort, columns=self.choice.chosen.keys,
            faults=options.faults, managed=options.managed,
        )  # fmt: skip

    def save_view(self, name: str) -> None:
        """Save what is shown as a view. Raises UsageError, OSError."""
        self.views.save(name, self.view)
        self.view_name = name
        self.post_message(self.Rearranged())

    def set_view(self, name: str) -> None:
        """Show a view. Raises UsageError if it is unknown or invalid, and then changes nothing."""
        view = self.views.get(name)
        try:
            parse_filter(view.filter)
            group = group_by(view.group)
            column_key(view.sort.lstrip("-")) if view.sort else None
            chosen = choose(view.columns, self.choice.chosen.widths) if view.columns else None
        except UsageError as error:
            raise UsageError(f"view {name}: {error.message}", hint=error.hint) from None
        self._put(view.filter)
        if chosen is not None:
            self.set_columns(chosen, save=False)
        self.set_sort(view.sort)
        self._folded = frozenset()
        options = self.options
        self._set_options(ListOptions(options.shown, view.faults, view.managed, group), view=name)

    def reset(self) -> None:
        """Show everything without groups. Keeps the columns and the order."""
        self._put("")
        self._folded = frozenset()
        self._set_options(ListOptions())

    @on(FleetTable.Turned, "#fleet")
    def _turned(self, event: FleetTable.Turned) -> None:
        event.stop()
        if isinstance(event.key, GroupKey):
            self.fold(event.key, not event.opened)
