"""The parts of the page of all shells that its actions share: what is drawn, and which shell has the keys."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

from textual import events
from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.timer import Timer

from sandbox_console.model.text import clean
from sandbox_console.tui.keys.keymap import hints
from sandbox_console.tui.shell.held_keys import QUIET_S
from sandbox_console.tui.shell.open_shells import OpenShells
from sandbox_console.tui.shell.shell import Shell
from sandbox_console.tui.shell.shell_box import ShellArea, ShellBox
from sandbox_console.tui.shell.shell_tabs import TabLine, TabTitle
from sandbox_console.tui.shell.tab_layout import regions
from sandbox_console.tui.text.formatting import sandbox_host
from sandbox_console.tui.widgets.key_bar import KeyBar

DRAW_S = 0.05
"""A guest may change its title and ring its bell thousands of times a second: that is drawn at most this often."""


class ShellPage(Screen[None]):
    """Draws `OpenShells`: a line of tabs, and the shells of the current one."""

    AUTO_FOCUS = ""

    def __init__(self, shells: OpenShells) -> None:
        super().__init__()
        self.shells = shells
        self._boxes: dict[int, ShellBox] = {}
        self._drawing: Timer | None = None

    def compose(self) -> ComposeResult:
        yield TabLine()
        yield ShellArea(self._places)
        yield KeyBar()

    def on_mount(self) -> None:
        self.shells.listeners.append(self._draw_soon)
        self._draw_soon()

    def on_unmount(self) -> None:
        self.shells.listeners.remove(self._draw_soon)
        self.shells.broadcasting = False

    def on_resize(self) -> None:
        self._draw_soon()

    def _places(self, size: Size) -> Mapping[int, Region]:
        tab = self.shells.tab
        if tab is None:
            return {}
        room = Region(0, 0, *size)
        return {tab.active: room} if tab.zoomed else regions(tab.node, room)

    def _draw_soon(self) -> None:
        if self._drawing is None and self.is_attached:
            self._drawing = self.set_timer(DRAW_S, self.draw)

    def draw(self) -> None:
        """Show the current tabs and the states of the shells."""
        self._drawing = None
        if not (self.is_attached and self.query(ShellArea)):  # its parts are not there yet, or no longer
            return
        self._sync_boxes()
        tab, shells = self.shells.tab, self.shells
        if tab is None:
            self.dismiss()
            return
        lone = len(tab.shells) == 1
        again = hints(self, ("shells-type", "opens it again"), ("shells-close", "closes it"))
        for number, box in self._boxes.items():
            box.display = number in tab.shells and (not tab.zoomed or number == tab.active)
            if box.is_mounted:
                box.show(active=number == tab.active, lone=lone, broadcast=shells.broadcasting, again=again)
            else:
                self._draw_soon()
        self.set_class(shells.broadcasting, "-broadcast")
        for box in self._boxes.values():
            box.refresh(layout=True)  # of the children, or the area would keep the places that it knows
        titles = [self._title(at) for at in range(len(shells.tabs))]
        self.query_one(TabLine).show(titles, shells.current, self._state(), danger=shells.broadcasting)
        self._keep_focus()
        for box in self._boxes.values():
            if box.view is not None and box.view.is_mounted and not box.notice.has_focus:
                box.notice.display = False

    def _sync_boxes(self) -> None:
        area, there = self.query_one(ShellArea), {shell.number: shell for shell in self.shells}
        for number in self._boxes.keys() - there.keys():
            self._boxes.pop(number).remove()
        for number in there.keys() - self._boxes.keys():
            box = self._boxes[number] = ShellBox(there[number], self._typed)
            area.mount(box)

    def _title(self, at: int) -> TabTitle:
        tab = self.shells.tabs[at]
        shells = [self.shells[number] for number in tab.shells]
        more = f" +{len(shells) - 1}" if len(shells) > 1 else ""
        name = tab.name or f"{self.shells[tab.active].title}{more}"
        signs = ("♪" if any(shell.rang for shell in shells) else "") + ("Z" if tab.zoomed else "")
        return TabTitle(name, signs + ("■" if all(not shell.is_open and shell.reason for shell in shells) else ""))

    def _state(self) -> tuple[str, str]:
        shell, marked = self.shells.active, self.shells.marked
        if self.shells.broadcasting:
            return f"BROADCAST to {len(marked)} shells", "bold"
        if shell is None or shell.link is None or not shell.is_open:
            return (f"{len(marked)} marked", "") if marked else ("", "")
        session = shell.link.session
        without = f", without {clean(', '.join(session.without), cap=30)}" if session.without else ""
        kept = f", kept as {session.kept}" if session.kept else ""
        facts = (
            f"{kept}{', recorded' if session.recorded else ''}{without}{f'  {len(marked)} marked' if marked else ''}"
        )
        return f"● {sandbox_host(shell.sandbox)}{facts}", "$text-warning" if without else "$text-success"

    def _typed(self, shell: Shell, typed: events.Key | str) -> None:
        """Handle what was typed into a shell."""

    # --- the focus

    @property
    def _active_box(self) -> ShellBox | None:
        return self._boxes.get(self.shells.tab.active) if self.shells.tab else None

    def _type(self) -> None:
        """Let the keys go to the active shell."""
        self.call_after_refresh(self._focus_active)

    def _focus_active(self) -> None:
        box = self._active_box
        if box is None or self.app.screen is not self:
            return
        if not box.is_mounted:
            self.set_timer(DRAW_S, self._focus_active)
            return
        if box.view is not None and box.view.is_mounted and box.shell.is_open:
            self.set_focus(box.view)
        elif box.shell.opening or box.shell.is_open:
            self.set_focus(box.notice)
            self._draw_soon()
        else:
            self.set_focus(None)

    def _keep_focus(self) -> None:
        """Follow a shell that has opened, ended or left the tab under the keys."""
        box, focused = self._active_box, self.focused
        if box is None or focused is None or not box.is_mounted:
            return
        if focused is box.notice and box.view is not None and not box.view.is_mounted:
            self._draw_soon()  # until then the notice holds the keys
        elif focused is box.notice and box.view is not None:
            typed = box.notice.release()
            self.set_focus(box.view)
            for one in typed:
                box.view.on_key(one) if isinstance(one, events.Key) else box.view.on_paste(one)
        elif focused is box.notice and not box.shell.opening:
            box.notice.release()
            self.set_timer(QUIET_S, self._drop_focus)
        elif focused is box.view and not box.shell.is_open and (box.view is None or box.view.copying is None):
            self.set_timer(QUIET_S, self._drop_focus)
        elif box not in focused.ancestors:
            self._focus_active()

    def _drop_focus(self) -> None:
        """Give the keys back to the page, once the user has noticed that the shell is gone."""
        box = self._active_box
        last = max(box.view.typed_at, box.view.detached_at) if box is not None and box.view is not None else 0.0
        if (left := QUIET_S - (monotonic() - last)) > 0:
            self.set_timer(left, self._drop_focus)
            return
        reading = box is not None and box.view is not None and box.view.copying is not None
        gone = box is not None and not box.shell.is_open and not box.shell.opening
        if gone and not reading and self.focused is not None:
            self.set_focus(None)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        box = next((node for node in event.widget.ancestors if isinstance(node, ShellBox)), None)
        if box is not None and box.shell in self.shells:
            self.shells.use(box.shell)

    def on_terminal_view_left(self) -> None:
        self.set_focus(None)
