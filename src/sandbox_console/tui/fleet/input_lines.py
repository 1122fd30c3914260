"""The two input lines under the header: ``/`` filters, ``:`` runs commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import Reactive
from textual.suggester import Suggester
from textual.widgets import Input, Static

from sandbox_console.errors import UsageError
from sandbox_console.tui.base.static_text import set_text
from sandbox_console.tui.fleet.command_parser import Known, completions
from sandbox_console.tui.fleet.filter.filter_parser import Filter, FilterError, parse_filter
from sandbox_console.tui.keys.keymap import hint

_MARK = 3
"""Cells before what is typed."""
_REMEMBERED = 50
_OFFERED = 8


class LineInput(Input):
    """An input whose layout does not depend on its text. Textual would lay out the whole screen at every key."""

    virtual_size: Reactive[Size] = Reactive(Size(0, 0))


class FilterLine(Vertical):
    """A filter while it is typed. Text that is not valid yet keeps the last valid filter in force and shows the error.

    Posts `Changed` with each valid filter, and `Left` when the user keeps it with Enter.
    """

    DEFAULT_CSS = """
    FilterLine { height: auto; display: none; background: $panel; }
    FilterLine.-on { display: block; }
    FilterLine Horizontal { height: 1; }
    FilterLine Input { width: 1fr; height: 1; border: none; padding: 0; background: $panel; }
    FilterLine .mark { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    FilterLine #filter-note { width: auto; padding: 0 1; color: $text-muted; }
    FilterLine #filter-help { height: auto; display: none; }
    FilterLine.-help #filter-note { display: none; }
    FilterLine.-help #filter-help { display: block; }
    """

    class Changed(Message):
        """The filter in force has changed."""

        def __init__(self, shown: Filter) -> None:
            super().__init__()
            self.shown = shown

    class Left(Message):
        """The line was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.input = LineInput(id="filter", compact=True)
        self._wrong = False

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static("/", classes="mark")
            yield self.input
            yield Static(id="filter-note", markup=False)
        yield Static(id="filter-help", markup=False)

    def open(self) -> None:
        """Accept typing from the next key on: ``focus()`` would take effect after keys that are already queued."""
        self.add_class("-on", "-help")
        self.screen.set_focus(self.input)

    def show(self, shown: Filter) -> None:
        """Show the line while the user types in it or a filter is in force."""
        typing = self.input.has_focus
        self.set_class(typing or bool(shown) or self._wrong, "-on")
        self.set_class(typing or self._wrong, "-help")
        clears = hint(self, "back", "clears")
        set_text(self.query_one("#filter-note", Static), Content(clears))
        if not self._wrong:
            note = shown.note or ", ".join(filter(None, ("Enter keeps", clears)))
            self._help(Content.styled(" " * _MARK + note, "$dim"))

    def _help(self, words: Content) -> None:
        """Show help in a line that stays while the user types: a line just for errors would move the whole screen."""
        line = self.query_one("#filter-help", Static)
        set_text(line, words, fixed=words.cell_length <= self.size.width and line.size.height == 1)

    def put(self, text: str) -> None:
        """Set a text as if it had been typed. It must be valid."""
        with self.input.prevent(Input.Changed):
            self.input.value = text
        self._understand(text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._understand(event.value)

    def _understand(self, text: str) -> None:
        try:
            found = parse_filter(text)
        except FilterError as error:
            column = _MARK + min(error.position, len(text)) - round(self.input.scroll_x)
            self._wrong = True
            self._help(pointed(error.message, column, self.size.width).stylize("$text-error"))
            self.add_class("-on", "-help")
            return
        self._wrong = False
        self.post_message(self.Changed(found))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Left())


def pointed(message: str, column: int, width: int) -> Content:
    """Return a caret under the place, with the message to its right, or to its left if there is no room."""
    column = max(0, column)
    if column + 2 + len(message) <= width or len(message) + 1 > column:
        return Content(" " * min(column, max(0, width - 2 - len(message))) + f"^ {message}")
    return Content(" " * (column - len(message) - 1) + f"{message} ^")


class _Completed(Suggester):
    """Suggests the first completion of the typed line."""

    def __init__(self, known: Callable[[], Known]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._known = known

    async def get_suggestion(self, value: str) -> str | None:
        return next((line for line in completions(value, self._known()) if line != value), None)


class CommandInput(LineInput):
    """Tab and Right accept the suggestion, Up and Down go through earlier commands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "complete", "Complete", show=False),
        Binding("up", "recall(-1)", "Previous command", show=False),
        Binding("down", "recall(1)", "Next command", show=False),
    ]

    def __init__(self, known: Callable[[], Known]) -> None:
        super().__init__(id="command", compact=True, suggester=_Completed(known))
        self._known = known
        self._history: list[str] = []
        self._at = 0

    def begin(self) -> None:
        """Start an empty line, after the last command in the history."""
        self.value, self._at = "", len(self._history)

    def remember(self, line: str) -> None:
        """Add a line to the history."""
        self._history = [*(earlier for earlier in self._history if earlier != line), line][-_REMEMBERED:]
        self._at = len(self._history)

    def action_complete(self) -> None:
        """Insert the longest common beginning of all completions. If it is already typed, insert the first of them."""
        found = completions(self.value, self._known())
        if not found:
            return
        shared = found[0]
        while not all(one.startswith(shared) for one in found):
            shared = shared[:-1]
        self.value = shared if len(shared) > len(self.value) else found[0]
        self.cursor_position = len(self.value)

    def action_recall(self, step: int) -> None:
        """Go through the history."""
        if self._history:
            self._at = max(0, min(len(self._history), self._at + step))
            self.value = self._history[self._at] if self._at < len(self._history) else ""
            self.cursor_position = len(self.value)


class CommandLine(Vertical):
    """A command while it is typed, with its completions. Posts `Said` on Enter, and `Left` when it is closed."""

    DEFAULT_CSS = """
    CommandLine { height: auto; display: none; background: $panel; }
    CommandLine.-on { display: block; }
    CommandLine Horizontal { height: 1; }
    CommandLine Input { width: 1fr; height: 1; border: none; padding: 0; background: $panel; }
    CommandLine .mark { width: 3; padding: 0 1; color: $accent; text-style: bold; }
    CommandLine #command-note {
        height: 1; padding-left: 3; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    CommandLine.-wrong #command-note { color: $text-error; }
    """

    class Said(Message):
        """A command was entered."""

        def __init__(self, line: str) -> None:
            super().__init__()
            self.line = line

    class Left(Message):
        """The line was closed."""

    def __init__(self, known: Callable[[], Known]) -> None:
        super().__init__()
        self._known = known
        self.input = CommandInput(known)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Static(":", classes="mark")
            yield self.input
        yield Static(id="command-note", markup=False)

    def open(self) -> None:
        """Show the line and focus it."""
        self.add_class("-on")
        self.input.begin()
        self._offer("")
        self.screen.set_focus(self.input)

    def close(self) -> None:
        """Hide the line."""
        self.remove_class("-on", "-wrong")
        self.post_message(self.Left())

    def refuse(self, line: str, error: UsageError) -> None:
        """Show why a command failed, and let the user correct it."""
        self.add_class("-on", "-wrong")
        self.input.value = line
        set_text(self.query_one("#command-note", Static), Content(error.message), fixed=True)
        self.input.focus()  # after the list, which has just got the focus

    def done(self, line: str) -> None:
        """Handle a command that succeeded."""
        self.input.remember(line)

    def _offer(self, typed: str) -> None:
        found = completions(typed, self._known())
        words = "  ".join(found[:_OFFERED]) + ("  …" if len(found) > _OFFERED else "")
        hint = "a state, a backend, host NAME, group FIELD, sort COLUMN, view NAME …   Tab completes, :help lists all"
        set_text(self.query_one("#command-note", Static), Content(words if typed else hint), fixed=True)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self.has_class("-on"):
            if not self.has_class("-wrong"):
                self._offer(event.value)
            self.set_class(self.has_class("-wrong") and not event.value, "-wrong")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        line = event.value.strip()
        self.close()
        if line:
            self.post_message(self.Said(line))
