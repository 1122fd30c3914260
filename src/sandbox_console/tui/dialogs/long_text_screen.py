"""A page for a long text. Only the visible lines are laid out."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import TextArea

from sandbox_console.tui.dialogs.text_screen import TextScreen

LONG = 200
"""The number of lines from which this page is used: for 8,000, a Static takes 1 s of CPU time, this page 0.2 s."""


class _Page(TextArea):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", show=False),
        Binding("down,j", "scroll_down", show=False),
        Binding("pageup,ctrl+b", "page_up", show=False),
        Binding("pagedown,ctrl+f,space", "page_down", show=False),
        Binding("home,g", "scroll_home", show=False),
        Binding("end,G", "scroll_end", show=False),
    ]

    def action_scroll_home(self) -> None:
        """Go to the top without animation, which takes a second over thousands of lines."""
        self.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """Go to the end without animation."""
        self.scroll_end(animate=False)


class LongTextScreen(TextScreen):
    """Shows a text, lets the mouse select what Ctrl+C copies, and closes. The text must be clean."""

    DEFAULT_CSS = """
    LongTextScreen > Vertical { height: 90%; }
    LongTextScreen TextArea, LongTextScreen TextArea:focus {
        border: none; padding: 0; height: 1fr; background: $surface; background-tint: transparent;
        scrollbar-size-vertical: 1;
    }
    """

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("Esc closes")
            page = _Page(self._text.plain, read_only=True, show_line_numbers=False, soft_wrap=True)
            page.show_cursor = False
            yield page


def text_screen(title: str, content: Content) -> TextScreen:
    """Return the page for a text, depending on its length."""
    return (LongTextScreen if content.plain.count("\n") > LONG else TextScreen)(title, content)
