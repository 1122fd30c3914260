"""The tabs of the detail in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Tab(NamedTuple):
    """One tab: its id, its title, the key that the help names, and what in it takes the keys."""

    id: str
    title: str
    key: str
    focus: str


TABS = (
    Tab("logs", "Logs", "l", "LogView"),
    Tab("shell", "Shell", "s", ""),
    Tab("spec", "Spec", "y", "SpecPane"),
    Tab("stats", "Stats", "", "StatsPane"),
    Tab("processes", "Processes", "", "#processes-table"),
    Tab("files", "Files", "", "#files-table"),
    Tab("egress", "Egress", "o", "#egress-table"),
    Tab("events", "Events", "", "#events-table"),
    Tab("audit", "Audit", "9", "#audit-table"),
    Tab("inspect", "Inspect", "", "#inspect-tree"),
)
_SHORT = {"processes": "Procs"}
_LEAST = 4
"""Cells of a tab that is not looked at, where there is no room for all their names."""


def tab_keys() -> Iterator[tuple[str, Tab]]:
    """Each tab with the digit that goes to it; the tenth has 0."""
    for number, tab in enumerate(TABS[:10], 1):
        yield str(number % 10), tab


class TabBar(Widget):
    """A row of tabs that is clicked; the keys are the screen's. Narrow screens get it without blanks."""

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
