"""The line of tabs above the shells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from sandbox_console.tui.base.static_text import set_text
from sandbox_console.tui.widgets.table.table_layout import fit_cell

_LEAST = 8


class TabTitle(NamedTuple):
    """What is shown of one tab: its name, and signs for a bell, a broadcast or an end."""

    name: str
    signs: str = ""


class TabLine(Static):
    """Numbers, names and signs of the tabs, and the state of the active shell on the right."""

    DEFAULT_CSS = "TabLine { height: 1; background: $panel; color: $text-muted; text-wrap: nowrap; }"

    class Picked(Message):
        """A tab was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._ends: list[int] = []

    def show(self, titles: Sequence[TabTitle], current: int, state: tuple[str, str], *, danger: bool) -> None:
        """Show the tabs. ``state`` is a text with its style; with ``danger`` the line is red."""
        self.set_class(danger, "-danger")
        room = max(0, self.app.size.width - cell_len(state[0]) - 1)
        names = fitted([f"{at} {one.name}" for at, one in enumerate(titles, 1)], [one.signs for one in titles], room)
        parts: list[tuple[str, str]] = []
        self._ends, used = [], 0
        for at, name in enumerate(names):
            used += cell_len(name)
            self._ends.append(used)
            parts.append((name, "reverse bold" if at == current else ""))
        parts.append((" " * max(1, self.app.size.width - used - cell_len(state[0]) - 1), ""))
        set_text(self, Content.assemble(*parts, state), fixed=True)

    def on_click(self, event: events.Click) -> None:
        found = next((at for at, end in enumerate(self._ends) if event.x < end), None)
        if found is not None:
            self.post_message(self.Picked(found))


def fitted(names: Sequence[str], signs: Sequence[str], room: int) -> list[str]:
    """Return each name with blanks around it and its signs, all as long as fits. The room is shared evenly."""
    ends = [f" {sign} " if sign else " " for sign in signs]
    wanted = [cell_len(name) + 1 + cell_len(end) for name, end in zip(names, ends, strict=True)]
    limit = max(wanted, default=0)
    while sum(min(limit, one) for one in wanted) > room and limit > _LEAST:
        limit -= 1
    return [
        f" {fit_cell(name, max(1, min(limit, one) - 1 - cell_len(end)), 'left')}{end}"
        for name, end, one in zip(names, ends, wanted, strict=True)
    ]
