"""A long text on a page of its own. Only the lines in view are laid out."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import TextArea

from sandbox_console.tui.dialogs.text_screen import TextScreen

LONG = 200
"""Lines from which on it is worth it: a Static takes 1 s of CPU for 8,000, this 0.2 s."""


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
        """Go to the top; gliding there over thousands of lines takes a second."""
        self.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """Go to the end."""
        self.scroll_end(animate=False)


class LongTextScreen(TextScreen):
    """Read, choose with the mouse what Ctrl+C copies, and close. The text must be clean."""

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
    """The page for a text, by its length."""
    return (LongTextScreen if content.plain.count("\n") > LONG else TextScreen)(title, content)
