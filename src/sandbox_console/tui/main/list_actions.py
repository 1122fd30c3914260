"""Keys that change what the list shows."""

from __future__ import annotations

from textual import on

from sandbox_console.errors import UsageError
from sandbox_console.tui.fleet.columns import Chosen
from sandbox_console.tui.fleet.input_lines import CommandLine, FilterLine
from sandbox_console.tui.main.command_runner import run
from sandbox_console.tui.main.detail_actions import DetailActions


class ListActions(DetailActions):
    """Actions on the filter, commands, order, groups and columns."""

    def action_filter(self) -> None:
        """Open the filter line."""
        self.remove_class("-detail")
        self.detail.leave()
        self.fleet.filter_line.open()

    def action_command(self) -> None:
        """Open the command line."""
        self.remove_class("-detail")
        self.detail.leave()
        self.fleet.command_line.open()

    @on(CommandLine.Said)
    async def _carry_out(self, event: CommandLine.Said) -> None:
        line = self.fleet.command_line
        line.done(event.line)
        try:
            await run(self, event.line)
        except UsageError as error:
            line.refuse(event.line, error)

    @on(CommandLine.Left)
    @on(FilterLine.Left)
    def _line_left(self) -> None:
        self.focus_list()

    def action_sort(self, column: str) -> None:
        """Sort by a column, or reverse the order."""
        self.fleet.sort_by(column)

    def action_loudest(self) -> None:
        """Sort by what is written to the logs each second, the most first."""
        self.fleet.set_sort("-log")

    def action_faults(self) -> None:
        """Show only sandboxes with faults, or all."""
        self.fleet.toggle_faults()

    def action_managed(self) -> None:
        """Show only sandboxes that this console made, or all."""
        self.fleet.toggle_managed()

    def action_group(self) -> None:
        """Group by backend, then host, then image, then not at all."""
        self.fleet.next_group()

    def action_wide(self) -> None:
        """Show every column, or only those that fit."""
        self.fleet.toggle_wide()

    def action_columns(self) -> None:
        """Choose the columns."""
        fleet = self.fleet

        def change(chosen: Chosen) -> None:
            fleet.set_columns(chosen)

        from sandbox_console.tui.fleet.columns_screen import ColumnsScreen

        self.app.push_screen(ColumnsScreen(fleet.choice.chosen, change))
