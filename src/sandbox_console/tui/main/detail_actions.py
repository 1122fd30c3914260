"""The keys of the main screen that go between the list and the detail, and share the room between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message_pump import MessagePump

if TYPE_CHECKING:
    from sandbox_console.tui.main.main_screen import MainScreen


class DetailActions(MessagePump):
    """Mixed into the main screen.

    Its class ``-detail``: the detail has all the room; ``-for-lack-of-room``: only because both do not fit.
    """

    @property
    def _whole(self) -> MainScreen:
        screen: MainScreen = self  # type: ignore[assignment]
        return screen

    def focus_list(self) -> None:
        """Go to the rows."""
        main = self._whole
        main.detail.leave()
        main.set_focus(main.table)
        main.call_after_refresh(main.draw)

    def open_detail(self) -> None:
        """Go to the detail."""
        self._make_room()
        self._whole.show_detail()
        self._whole.detail.focus_soon()

    def _make_room(self) -> None:
        if not self._whole.has_class("-wide"):
            self._whole.add_class("-detail", "-for-lack-of-room")

    def need_one(self) -> bool:
        """Whether there is a sandbox to look at; says so where there is none."""
        if self._whole.selected is None:
            self._whole.notify("No sandbox is selected.", severity="warning")
        return self._whole.selected is not None

    def action_back(self) -> None:
        """One step back: out of the detail, then no marks, then out of the filter."""
        main = self._whole
        typing = main.fleet.filter_line.input.has_focus
        if main.fleet.command_line.input.has_focus:
            main.fleet.command_line.close()
            return
        near = main.has_class("-detail") or main.detail.has_focus_within or main.detail.going_in
        if not typing and near:
            main.remove_class("-detail", "-for-lack-of-room")
            self.focus_list()
        elif main.table.marks and not typing:
            main.table.action_unmark()
        elif main.fleet.shown or typing:
            main.fleet.set_filter("")
            self.focus_list()

    def on_terminal_view_left(self) -> None:
        self.action_back()

    def action_leave_terminal(self) -> None:
        """Shown in the footer; the terminal itself takes the key."""
        self.action_back()

    def action_fullscreen(self) -> None:
        """Give the whole screen to the detail, or take it back."""
        main = self._whole
        if not main.has_class("-detail") and not self.need_one():
            return
        main.toggle_class("-detail")
        main.remove_class("-for-lack-of-room")
        if main.has_class("-detail"):
            self.open_detail()
        else:
            main.show_detail()
            self.focus_list()

    def action_tab(self, tab: str) -> None:
        """Look at a tab of the detail."""
        if self.need_one():
            self._whole.detail.pick(tab)
            self.open_detail()

    def action_step(self, by: int) -> None:
        """Look at the next tab."""
        if self.need_one():
            self._whole.detail.step(by)
            self.open_detail()

    def action_shell(self) -> None:
        """Go to the sandbox's shell, or open one."""
        main = self._whole
        if not self.need_one() or main.selected is None:
            return
        main.detail.pick("shell")
        self._make_room()
        main.show_detail()
        main.call_after_refresh(main.detail.shells.enter, main.selected)

    def action_side(self) -> None:
        """The detail beside the list, or under it."""
        self._whole.split.turn()
        self._whole.draw()

    def action_share(self, step: int) -> None:
        """Give the detail more room, or less."""
        main = self._whole
        place, split = main.query_one("#list").size, main.split
        across = place.width * 100 // max(1, main.size.width)
        split.move(step, across if split.side else place.height * 100 // main.size.height)
        main.draw()
