"""The keys of the main screen that change what the list shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.message_pump import MessagePump

from sandbox_console.errors import UsageError
from sandbox_console.tui.fleet.columns import Chosen
from sandbox_console.tui.fleet.inputs import CommandLine, FilterLine
from sandbox_console.tui.main import command_runner as commanding

if TYPE_CHECKING:
    from sandbox_console.tui.main.main_screen import MainScreen


class ListActions(MessagePump):
    """Mixed into the main screen."""

    @property
    def _main(self) -> MainScreen:
        screen: MainScreen = self  # type: ignore[assignment]
        return screen

    def action_filter(self) -> None:
        """Type a filter."""
        self._main.remove_class("-detail")
        self._main.detail.leave()
        self._main.fleet.filter_line.open()

    def action_command(self) -> None:
        """Type a command."""
        self._main.remove_class("-detail")
        self._main.detail.leave()
        self._main.fleet.command_line.open()

    @on(CommandLine.Said)
    async def _said(self, event: CommandLine.Said) -> None:
        line = self._main.fleet.command_line
        line.done(event.line)
        try:
            await commanding.run(self._main, event.line)
        except UsageError as error:
            line.refuse(event.line, error)

    @on(CommandLine.Left)
    @on(FilterLine.Left)
    def _line_left(self) -> None:
        self._main.focus_list()

    def action_sort(self, column: str) -> None:
        """Sort by a column, or turn the order round."""
        self._main.fleet.sort_by(column)

    def action_faults(self) -> None:
        """Only what is wrong, or everything."""
        self._main.fleet.toggle_faults()

    def action_managed(self) -> None:
        """Only what this console made, or everything."""
        self._main.fleet.toggle_managed()

    def action_group(self) -> None:
        """By backend, host, image, then by none."""
        self._main.fleet.next_group()

    def action_wide(self) -> None:
        """Every column, or those that fit."""
        self._main.fleet.toggle_wide()

    def action_columns(self) -> None:
        """Choose the columns."""
        fleet = self._main.fleet

        def change(chosen: Chosen) -> None:
            fleet.set_columns(chosen)

        from sandbox_console.tui.fleet.columns_screen import ColumnsScreen

        self._main.app.push_screen(ColumnsScreen(fleet.choice.chosen, change))
