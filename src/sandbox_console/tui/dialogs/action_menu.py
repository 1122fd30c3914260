"""The menu of all actions on a sandbox. Those that are unavailable are grey, with the reason."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sandbox_console.tui.base.touch import LINES, by_touch
from sandbox_console.tui.keys.key_names import short_key
from sandbox_console.tui.text.wrap import hanging, set_in
from sandbox_console.tui.widgets.table.table_layout import fit_cell

_BLANKS = 2
"""Cells on each side of a line."""
_INSET = 18
"""The first cell of the description, after the key and the label."""
_TOLD_MOST = 600


class Choice(Struct, frozen=True):
    """One line of the menu. ``action`` is the result of choosing it, ``unfit`` the reason that it is unavailable.

    ``detail`` is its description, shown if it is available.
    """

    action: str
    label: str
    key: str
    unfit: str = ""
    detail: str = ""


class MenuScreen(ModalScreen[str]):
    """Returns the chosen action, or an empty string."""

    DEFAULT_CSS = """
    MenuScreen { align: center middle; background: $background 60%; }
    MenuScreen > Vertical {
        width: 70;
        max-width: 94%;
        height: auto;
        max-height: 90%;
        background: $surface;
        border: round $primary;
        border-title-color: $primary;
    }
    MenuScreen.-detailed > Vertical { width: 100; }
    MenuScreen OptionList { height: auto; max-height: 100%; border: none; background: $surface; padding: 0 1; }
    MenuScreen OptionList:focus { background-tint: $foreground 0%; }
    MenuScreen OptionList > .option-list--option-disabled { color: $dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,m", "close", "Close"), ("j", "down", "Down"), ("k", "up", "Up")]

    def __init__(self, title: str, choices: list[Choice]) -> None:
        super().__init__(classes="-detailed" if any(choice.detail for choice in choices) else "")
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            yield OptionList(
                *[
                    Option(self._prompt(choice), id=choice.action, disabled=bool(choice.unfit))
                    for choice in self._choices
                ],
                compact=True,
            )

    def on_resize(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        for options in self.query(OptionList):
            width = options.scrollable_content_region.width - _BLANKS
            for at, choice in enumerate(self._choices if width > 0 else ()):
                options.replace_option_prompt_at_index(at, self._prompt(choice, width))

    def _prompt(self, choice: Choice, width: int = 0) -> Content:
        line = choice_line(choice, width)
        missing = LINES - len(line.plain.split("\n")) if by_touch(self.app) else 0
        return Content.assemble(line, "\n " * missing)

    def on_key(self, event: Key) -> None:
        for choice in self._choices:
            if choice.key == event.key and not choice.unfit:
                event.stop()
                self.dismiss(choice.action)
                return

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or "")

    def action_close(self) -> None:
        """Close without choosing."""
        self.dismiss("")

    def action_down(self) -> None:
        """Go to the next line."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """Go to the previous line."""
        self.query_one(OptionList).action_cursor_up()


def choice_line(choice: Choice, width: int = 0) -> Content:
    """Return the key, the label, and the reason or description. Rows have ``width`` cells; 0 means no limit."""
    note = choice.unfit or choice.detail
    more = set_in(note if len(note) <= _TOLD_MOST else f"{note[:_TOLD_MOST]}…", _INSET)
    parts = [
        (fit_cell(short_key(choice.key), 4, "left"), "$primary" if not choice.unfit else ""),
        (fit_cell(choice.label, 12, "left"), ""),
        (f"  {more}" if more else "", "italic" if choice.unfit else "$text-muted"),
    ]
    return Content.assemble(*hanging(parts, width or 10_000, _INSET))
