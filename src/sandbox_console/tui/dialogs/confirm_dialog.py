"""The question before an action: what it affects, what it does and, for the most dangerous ones, the id to type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

_COMMAND_SHOWN = 1000
"""Characters of the command. For thousands of sandboxes, wrapping it would take seconds, and four lines are shown."""


@dataclass
class Keep:
    """A third answer of a question: to keep something first, then to agree. ``chosen`` is set by the answer."""

    label: str
    chosen: bool = False


class ConfirmScreen(ModalScreen[bool]):
    """Returns True when confirmed. The focus is on Cancel, or on the line for the text that must be typed."""

    DEFAULT_CSS = """
    ConfirmScreen { align: center middle; background: $background 60%; }
    ConfirmScreen > Vertical {
        width: 72;
        max-width: 94%;
        height: auto;
        max-height: 100%;
        background: $surface;
        border: round $warning;
        padding: 0 1;
        overflow-y: auto;
        border-title-color: $warning;
        border-subtitle-color: $text-muted;
    }
    ConfirmScreen.-danger > Vertical { border: round $error; border-title-color: $error; }
    ConfirmScreen Static { height: auto; margin-bottom: 1; }
    ConfirmScreen #listed { height: auto; max-height: 35vh; margin-bottom: 1; background: $panel; padding: 0 1; }
    ConfirmScreen #listed Static { margin-bottom: 0; }
    ConfirmScreen #command { color: $text-muted; max-height: 4; }
    ConfirmScreen.-short #listed { max-height: 6; }
    ConfirmScreen.-short #command { max-height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    ConfirmScreen Input { margin-bottom: 1; height: 1; border: none; padding: 0 1; background: $panel; }
    ConfirmScreen Horizontal { height: auto; align-horizontal: right; }
    ConfirmScreen Button { margin-left: 2; min-width: 12; height: 1; border: none; line-pad: 1; }
    ConfirmScreen Button:focus { text-style: bold reverse; }
    """
    AUTO_FOCUS = "#typed, #cancel"  # the first of them that exists
    VERTICAL_BREAKPOINTS = [(0, "-short"), (30, "-tall")]  # noqa: RUF012 - Textual declares it without ClassVar
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "dismiss(False)", "Cancel"),
        Binding("y", "agree", "Confirm"),
        Binding("k", "keep_first", "Keep first, then confirm", show=False),
        Binding("c,ctrl+y", "copy", "Copy the command"),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]

    def __init__(
        self,
        title: str,
        body: Content,
        verb: str,
        *,
        command: str = "",
        danger: bool = False,
        accepts: Callable[[str], bool] | None = None,
        to_type: str = "",
        listed: Content | None = None,
        leave: str = "Cancel",
        keep: Keep | None = None,
    ) -> None:
        super().__init__(classes="-danger" if danger else "")
        self._title = title
        self._body = body
        self._verb = verb
        self._command = command
        self._accepts = accepts
        self._to_type = to_type
        self._listed = listed
        self._leave = leave
        self._keep = keep

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            yield Static(self._body, markup=False, id="body")
            if self._listed is not None:
                with VerticalScroll(id="listed"):
                    yield Static(self._listed, markup=False)
            yield from self.more()
            if self._command:
                box.border_subtitle = Content("Ctrl+Y copies the command")
                shown = self._command[:_COMMAND_SHOWN] + ("…" if len(self._command) > _COMMAND_SHOWN else "")
                yield Static(Content(f"$ {shown}"), id="command", markup=False)
            if self._accepts is not None:
                yield Static(Content.assemble("Type ", (self._to_type, "bold $text-error"), " to confirm:"))
                yield Input(id="typed", compact=True)
            with Horizontal():
                yield Button(Content(self._leave), id="cancel", compact=True)
                yield from self.more_answers()
                agree = Button(Content(self._verb), id="agree", variant=self._variant, compact=True)
                agree.disabled = self._accepts is not None
                yield agree

    def more(self) -> ComposeResult:
        """Yield widgets to show below the body. For subclasses."""
        yield from ()

    def more_answers(self) -> ComposeResult:
        """Yield buttons to show between the two answers."""
        if self._keep is not None:
            yield Button(Content(self._keep.label), id="keep-first", compact=True)

    @property
    def _variant(self) -> Literal["error", "warning"]:
        return "error" if self.has_class("-danger") else "warning"

    @property
    def _agreed(self) -> bool:
        return self._accepts is None or self._accepts(self.query_one("#typed", Input).value)

    def on_input_changed(self) -> None:
        self.query_one("#agree", Button).disabled = not self._agreed

    def on_input_submitted(self) -> None:
        self.action_agree()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "keep-first":
            self.action_keep_first()
        else:
            self.dismiss(event.button.id == "agree" and self._agreed)

    def action_keep_first(self) -> None:
        """Keep first, then agree, if the question offers that."""
        if self._keep is not None and self._agreed:
            self._keep.chosen = True
            self.dismiss(True)

    def action_copy(self) -> None:
        """Copy the equivalent command."""
        if self._command:
            self.app.copy_to_clipboard(self._command)
            self.notify("Copied the command")

    def action_agree(self) -> None:
        """Confirm, if the required text has been typed."""
        if self._agreed:
            self.dismiss(True)


class LeaveScreen(ConfirmScreen):
    """The question before a page with unapplied input is left. Returns None when the input is to be kept."""

    def action_keep_first(self) -> None:
        """Leave, and keep the input."""
        self.dismiss(None)

    def more_answers(self) -> ComposeResult:
        yield Button(Content("Keep it"), id="keep", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "keep":
            event.prevent_default()
            self.dismiss(None)
