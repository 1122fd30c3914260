"""The rows of the form: a line of text or a box to tick, with what is wrong under it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Paste
from textual.widgets import Checkbox, Input, Static

from sandbox_console.model.spec_fields import Kind, SpecField
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.text.form_values import BREAK, TICKED

_OF_LINES = (Kind.WORDS, Kind.TABLE)


class FormRow(Vertical):
    """A field with its label before it and its problem under it.

    ``value`` is the text that it begins with, ``fixed`` why it cannot be changed.
    """

    def __init__(self, field: SpecField, value: str, hint: str = "", fixed: str = "") -> None:
        super().__init__()
        self.field = field
        self._value = value
        self._hint = hint if not fixed else "not known"
        self._fixed = fixed

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(Content(self.field.label), classes="label")
            yield self._entry()
        yield Static(classes="problem", markup=False)

    def _entry(self) -> Input | Checkbox:
        return FormInput(self._value, placeholder=self._hint, id=f"field-{self.field.name}", compact=True,
                         disabled=bool(self._fixed), lines=self.field.kind in _OF_LINES)  # fmt: skip

    @property
    def text(self) -> str:
        """What is written in it now."""
        return self.query_one(Input).value

    @property
    def changed(self) -> bool:
        """Whether it holds something else than when it opened."""
        return self.text != self._value

    def tell(self, problem: str) -> None:
        """Show what is wrong, or with an empty text that nothing is."""
        self.set_class(bool(problem), "-wrong")
        put(self, ".problem", plain(f"✕ {problem}" if problem else ""))


class TickRow(FormRow):
    """A field of two values: ticked is the one that is not the default."""

    def _entry(self) -> Checkbox:
        label = self.field.hint or self.field.help
        return TickBox(label, value=self._value == TICKED, id=f"field-{self.field.name}", compact=True,
                       disabled=bool(self._fixed))  # fmt: skip

    @property
    def text(self) -> str:
        return TICKED if self.query_one(Checkbox).value else ""


class FormInput(Input):
    """One line; with ``lines`` a paste of several lines keeps their breaks, each as a sign."""

    def __init__(self, value: str, *, placeholder: str, id: str, compact: bool, disabled: bool, lines: bool) -> None:
        super().__init__(value, placeholder=placeholder, id=id, compact=compact, disabled=disabled)
        self._lines = lines

    def _on_paste(self, event: Paste) -> None:
        if self._lines and event.text:
            event.prevent_default().stop()
            self.replace(BREAK.join(event.text.splitlines()), *self.selection)


class TickBox(Checkbox):
    """A check box that shows its state by a word, not by a colour alone."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name
        return "yes" if self.value else "no"
