"""A collapsible section of the form. Its title shows its values while it is folded, and its problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Collapsible
from textual.widgets._collapsible import CollapsibleTitle  # not exported, but the only way to use Content as a label

from sandbox_console.model.spec_fields import Section
from sandbox_console.model.text import clean
from sandbox_console.tui.form.form_rows import FormRow

_SHOWN = 40
"""The most characters of a value in the title of a folded section."""


class FormSection(Collapsible):
    """The fields of one section, with their rows in order.

    ``contents`` are the rows with what else is between them. ``place`` says where the sandbox will be, for the summary
    of the section that has it.
    """

    DEFAULT_CSS = """
    FormSection { height: auto; border: none; padding: 0; margin: 0; background: $background; max-width: 110; }
    FormSection:focus-within { background-tint: $foreground 0%; }
    FormSection CollapsibleTitle { padding: 0 1 0 0; width: 1fr; text-style: none; color: $primary; height: 1; }
    FormSection CollapsibleTitle:focus { background: $primary 25%; color: $foreground; text-style: bold; }
    FormSection Contents { padding: 0 0 0 2; height: auto; }
    """

    def __init__(
        self, section: Section, contents: Iterable[Widget], *, folded: bool, place: Callable[[], str] = str
    ) -> None:
        widgets = list(contents)
        self.rows = [one for one in widgets if isinstance(one, FormRow)]
        super().__init__(*widgets, title="", collapsed=folded, collapsed_symbol="▸", expanded_symbol="▾")
        self.section = section
        self._place = place

    def on_mount(self) -> None:
        self.refresh_title()

    @on(Collapsible.Toggled)
    def _toggled(self) -> None:
        """Update the title, as it depends on whether the rows are visible."""
        self.refresh_title()

    def scroll_visible(self, *args: Any, **how: Any) -> None:
        """Scroll to it if the user folds or unfolds it. Otherwise they are, or go, elsewhere."""
        if any(title.has_focus for title in self.query(CollapsibleTitle)):
            super().scroll_visible(*args, **how)

    def refresh_title(self) -> None:
        """Update the title from the rows' current values."""
        wrong = sum(row.has_class("-wrong") for row in self.rows)
        words: list[tuple[str, str]] = [(str(self.section), "bold")]
        if wrong:
            words.append((f"  ✕ {wrong} to fix", "$text-error"))
        elif self.collapsed:
            words.append((f"  {self._summary()}", "$dim"))
        for title in self.query(CollapsibleTitle):  # none while the screen closes
            title.label = Content.assemble(*words)

    def _summary(self) -> str:
        entries = [f"{row.field.label.lower()} {_short(row.text)}" for row in self.rows if row.text]
        if place := self._place():
            entries.insert(1 if self.rows[0].text else 0, f"on {clean(place)}")
        return " · ".join(entries) or "nothing set"

    def open_wrong(self) -> None:
        """Unfold the section if it has a problem."""
        if any(row.has_class("-wrong") for row in self.rows):
            self.collapsed = False


def _short(text: str) -> str:
    return clean(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")
