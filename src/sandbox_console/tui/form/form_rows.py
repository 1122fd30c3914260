"""The rows of the form: a line of text or a check box, with any problem shown below it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Paste
from textual.widgets import Checkbox, Input, Select, Static

from sandbox_console.model.spec_fields import Kind, SpecField
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.text.form_values import BREAK, TICKED
from sandbox_console.tui.widgets.tick_box import TickBox

_OF_LINES = (Kind.WORDS, Kind.TABLE)


class FormRow(Vertical):
    """A field with its label before it and its problem below it.

    ``value`` is its text without changes, and ``typed`` the text that it begins with if a draft was kept. ``fixed`` is
    the reason why it cannot be changed.
    """

    def __init__(self, field: SpecField, value: str, hint: str = "", fixed: str = "", typed: str | None = None) -> None:
        super().__init__()
        self.field = field
        self._value = value
        self.begins = value if typed is None or fixed else typed
        self._hint = hint if not fixed else "not known"
        self._fixed = fixed

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(Content(self.field.label), classes="label")
            yield self._entry()
        yield Static(classes="problem", markup=False)

    def _entry(self) -> Input | Checkbox:
        return FormInput(self.begins, placeholder=self._hint, id=f"field-{self.field.name}", compact=True,
                         disabled=bool(self._fixed), lines=self.field.kind in _OF_LINES)  # fmt: skip

    @property
    def text(self) -> str:
        """The current text."""
        return self.query_one(Input).value

    @property
    def changed(self) -> bool:
        """Whether the text differs from the value without changes."""
        return self.text != self._value

    def focus_entry(self) -> None:
        """Focus the place where the field is changed."""
        self.query_one(f"#field-{self.field.name}").focus()

    def reset(self) -> None:
        """Show the value from when the form opened."""
        self.put(self._value)

    def put(self, text: str) -> None:
        """Replace the text."""
        self.query_one(Input).value = text

    def tell(self, problem: str) -> None:
        """Show a problem, or clear it with an empty text."""
        self.set_class(bool(problem), "-wrong")
        put(self, ".problem", plain(f"✕ {problem}" if problem else ""))


class TickRow(FormRow):
    """A field with two values. Ticked means the one that is not the default."""

    def _entry(self) -> Checkbox:
        label = self.field.hint or self.field.help
        return TickBox(label, value=self.begins == TICKED, id=f"field-{self.field.name}", compact=True,
                       disabled=bool(self._fixed))  # fmt: skip

    @property
    def text(self) -> str:
        return TICKED if self.query_one(Checkbox).value else ""

    def put(self, text: str) -> None:
        self.query_one(Checkbox).value = text == TICKED


class ChoiceRow(FormRow):
    """A field with two values that several sandboxes do not share: it stays as it is in each, or becomes one of them.

    Its text is that of a ticked box, empty, or ``value`` while nothing changes.
    """

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(Content(self.field.label), classes="label")
            named = ((f"differs: {self._hint}", self._value), ("yes", TICKED), ("no", ""))
            yield ChoiceSelect([(Content(name), text) for name, text in named], value=self.begins, allow_blank=False,
                               compact=True, id=f"field-{self.field.name}")  # fmt: skip
        yield Static(classes="problem", markup=False)

    @property
    def text(self) -> str:
        return str(self.query_one(ChoiceSelect).value)

    def put(self, text: str) -> None:
        self.query_one(ChoiceSelect).value = text


class ChoiceSelect(Select[str], inherit_bindings=False):
    """A choice whose Up and Down go to other fields while it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "show_overlay", "Show menu", show=False)]


class LineInput(Input, inherit_bindings=False):
    """An input whose Up and Down go to other fields. Textual's own scroll its one line by them."""

    BINDINGS: ClassVar[list[BindingType]] = Input.BINDINGS


class FormInput(LineInput):
    """A one-line input. With ``lines``, pasted line breaks are kept, each shown as a sign."""

    def __init__(self, value: str, *, placeholder: str, id: str, compact: bool, disabled: bool, lines: bool) -> None:
        super().__init__(value, placeholder=placeholder, id=id, compact=compact, disabled=disabled)
        self._lines = lines

    def _on_paste(self, event: Paste) -> None:
        if self._lines and event.text:
            event.prevent_default().stop()
            self.replace(BREAK.join(event.text.splitlines()), *self.selection)
