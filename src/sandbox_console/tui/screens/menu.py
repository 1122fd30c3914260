"""Everything that can be done to a sandbox; what cannot be is grey, with the reason."""

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

from sandbox_console.model.text import clean
from sandbox_console.tui.keynames import short_key
from sandbox_console.tui.widgets.table_layout import fit_cell


class Choice(Struct, frozen=True):
    """One line of the menu. ``action`` is what choosing it gives; ``unfit`` is why it cannot be done.

    ``told`` is more about it, where it can be.
    """

    action: str
    label: str
    key: str
    unfit: str = ""
    told: str = ""


class MenuScreen(ModalScreen[str]):
    """Gives the action chosen, or an empty text."""

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
    MenuScreen OptionList { height: auto; max-height: 100%; border: none; background: $surface; padding: 0 1; }
    MenuScreen OptionList:focus { background-tint: $foreground 0%; }
    MenuScreen OptionList > .option-list--option-disabled { color: $dim; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,m", "close", "Close"), ("j", "down", "Down"), ("k", "up", "Up")]

    def __init__(self, title: str, choices: list[Choice]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            yield OptionList(
                *[Option(choice_line(one), id=one.action, disabled=bool(one.unfit)) for one in self._choices],
                compact=True,
            )

    def on_key(self, event: Key) -> None:
        for choice in self._choices:
            if choice.key == event.key and not choice.unfit:
                event.stop()
                self.dismiss(choice.action)
                return

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or "")

    def action_close(self) -> None:
        """Choose nothing."""
        self.dismiss("")

    def action_down(self) -> None:
        """Next line."""
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        """Line before."""
        self.query_one(OptionList).action_cursor_up()


def choice_line(choice: Choice) -> Content:
    """Key, label, and the reason where it cannot be done."""
    more = clean(choice.unfit or choice.told, cap=200)
    return Content.assemble(
        (fit_cell(short_key(choice.key), 4, "left"), "$primary" if not choice.unfit else ""),
        fit_cell(choice.label, 12, "left"),
        (f"  {more}" if more else "", "italic" if choice.unfit else "$text-muted"),
    )  # fmt: skip
