"""A check box that can be read without colours."""

from __future__ import annotations

from textual.widgets import Checkbox


class TickBox(Checkbox):
    """A check box that shows its state with a word: Textual's own shows an X in both, in another colour."""

    DEFAULT_CSS = """
    TickBox > .toggle--button, TickBox.-on > .toggle--button { color: $foreground; background: $panel; }
    """

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name
        return "yes" if self.value else "no"
