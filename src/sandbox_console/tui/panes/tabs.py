"""The tabs of the detail in one line."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Tab(NamedTuple):
    """One tab: its id, title, and the key that the help names."""

    id: str
    title: str
    key: str


TABS = (
    Tab("logs", "Logs", "l"),
    Tab("shell", "Shell", "s"),
    Tab("spec", "Spec", "y"),
    Tab("audit", "Audit", "u"),
    Tab("egress", "Egress", "o"),
)


class TabBar(Widget):
    """A row of tabs that is clicked; the keys are the screen's."""

    DEFAULT_CSS = "TabBar { height: 1; background: $panel; padding: 0 1; }"
    current: reactive[str] = reactive("logs")

    class Picked(Message):
        """A tab was clicked."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def render(self) -> Content:
        parts: list[tuple[str, str]] = []
        for number, tab in enumerate(TABS, 1):
            style = "bold $background on $primary" if tab.id == self.current else "$dim"
            parts += [(_label(number, tab), style), (" ", "")]
        return Content.assemble(*parts)

    def on_click(self, event: events.Click) -> None:
        left = 1
        for number, tab in enumerate(TABS, 1):
            right = left + len(_label(number, tab))
            if left <= event.x < right:
                self.post_message(self.Picked(tab.id))
                return
            left = right + 1


def _label(number: int, tab: Tab) -> str:
    return f" {number} {tab.title} "
