"""Keys that move between the list and the detail, and divide the screen between them."""

from __future__ import annotations

from sandbox_console.model.text import clean
from sandbox_console.tui.detail.containers import containers_of
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.main.main_base import MainBase
from sandbox_console.tui.state.messages import ShellsRequested
from sandbox_console.tui.text.formatting import shown_name

_MAIN = "the main one"


class DetailActions(MainBase):
    """Actions that move between the list and the tabs.

    The screen's class ``-detail`` gives the detail the whole screen. ``-for-lack-of-room`` is added if the only reason
    is that both do not fit.
    """

    def focus_list(self) -> None:
        """Focus the rows of the list."""
        self.detail.leave()
        self.set_focus(self.table)
        self.call_after_refresh(self.draw)

    def open_detail(self) -> None:
        """Show and focus the detail."""
        self._make_room()
        self.show_detail()
        self.detail.focus_soon()

    def _make_room(self) -> None:
        if not self.has_class("-wide"):
            self.add_class("-detail", "-for-lack-of-room")

    def need_one(self) -> bool:
        """Return whether a sandbox is selected. Shows a message if none is."""
        if self.selected is None:
            self.notify("No sandbox is selected.", severity="warning")
        return self.selected is not None

    def action_back(self) -> None:
        """Go one step back: leave the detail, then remove the marks, then clear the filter."""
        typing = self.fleet.filter_line.input.has_focus
        if self.fleet.command_line.input.has_focus:
            self.fleet.command_line.close()
            return
        near = self.has_class("-detail") or self.detail.has_focus_within or self.detail.going_in
        if not typing and near:
            self.remove_class("-detail", "-for-lack-of-room")
            self.focus_list()
        elif self.table.marks and not typing:
            self.table.action_unmark()
        elif self.fleet.shown or typing:
            self.fleet.set_filter("")
            self.focus_list()

    def on_terminal_view_left(self) -> None:
        self.action_back()

    def action_leave_terminal(self) -> None:
        """Do nothing: this is only shown in the footer, and the terminal handles the key itself."""
        self.action_back()

    def action_fullscreen(self) -> None:
        """Show the detail on the whole screen, or go back to both."""
        if not self.has_class("-detail") and not self.need_one():
            return
        self.toggle_class("-detail")
        self.remove_class("-for-lack-of-room")
        if self.has_class("-detail"):
            self.open_detail()
        else:
            self.show_detail()
            self.focus_list()

    def action_tab(self, tab: str) -> None:
        """Open a tab of the detail."""
        if self.need_one():
            self.detail.pick(tab)
            self.open_detail()

    def action_step(self, by: int) -> None:
        """Open the next tab."""
        if self.need_one():
            self.detail.step(by)
            self.open_detail()

    def action_shell(self) -> None:
        """Go to the sandbox's shell, or open one."""
        if not self.need_one() or self.selected is None:
            return
        self.detail.pick("shell")
        self._make_room()
        self.show_detail()
        self.call_after_refresh(self.detail.shells.enter, self.detail.within(self.selected))

    def action_container(self) -> None:
        """Choose the container whose log, shell and files the tabs show."""
        if not self.need_one() or self.selected is None:
            return
        names = containers_of(self.selected)
        if len(names) < 2:
            self.notify(f"{shown_name(self.selected)} has one container.", severity="warning")
            return
        main = names[0]
        lines = [Choice(name, clean(name, cap=60), "", detail=_MAIN if name == main else "") for name in names]
        self.app.push_screen(MenuScreen(f"Containers of {shown_name(self.selected)}", lines), self._use_container)

    def _use_container(self, name: str | None) -> None:
        if name and self.selected is not None:
            self.detail.use(self.selected, name)
            self.open_detail()

    def action_shells(self) -> None:
        """Show every shell on one page. Opens one in each marked sandbox, or in the selected one if none is open."""
        chosen = self.marked or ([self.selected] if self.selected and not [*self.detail.shells.open] else [])
        self.post_message(ShellsRequested(chosen))

    def action_shell_choose(self) -> None:
        """Choose the shell, its user, folder and environment, and open it on the shells page."""
        if self.need_one() and self.selected is not None:
            self.post_message(ShellsRequested([self.selected], choose=True))

    def action_copy_mode(self) -> None:
        """Go into the sandbox's shell to copy from it or to search in it."""
        if self.need_one() and self.selected is not None:
            self.detail.pick("shell")
            self._make_room()
            self.show_detail()
            self.call_after_refresh(self.detail.shells.copy_mode, self.detail.within(self.selected))

    def action_side(self) -> None:
        """Move the detail beside the list, or below it."""
        self.split.turn()
        self.draw()

    def action_share(self, step: int) -> None:
        """Make the detail larger or smaller."""
        list_size, split = self.query_one("#list").size, self.split
        across = list_size.width * 100 // max(1, self.size.width)
        split.move(step, across if split.side else list_size.height * 100 // self.size.height, self.size.height)
        self.draw()
