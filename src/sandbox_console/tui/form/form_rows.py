"""The rows of the form."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Paste
from textual.widgets import Checkbox, Input, Static

from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.text.form_values import BREAK, Field

_OF_LINES = ("field-command", "field-env")


class FormRow(Vertical):
    """A field with its label before it and its problem under it; ``fixed`` is why it cannot be changed."""

    def __init__(self, field: Field, value: str, hint: str, fixed: str = "") -> None:
        super().__init__()
        self.field = field
        self._value = value
        self._hint = hint if not fixed else "not told"
        self._fixed = fixed

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(Content(self.field.label), classes="label")
            yield FormInput(self._value, placeholder=self._hint, id=f"field-{self.field.name}", compact=True,
                        disabled=bool(self._fixed))  # fmt: skip
        yield Static(classes="problem", markup=False)

    @property
    def changed(self) -> bool:
        """Whether it holds something else than when it opened."""
        return self.query_one(Input).value != self._value

    def tell(self, problem: str) -> None:
        """Show what is wrong, or with an empty text that nothing is."""
        self.set_class(bool(problem), "-wrong")
        put(self, ".problem", plain(f"✕ {problem}" if problem else ""))


class FormInput(Input):
    """One line; where a script may stand, a paste of several lines keeps their breaks, each as a sign."""

    def _on_paste(self, event: Paste) -> None:
        if self.id in _OF_LINES and event.text:
            event.prevent_default().stop()
            self.replace(BREAK.join(event.text.splitlines()), *self.selection)


class TickBox(Checkbox):
    """A check box that tells its state by its sign, not by a colour alone."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name
        return "yes" if self.value else "no"
