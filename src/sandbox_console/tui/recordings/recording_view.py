"""The widget that shows the screen of a recording, in the recorded size."""

from __future__ import annotations

from textual import events
from textual.containers import ScrollableContainer
from textual.geometry import Region, Size
from textual.strip import Strip

from sandbox_console.tui.widgets.terminal.copy_keys import CopyKeys
from sandbox_console.tui.widgets.terminal.emulator import Emulator


class RecordedArea(ScrollableContainer, can_focus=False, inherit_bindings=False):
    """Scrolls a `RecordedScreen` that is larger than the page. The arrows and the other keys are the player's."""


class RecordedScreen(CopyKeys, can_focus=True):
    """Draws an emulator that something else feeds. Nothing that is typed goes to it.

    It is as large as the recorded terminal, so put it into a container that scrolls.
    """

    DEFAULT_CSS = "RecordedScreen { width: auto; height: auto; background: black; color: #d0d0d0; }"

    def __init__(self, emulator: Emulator) -> None:
        super().__init__()
        self.emulator = emulator
        self._drawn: Emulator | None = None

    def show(self, emulator: Emulator) -> None:
        """Draw what an emulator shows now, which may be another one than before or have another size."""
        if self.copying is not None:  # the frozen screen stays
            self.emulator = emulator
            return
        whole = emulator is not self._drawn or (emulator.cols, emulator.rows) != self.size
        self.emulator = self._drawn = emulator
        changed = emulator.refresh()
        if whole:
            self.refresh(layout=True)
        elif changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def redraw(self) -> None:
        self._drawn = None
        self.show(self.emulator)

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002 - Textual's signature
        return self.shown.cols

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002 - as above
        return self.shown.rows

    def render_line(self, y: int) -> Strip:
        shown = self.shown
        if y >= shown.rows:
            return Strip.blank(self.size.width, self.rich_style)
        strip = self.with_copy_mode(Strip(shown.line(y), shown.cols), y)
        return strip.apply_style(self.rich_style).adjust_cell_length(self.size.width, self.rich_style)

    def on_unmount(self) -> None:
        self.end_copy()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1:
            self.press(event.x, event.y)

    def on_mouse_up(self) -> None:
        self.release()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if event.button == 1:
            self.drag(event.x, event.y)
