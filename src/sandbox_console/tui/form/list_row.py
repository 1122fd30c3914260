"""A row of the form for a list: an entry a line, and below them a line in which one is added or changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import DescendantBlur, Paste
from textual.message import Message
from textual.widgets import Input, OptionList, Static

from sandbox_console.model.spec_fields import SpecField
from sandbox_console.tui.form.entry_list import Entry, EntryList
from sandbox_console.tui.form.form_rows import FormRow, LineInput

Notes = Callable[[Sequence[str]], Sequence[str]]
"""Returns a note for each entry, such as what is wrong with it; empty if there is nothing to say."""


class ListRow(FormRow):
    """The entries are removed and changed in the list; what is in the line below counts as entered.

    ``notes`` says what there is to know about each entry.
    """

    DEFAULT_CSS = """
    ListRow .list-line { height: auto; }
    ListRow .list-box { width: 1fr; height: auto; }
    """

    class Changed(Message):
        """The entries have changed."""

        def __init__(self, row: FormRow) -> None:
            super().__init__()
            self.row = row

    def __init__(
        self, field: SpecField, value: str, hint: str = "", fixed: str = "", typed: str | None = None,
        notes: Notes = lambda entries: [""] * len(entries),
    ) -> None:  # fmt: skip
        super().__init__(field, value, hint, fixed, typed)
        self._entries = self.begins.split()
        self._notes = notes
        self._changing: tuple[int, str] | None = None

    def compose(self) -> ComposeResult:
        name = self.field.name
        with Horizontal(classes="list-line"):
            yield Static(Content(self.field.label), classes="label")
            with Vertical(classes="list-box"):
                yield EntryList(id=f"list-{name}", disabled=bool(self._fixed))
                yield EntryInput(placeholder=self._hint, id=f"field-{name}", compact=True, disabled=bool(self._fixed))
                yield from self.more()
        yield Static(classes="problem", markup=False)

    def more(self) -> ComposeResult:
        """Yield widgets to show below the line. For subclasses."""
        yield from ()

    def on_mount(self) -> None:
        self._show()

    @property
    def entries(self) -> list[str]:
        """The entries, with those of the line, which are not in the list yet."""
        added = [one for line in self.query(f"#field-{self.field.name}").results(Input) for one in split(line.value)]
        at = len(self._entries) if self._changing is None else self._changing[0]
        return [*self._entries[:at], *added, *self._entries[at:]]

    @property
    def text(self) -> str:
        return " ".join(self.entries)

    def put(self, text: str) -> None:
        self._entries, self._changing = text.split(), None
        self._line.value = ""
        self._show()
        self.post_message(self.Changed(self))

    def add(self, entries: Sequence[str]) -> None:
        """Add entries that are not in the list yet."""
        self.put(" ".join(dict.fromkeys([*self.entries, *entries])))

    @property
    def _line(self) -> Input:
        return self.query_one(f"#field-{self.field.name}", Input)

    def _show(self) -> None:
        notes = self._notes(self._entries)
        shown = [Entry(*one, style="$text-warning") for one in zip(self._entries, notes, strict=True)]
        self.query_one(EntryList).show(shown)

    def take_line(self) -> None:
        """Move what is in the line to the list."""
        if self._line.value or self._changing:
            self.put(" ".join(dict.fromkeys(self.entries)))

    @on(Input.Submitted, "EntryInput")
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()  # Enter adds the entry; it does not submit the form
        self.take_line()

    def on_descendant_blur(self, event: DescendantBlur) -> None:
        """Move what is in the line to the list, unless only the terminal's window lost the focus."""
        if isinstance(event.widget, EntryInput) and self.app.app_focus and self.is_attached:
            self.take_line()

    @on(EntryList.Removed)
    def _removed(self, event: EntryList.Removed) -> None:
        event.stop()
        self._entries = [one for at, one in enumerate(self._entries) if at != event.index]
        self.put(self.text)
        if not self._entries:
            self._line.focus()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        """Move an entry to the line, to be changed there."""
        event.stop()
        if self._line.value:
            return
        self._changing = event.option_index, self._entries.pop(event.option_index)
        self._line.value = self._changing[1]
        self._show()
        self._line.focus()

    def cancel_change(self) -> bool:
        """Put an entry that is being changed back as it was. Returns whether there was one."""
        if self._changing is None:
            return False
        at, before = self._changing
        self.put(" ".join([*self._entries[:at], before, *self._entries[at:]]))
        return True


class EntryInput(LineInput):
    """The line of a list. Line breaks and commas that are pasted separate entries; Esc ends a change."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", show=False)]

    def _on_paste(self, event: Paste) -> None:
        if event.text:
            event.prevent_default().stop()
            self.replace(" ".join(split(event.text)), *self.selection)

    async def action_cancel(self) -> None:
        """Take the change back, or else close the form."""
        row = next(node for node in self.ancestors if isinstance(node, ListRow))
        if not row.cancel_change():
            await self.screen.run_action("close")


def split(text: str) -> list[str]:
    """Return the entries of a text, which are separated by spaces, commas or line breaks."""
    return text.replace(",", " ").split()
