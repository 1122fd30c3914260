"""A list of entries in the form: one a line with a note, for the keyboard and the mouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.binding import BindingType
from textual.content import Content
from textual.events import Click, Key
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sandbox_console.model.text import clean
from sandbox_console.tui.keys.page_keys import PAGE_KEYS

_CROSS_CELLS = 2
"""Cells of the cross before an entry, which removes it."""


class Entry(NamedTuple):
    """One line: its text, a note behind it with a style, and whether it is ticked (None if it has no box)."""

    text: str
    note: str = ""
    style: str = "$dim"
    ticked: bool | None = None


class EntryList(OptionList):
    """Entries that are removed by a key or by the cross before them or, if they have boxes, ticked.

    At its ends, the keys go on to the field before or after it.
    """

    DEFAULT_CSS = """
    EntryList { height: auto; max-height: 8; background: $background; scrollbar-size-vertical: 1; }
    EntryList.-empty { display: none; }
    EntryList:focus { background-tint: $foreground 0%; }
    EntryList:blur > .option-list--option-highlighted { background: $background; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["entries"]

    class Removed(Message):
        """Posted to remove the entry at ``index``."""

        def __init__(self, entries: EntryList, index: int) -> None:
            super().__init__()
            self.entries, self.index = entries, index

    class Ticked(Message):
        """Posted to change the box of the entry at ``index``."""

        def __init__(self, entries: EntryList, index: int) -> None:
            super().__init__()
            self.entries, self.index = entries, index

    def __init__(self, *, id: str, disabled: bool = False, removable: bool = True) -> None:
        super().__init__(id=id, classes="-empty", disabled=disabled, markup=False, compact=True)
        self._removable = removable
        self._entries: Sequence[Entry] = ()

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these entries. The cursor stays where it is, or goes to an entry that was added without a box."""
        if entries == self._entries:
            return
        added = len(entries) > len(self._entries) and entries[0].ticked is None and self._removable
        at = len(entries) - 1 if added else self.highlighted
        self._entries = entries
        self.set_options([Option(_line(one, cross=self._removable)) for one in entries])
        self.set_class(not entries, "-empty")
        if entries:
            self.highlighted = min(at or 0, len(entries) - 1)

    def enter(self, *, last: bool = False) -> None:
        """Put the cursor on the first or the last entry, so that no entry is skipped on the way through the fields."""
        self.highlighted = len(self._entries) - 1 if last else 0

    @property
    def boxes(self) -> bool:
        """Whether the entries have boxes to tick."""
        return bool(self._entries) and self._entries[0].ticked is not None

    def action_cursor_up(self) -> None:
        """Move up, or to the field before the list."""
        if self.highlighted:
            super().action_cursor_up()
        else:
            self.screen.focus_previous()

    def action_cursor_down(self) -> None:
        """Move down, or to the field after the list."""
        if self.highlighted is not None and self.highlighted < len(self._entries) - 1:
            super().action_cursor_down()
        else:
            self.screen.focus_next()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to tick only where there are boxes, and to remove only where there are none."""
        match action:
            case "tick":
                return self.boxes
            case "remove":
                return self._removable and not self.boxes
        return super().check_action(action, parameters)

    def action_remove(self) -> None:
        """Remove the entry under the cursor."""
        if self.highlighted is not None and self._removable and not self.boxes:
            self.post_message(self.Removed(self, self.highlighted))

    def action_tick(self) -> None:
        """Change the box of the entry under the cursor."""
        if self.highlighted is not None and self.boxes:
            self.post_message(self.Ticked(self, self.highlighted))

    def action_select(self) -> None:
        """Tick the entry under the cursor, or select it if it has no box."""
        if self.boxes:
            self.action_tick()
        else:
            super().action_select()

    async def _on_click(self, event: Click) -> None:
        index = event.style.meta.get("option")
        if index is None or self.disabled:
            return
        event.prevent_default()
        self.highlighted = index
        if self.boxes:
            self.action_tick()
        elif self._removable and event.get_content_offset_capture(self).x < _CROSS_CELLS:
            self.action_remove()
        else:
            self.action_select()

    def on_key(self, event: Key) -> None:
        """Go to the next entry that begins with a typed letter, where letters are no keys."""
        if not (self.boxes and event.is_printable and event.character and event.character.isalnum()):
            return
        event.stop()
        at, count = self.highlighted or 0, len(self._entries)
        order = [(at + step) % count for step in range(1, count + 1)]
        wanted = event.character.lower()
        self.highlighted = next((one for one in order if self._entries[one].text.lower().startswith(wanted)), at)


def _line(entry: Entry, *, cross: bool) -> Content:
    sign = ("✕ " if cross else "") if entry.ticked is None else "☑ " if entry.ticked else "☐ "
    style = "$dim" if entry.ticked is None else "$foreground"
    note = [(f"  {clean(entry.note, cap=300)}", entry.style)] if entry.note else []
    return Content.assemble((sign, style), (clean(entry.text, cap=200), ""), *note)
