"""A page of text, such as the help, messages, backends, or one audit row."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Static


class TextScreen(ModalScreen[None]):
    """Shows a text, and closes."""

    DEFAULT_CSS = """
    TextScreen { align: center middle; background: $background 60%; }
    TextScreen > Vertical {
        width: 90%;
        max-width: 110;
        height: auto;
        max-height: 90%;
        background: $surface;
        border: round $primary;
        padding: 0 1;
        border-title-color: $primary;
        border-subtitle-color: $text-muted;
    }
    TextScreen VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1; }
    TextScreen Static { height: auto; padding-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "dismiss", "Close"),
        Binding("down,j", "scroll(1)", "Down", show=False),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("g,home", "scroll(-100000)", "Top", show=False),
        Binding("G,end", "scroll(100000)", "End", show=False),
    ]

    def __init__(self, title: str, content: Content | Callable[[int], Content]) -> None:
        """``content`` may be a function of the number of cells in a line."""
        super().__init__()
        self._title = title
        self._made = content
        self._text = content if isinstance(content, Content) else content(0)

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("Esc closes")
            with VerticalScroll():
                yield Static(self._text, markup=False)

    def on_resize(self) -> None:
        if not isinstance(self._made, Content):
            self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        for text in self.query(Static):
            if not isinstance(self._made, Content) and (width := text.content_size.width):
                self._text = self._made(width)
                text.update(self._text)

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


class TooSmallScreen(ModalScreen[None]):
    """Covers the app while the terminal is smaller than ``least``, in columns and rows."""

    DEFAULT_CSS = """
    TooSmallScreen { align: center middle; background: $background; }
    TooSmallScreen Static { width: auto; text-align: center; }
    """

    def __init__(self, least: tuple[int, int]) -> None:
        super().__init__()
        self._least = least

    def compose(self) -> ComposeResult:
        least = " x ".join(map(str, self._least))
        words = f"This terminal is too small.\n{least} is the least.\nEnlarge it, or leave by Ctrl+Q."
        yield Static(Content(words), markup=False)

    def on_screen_resume(self) -> None:
        """Check the size again after a page above this one has closed: the terminal may be large enough now."""
        if too_small(self.app.size, self._least):
            return
        self.dismiss(None)


def too_small(size: Size, least: tuple[int, int]) -> bool:
    """Return whether a size is less than the minimum columns and rows."""
    return size.width < least[0] or size.height < least[1]
