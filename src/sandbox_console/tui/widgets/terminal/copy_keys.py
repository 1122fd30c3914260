"""The keys and the mouse of copy mode, as a base of the terminal widget."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.widgets.terminal.copy_mode import CopyMode, Kind
from sandbox_console.tui.widgets.terminal.emulator import Emulator, Point

_TOP, _MIDDLE, _BOTTOM = "top", "middle", "bottom"


class CopyKeys(Widget):
    """While ``copying`` is set, the widget shows a frozen screen, and no key goes to the guest."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"terminal--selection", "terminal--match", "terminal--status"}
    DEFAULT_CSS = """
    CopyKeys > .terminal--selection { background: $primary; color: $background; }
    CopyKeys > .terminal--match { background: $warning; color: $background; }
    CopyKeys > .terminal--status { background: $warning; color: $background; text-style: bold; }
    """
    ALLOW_SELECT = False  # Textual's selection does not move with the text, and copies what has scrolled into its place
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["copy"]

    emulator: Emulator

    class SearchRequested(Message):
        """The user wants to type what to look for. The answer goes to `search`."""

        def __init__(self, view: CopyKeys) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> CopyKeys:
            return self.view

    class LinksRequested(Message):
        """The user wants to see these addresses, which are hostile."""

        def __init__(self, view: CopyKeys, links: list[str]) -> None:
            super().__init__()
            self.view = view
            self.links = links

        @property
        def control(self) -> CopyKeys:
            return self.view

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.copying: CopyMode | None = None
        self._pressed: Point | None = None

    @property
    def shown(self) -> Emulator:
        """What is drawn: the guest's screen, or the frozen one."""
        return self.copying.screen if self.copying is not None else self.emulator

    # --- begin and end

    def begin_copy(self) -> CopyMode:
        """Freeze the screen, and let keys move over it. Does nothing if that is so already."""
        if self.copying is None:
            self.copying = CopyMode(self.emulator)
            self.refresh_bindings()
            self.refresh()
        return self.copying

    def end_copy(self) -> None:
        """Show the guest's screen again. Does nothing if it is shown already."""
        if self.copying is not None:
            copy_mode, self.copying, self._pressed = self.copying, None, None
            copy_mode.close()
            self.refresh_bindings()
            self.redraw()

    def redraw(self) -> None:
        """Read and draw the guest's screen again."""
        raise NotImplementedError

    def search(self, wanted: str) -> None:
        """Look for a text in the scrollback, and go to its last match."""
        self.begin_copy().search(wanted)
        self.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        return self.copying is not None or not action.startswith("copy_")

    # --- keys

    def action_copy_move(self, columns: int, rows: int) -> None:
        """Move the cursor."""
        if self.copying is not None:
            self.copying.move(columns, rows)
            self.refresh()

    def action_copy_page(self, pages: float) -> None:
        """Move by a part of the screen. Down from the newest line leaves, if nothing is selected."""
        if self.copying is not None:
            screen = self.copying.screen
            if pages > 0 and not self.copying.kind and screen.top + screen.rows >= screen.total:
                self.end_copy()
            else:
                self.copying.page(pages)
            self.refresh()

    def action_copy_word(self, direction: int) -> None:
        """Move by a word; 0 means to the end of it."""
        if self.copying is not None:
            self.copying.word(direction) if direction else self.copying.word_end()
            self.refresh()

    def action_copy_go(self, where: str) -> None:
        """Move to an end of the line, the screen or the scrollback."""
        if (mode := self.copying) is None:
            return
        screen = mode.screen
        rows = {
            "oldest": 0, "newest": screen.total - 1, _TOP: screen.top, _MIDDLE: screen.top + screen.rows // 2,
            _BOTTOM: screen.top + screen.rows - 1,
        }  # fmt: skip
        if where == "end":
            mode.line_end()
        else:
            mode.move_to(0, rows.get(where, mode.y))
        self.refresh()

    def action_copy_select(self, kind: Kind) -> None:
        """Begin to select cells, lines or a block; or end it."""
        if self.copying is not None:
            self.copying.select(kind)
            self.refresh()

    def action_copy_other_end(self) -> None:
        """Move the cursor to the other end of the selection."""
        if self.copying is not None:
            self.copying.other_end()
            self.refresh()

    def action_copy_text(self) -> None:
        """Copy the selection, or the line, to the clipboard, and go back to the guest's screen."""
        if self.copying is None:
            return
        text = self.copying.text
        self.end_copy()
        if text.strip():
            self.app.copy_to_clipboard(text)
            lines = text.count("\n") + 1
            self.app.notify(f"Copied {lines} lines" if lines > 1 else f"Copied {len(text)} characters", timeout=2)

    def action_copy_search(self) -> None:
        """Ask what to look for."""
        if self.copying is not None:
            self.post_message(self.SearchRequested(self))

    def action_copy_match(self, direction: int) -> None:
        """Go to the next match, towards older lines (-1) or newer ones (1)."""
        if self.copying is not None:
            self.copying.next_match(direction)
            self.refresh()

    def action_copy_links(self) -> None:
        """Show the addresses that are on the screen."""
        if self.copying is not None:
            self.post_message(self.LinksRequested(self, self.copying.links()))

    def action_copy_leave(self) -> None:
        """End the selection, or go back to the guest's screen."""
        if self.copying is not None and self.copying.kind:
            self.copying.select(self.copying.kind)
            self.refresh()
        else:
            self.end_copy()

    async def action_copy_help(self) -> None:
        """Show the keys of copy mode. Outside of it, the key is the guest's."""
        await self.run_action("app.help")

    # --- the mouse

    def press(self, x: int, y: int) -> None:
        """Note where a drag may begin."""
        self._pressed = (x, self.shown.top + y)
        self.capture_mouse()

    def drag(self, x: int, y: int) -> None:
        """Select from where the button was pressed. Beyond an edge the screen scrolls."""
        if self._pressed is None or (self.copying is None and (x, self.shown.top + y) == self._pressed):
            return
        mode = self.begin_copy()
        mode.select_from(self._pressed)
        mode.move_to(x, mode.screen.top + y)
        self.refresh()

    def release(self) -> None:
        """Copy what was selected with the mouse."""
        pressed, self._pressed = self._pressed, None
        self.release_mouse()
        if pressed is not None and self.copying is not None and self.copying.kind:
            self.action_copy_text()

    def on_click(self, event: events.Click) -> None:
        """Copy a word on a double click, a line on a triple click; show an address on Ctrl and click."""
        if event.button != 1 or (self.emulator.mouse_wanted and not event.shift):
            return
        row = self.shown.top + event.y
        if event.ctrl:
            mode = self.begin_copy()
            link = mode.link_at(event.x, row)
            self.end_copy()
            if link:
                self.post_message(self.LinksRequested(self, [link]))
        elif event.chain in (2, 3):
            mode = self.begin_copy()
            mode.move_to(event.x, row)
            mode.select_word((event.x, row)) if event.chain == 2 else mode.select("lines")
            self.action_copy_text()

    # --- drawing

    def with_copy_mode(self, strip: Strip, y: int) -> Strip:
        """Return a row of the frozen screen with matches, selection, cursor and place."""
        if (mode := self.copying) is None:
            return strip
        row = mode.screen.top + y
        match, selected = (self.get_component_rich_style(f"terminal--{one}") for one in ("match", "selection"))
        for start, end in mode.matches_in(row, strip.text):
            strip = styled(strip, start, end, match)
        if (span := mode.selected_in(row)) is not None:
            strip = styled(strip, *span, selected)
        if row == mode.y:
            strip = styled(strip, mode.x, mode.x + 1, Style(reverse=True, bold=True))
        if y == 0 and strip.cell_length > (size := len(status_text := f" {mode.status_text} ")):
            strip = Strip.join(
                [strip.crop(0, strip.cell_length - size), Strip([Segment(status_text, self._status_style)], size)]
            )
        return strip

    @property
    def _status_style(self) -> Style:
        return self.get_component_rich_style("terminal--status")


def styled(strip: Strip, start: int, end: int, style: Style) -> Strip:
    """Return the strip with a style over the cells from ``start`` to ``end``."""
    end = min(end, strip.cell_length)
    if start >= end:
        return strip
    before, inside, after = (strip.crop(0, start), strip.crop(start, end), strip.crop(end))
    return Strip.join([before, Strip(Segment.apply_style(inside, post_style=style), inside.cell_length), after])
