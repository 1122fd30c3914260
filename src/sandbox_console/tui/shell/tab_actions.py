"""Move about the tabs of the page of all shells, and arrange them."""

from __future__ import annotations

from textual import on
from textual.geometry import Region

from sandbox_console.model.text import clean
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.shell.shell_box import ShellArea
from sandbox_console.tui.shell.shell_page import ShellPage
from sandbox_console.tui.shell.shell_tabs import TabLine
from sandbox_console.tui.shell.tab_layout import neighbour, regions, resized

_NAME_MAX = 60


class TabActions(ShellPage):
    """The actions of the page that choose, size, move and name the places of shells."""

    @on(TabLine.Picked)
    def _picked(self, event: TabLine.Picked) -> None:
        self.action_tab_number(event.index + 1)

    def _use(self, number: int | None) -> None:
        if number is not None:
            self.shells.use(self.shells[number])
            self.draw()
        self._type()

    def action_step(self, by: int) -> None:
        """Go to the next shell of all tabs, and type into it."""
        every, shell = [one.number for one in self.shells], self.shells.active
        if shell is not None:
            self._use(every[(every.index(shell.number) + by) % len(every)])

    def action_go(self, x: int, y: int) -> None:
        """Go to the shell on a side, and type into it."""
        if (tab := self.shells.tab) is not None:
            tab.zoomed = False
            places = regions(tab.node, Region(0, 0, *self.query_one(ShellArea).size))
            self._use(neighbour(places, tab.active, x, y))

    def action_tab(self, by: int) -> None:
        """Go to the next tab, and type into its shell."""
        tabs = self.shells.tabs
        self._use(tabs[(self.shells.current + by) % len(tabs)].active if tabs else None)

    def action_tab_number(self, number: int) -> None:
        """Go to a tab by its number, and type into its shell."""
        if number <= len(self.shells.tabs):
            self._use(self.shells.tabs[number - 1].active)

    def action_zoom(self) -> None:
        """Give the active shell the whole tab, or show all of its shells again."""
        if (tab := self.shells.tab) is not None and len(tab.shells) > 1:
            tab.zoomed = not tab.zoomed
            self.draw()
        self._type()

    def action_resize(self, direction: int) -> None:
        """Give the active shell more room, or less."""
        if (tab := self.shells.tab) is not None:
            tab.node = resized(tab.node, tab.active, direction)
            self.draw()

    def action_own_tab(self) -> None:
        """Move the active shell to a tab of its own."""
        if (shell := self.shells.active) is not None:
            self.shells.move_to_own_tab(shell)
            self._use(shell.number)

    def action_join(self) -> None:
        """Move the active shell to the tab before, beside the shells there."""
        if (shell := self.shells.active) is not None:
            self.shells.join_tab_before(shell, across=self.app.size.width >= 2 * self.app.size.height)
            self._use(shell.number)

    def action_rename_tab(self) -> None:
        """Give the tab a name. An empty one takes it away."""
        if (tab := self.shells.tab) is None:
            return

        def named(name: str | None) -> None:
            if name is not None:
                tab.name = clean(name, cap=_NAME_MAX).strip()
                self.draw()

        self.app.push_screen(NameScreen("Name of the tab", "empty: named after its shell", tab.name), named)


class NameScreen(AskScreen):
    """Asks for a name that may be empty. Returns None if it was left."""

    def action_close(self) -> None:
        """Leave the name as it is."""
        self.dismiss(None)
