"""One line to type over the screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input


class AskScreen(ModalScreen[str]):
    """Gives what was typed; an empty text where nothing was."""

    DEFAULT_CSS = """
    AskScreen { align: center middle; background: $background 60%; }
    AskScreen > Vertical {
        width: 70; max-width: 94%; height: 3; background: $surface; border: round $primary;
        border-title-color: $primary; border-subtitle-color: $text-muted;
    }
    AskScreen Input { border: none; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def __init__(self, title: str, placeholder: str) -> None:
        super().__init__()
        self._title = title
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("Enter does it, Esc leaves")
            yield Input(placeholder=self._placeholder, compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_close(self) -> None:
        """Type nothing."""
        self.dismiss("")
