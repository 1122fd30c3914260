"""A log with its search and filter line."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key
from textual.widgets import Input

from sandbox_console.errors import UsageError
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.text.formatting import error_words
from sandbox_console.tui.widgets.log.log_view import LogView

_TITLES = {
    "search": "Search (regular expression)",
    "filter": "Show only lines that match; !pattern: that do not",
}


class LogPane(Vertical):
    """A `LogView` and its input line: ``/`` searches, ``&`` filters, Enter applies, Escape closes it.

    ``pane.view`` is the `LogView`. An empty pattern ends the search or the filter. An invalid pattern keeps the line
    open and shows the reason in its border.
    """

    DEFAULT_CSS = """
    LogPane { height: 1fr; }
    LogPane > Input { display: none; height: 3; border: round $primary; }
    LogPane > Input.-asking { display: block; }
    LogPane > Input.-wrong { border: round $error; }
    """

    def __init__(self, view: LogView | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.view = view or LogView()
        self._asked_for = "search"

    def compose(self) -> ComposeResult:
        yield self.view
        yield Input(select_on_focus=True)

    def on_log_view_search_requested(self, event: LogView.SearchRequested) -> None:
        event.stop()
        self._ask("search")

    def on_log_view_filter_requested(self, event: LogView.FilterRequested) -> None:
        event.stop()
        self._ask("filter")

    def _ask(self, kind: str) -> None:
        self._asked_for = kind
        line = self.query_one(Input)
        line.border_title = plain(_TITLES[kind])
        line.border_subtitle = "Enter applies, Esc closes"
        line.remove_class("-wrong").add_class("-asking")
        self.screen.set_focus(line)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        apply = self.view.search if self._asked_for == "search" else self.view.set_filter
        try:
            apply(event.value or None)
        except UsageError as error:
            event.input.border_subtitle = plain(error_words(error))
            event.input.add_class("-wrong")
            return
        self._close()

    def on_key(self, event: Key) -> None:
        if event.key == "escape" and self.query_one(Input).has_class("-asking"):
            event.stop()
            self._close()

    def _close(self) -> None:
        self.query_one(Input).remove_class("-asking", "-wrong")
        self.view.focus()
