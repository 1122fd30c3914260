"""A dialog with one line to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put


class AskScreen(ModalScreen[str]):
    """Returns the typed text, or an empty string if there is none.

    ``help_text`` describes what it will do. ``command`` is the equivalent command line for the text typed so far.
    """

    DEFAULT_CSS = """
    AskScreen { align: center middle; background: $background 60%; }
    AskScreen > Vertical {
        width: 70; max-width: 94%; height: auto; background: $surface; border: round $primary;
        border-title-color: $primary; border-subtitle-color: $text-muted;
    }
    AskScreen Input { border: none; height: 1; }
    AskScreen Static { height: auto; max-height: 4; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close"),
        Binding("ctrl+y", "copy", "Copy the command"),
    ]

    def __init__(
        self,
        title: str,
        placeholder: str,
        value: str = "",
        *,
        help_text: str = "",
        command: Callable[[str], str] | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._placeholder = placeholder
        self._value = value
        self._help_text = help_text
        self._command = command

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = plain(self._title)
            copies = ", Ctrl+Y copies the command" if self._command else ""
            box.border_subtitle = Content(f"Enter does it, Esc leaves{copies}")
            if self._help_text:
                yield Static(plain(self._help_text), markup=False)
            yield Input(self._value, placeholder=self._placeholder, compact=True)
            if self._command:
                yield Static(id="command", markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._command:
            put(self, "#command", plain(f"$ {self._command(event.value.strip())}"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_copy(self) -> None:
        """Copy the equivalent command."""
        if self._command:
            self.app.copy_to_clipboard(self._command(self.query_one(Input).value.strip()))
            self.notify("Copied the command")

    def action_close(self) -> None:
        """Close without a text."""
        self.dismiss("")
