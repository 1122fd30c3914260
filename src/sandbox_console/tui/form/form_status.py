"""The line below the form: what goes on, or which fields have to be corrected. A click on one of them goes to it."""

from __future__ import annotations

from collections.abc import Container, Sequence

from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.style import Style
from textual.widgets import Static

from sandbox_console.model.spec_fields import FIELDS
from sandbox_console.tui.base.safety import plain

_FIELD = "field"


class FormStatus(Static):
    """Its text may have names of fields, which `to_fix` makes."""

    DEFAULT_CSS = "FormStatus { width: 1fr; height: auto; max-height: 3; }"

    class Chosen(Message):
        """The user clicked on the name of a field."""

        def __init__(self, field: str) -> None:
            super().__init__()
            self.field = field

    def __init__(self) -> None:
        super().__init__(id="status", markup=False)

    async def _on_click(self, event: Click) -> None:
        if field := event.style.meta.get(_FIELD):
            event.stop()
            self.post_message(self.Chosen(field))


def to_fix(problems: Container[str], others: Sequence[str] = ()) -> Content:
    """Return ``others``, which belong to no field, and the labels of the fields with problems, in order."""
    names = [
        Content.styled(field.label, "$text-error underline").stylize(Style.from_meta({_FIELD: field.name}))
        for field in FIELDS
        if field.name in problems
    ]
    parts = [plain("; ".join(others), "$text-error")] if others else []
    if names:
        head = "; to fix: " if others else "to fix: "
        listed = Content.styled(", ", "$text-error").join(names)
        parts += [Content.styled(head, "$text-error"), listed, Content.styled(" (F3 goes to the next)", "$text-error")]
    return Content.assemble(*parts)
