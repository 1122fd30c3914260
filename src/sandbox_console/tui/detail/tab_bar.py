"""The tabs of the detail, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from sandbox_console.tui.keys.main_keys import TAB_TITLES, tab_digits


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

    def _labels(self) -> list[tuple[Tab, str]]:
        wide = [(tab, f" {digit} {tab.title} ") for digit, tab in tab_keys()]
        if sum(len(label) + 1 for _, label in wide) <= self.size.width:
            return wide
        close = [(tab, f"{digit}{_SHORT.get(tab.id, tab.title)}") for digit, tab in tab_keys()]
        if sum(len(label) + 1 for _, label in close) <= self.size.width:
            return close
        return [(tab, label if tab.id == self.current else label[:_LEAST]) for tab, label in close]

    def render(self) -> Content:
        parts: list[tuple[str, str]] = []
        for tab, label in self._labels():
            style = "bold $background on $primary" if tab.id == self.current else "$dim"
            parts += [(label, style), (" ", "")]
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        left = 1
        for tab, label in self._labels():
            right = left + len(label)
            if left <= event.x < right:
                self.post_message(self.Picked(tab.id))
                return
            left = right + 1
