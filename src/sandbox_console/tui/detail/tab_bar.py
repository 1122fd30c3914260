"""The tabs of the detail, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from sandbox_console.tui.base.touch import LINES, by_touch
from sandbox_console.tui.keys.main_keys import TAB_TITLES, tab_digits
from sandbox_console.tui.widgets.table.table_layout import fit_cell


class Tab(NamedTuple):
    """One tab: its id, its title, and the selector of the widget to focus, empty if the pane handles focus itself."""

    id: str
    title: str
    focus: str


_FOCUS = {
    "logs": "LogView", "spec": "SpecPane", "stats": "StatsPane", "processes": "#processes-table",
    "files": "#files-table", "egress": "#egress-table", "events": "#events-table", "audit": "#audit-table",
    "inspect": "#inspect-tree",
}  # fmt: skip
TABS = tuple(Tab._make((tab, title, _FOCUS.get(tab, ""))) for tab, title in TAB_TITLES.items())
_SHORT = {"processes": "Procs"}
_TOUCH_TABS = 5
"""Tabs in a line on a phone."""
_LEAST = 4
"""Cells of a tab that is not open, if there is no room for all titles."""


def tab_keys() -> Iterator[tuple[str, Tab]]:
    """Yield each tab with the digit that opens it. The tenth has 0."""
    yield from ((digit, tab) for (digit, _), tab in zip(tab_digits(), TABS, strict=True))


class TabBar(Widget):
    """A row of clickable tabs. Their keys belong to the screen. Narrow screens show it without blanks."""

    DEFAULT_CSS = "TabBar { height: 1; background: $panel; padding: 0 1; }"
    current: reactive[str] = reactive("logs")

    class Picked(Message):
        """A tab was clicked."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def _fingers(self) -> list[tuple[Tab, str]]:
        """Two lines of tabs, each as wide as a fifth of the screen and two lines high."""
        wide = self.size.width // _TOUCH_TABS
        return [(tab, fit_cell(f" {digit} {tab.title}", wide, "left")) for digit, tab in tab_keys()]

    def _labels(self) -> list[tuple[Tab, str]]:
        wide = [(tab, f" {digit} {tab.title} ") for digit, tab in tab_keys()]
        if sum(len(label) + 1 for _, label in wide) <= self.size.width:
            return wide
        close = [(tab, f"{digit}{_SHORT.get(tab.id, tab.title)}") for digit, tab in tab_keys()]
        if sum(len(label) + 1 for _, label in close) <= self.size.width:
            return close
        return [(tab, label if tab.id == self.current else label[:_LEAST]) for tab, label in close]

    def _style(self, tab: Tab) -> str:
        return "bold $background on $primary" if tab.id == self.current else "$dim"

    def render(self) -> Content:
        if by_touch(self.app):
            return self._for_fingers()
        parts: list[tuple[str, str]] = []
        for tab, label in self._labels():
            parts += [(label, self._style(tab)), (" ", "")]
        return Content.assemble(*parts)

    def _for_fingers(self) -> Content:
        parts: list[tuple[str, str]] = []
        tabs = self._fingers()
        for row in (tabs[at : at + _TOUCH_TABS] for at in range(0, len(tabs), _TOUCH_TABS)):
            parts += [*((label, self._style(tab)) for tab, label in row), ("\n", "")]
            parts += [*((" " * len(label), self._style(tab)) for tab, label in row), ("\n", "")]
        return Content.assemble(*parts[:-1])

    def on_click(self, event: events.Click) -> None:
        if by_touch(self.app):
            across = min(event.x // max(1, self.size.width // _TOUCH_TABS), _TOUCH_TABS - 1)
            self.post_message(self.Picked(TABS[event.y // LINES * _TOUCH_TABS + across].id))
            return
        left = 1
        for tab, label in self._labels():
            right = left + len(label)
            if left <= event.x < right:
                self.post_message(self.Picked(tab.id))
                return
            left = right + 1
