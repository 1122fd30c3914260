"""Keeps a sandbox's text from acting on the operator's terminal or on this app.

Everything a sandbox can choose (output, names, labels, images, errors) is hostile. There are three layers, each of
which is sufficient for what it covers: text is cleaned and shown without markup (`plain`), drawn lines contain no
control characters or links (`StripControls`), and no text can carry an action (`SafeApp._broker_event`).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.cells import cell_len
from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.color import Color
from textual.content import Content
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.notifications import Notification, Notify, SeverityLevel
from textual.screen import Screen
from textual.widgets import Input
from textual.widgets._toast import Toast, ToastHolder

from sandbox_console.model.text import clean, strip_unsafe
from sandbox_console.tui.base.changed_cells import ChangedCells, Pieces
from sandbox_console.tui.base.crash_report import crash_report
from sandbox_console.tui.base.textual_fixes import mend

Result = TypeVar("Result")

mend()


def plain(text: str | bytes, style: str = "") -> Content:
    """Return hostile text as a renderable without markup, for a Textual widget, ``border_title`` or tooltip.

    Each line is cleaned separately. ``style`` is a Textual style such as ``"bold $error"``, never from a sandbox.
    """
    shown = _lines(text)
    return Content.styled(shown, style) if style else Content(shown)


def plain_text(text: str | bytes, style: str = "") -> Text:
    """Return clean text for widgets that only take Rich text: DataTable cells, a RichLog, the labels of a Tree."""
    return Text(_lines(text), style=style, end="")


def escaped(text: str | bytes) -> str:
    """Return clean text for an API that takes and parses a string: the help line of a hit in the command palette."""
    return _lines(text).replace("[", r"\[")  # textual.markup.escape lets a bracket after a backslash through


def _lines(text: str | bytes) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return "\n".join(clean(line) for line in text.split("\n"))


class StripControls(LineFilter):
    """Removes controls, invisible characters and links from every drawn line. Takes about 1 us per row."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002 - Textual's signature
        if all(_harmless(segment) for segment in segments):
            return segments
        return [Segment(_stripped(text), _unlinked(style) if style else None) for text, style, _ in segments]


def _harmless(segment: Segment) -> bool:
    text, style, control = segment
    return text.isprintable() and control is None and (style is None or style.link is None)


@lru_cache(maxsize=4096)
def _stripped(text: str) -> str:
    # Removed characters are replaced by blanks, or the line would be shorter than the layout expects.
    shown = strip_unsafe(text.replace("\t", " "))
    return shown + " " * max(0, cell_len(text) - cell_len(shown))


@lru_cache(maxsize=1024)
def _unlinked(style: Style) -> Style:
    return style.update_link(None) if style.link else style


def _words(message: Notification) -> tuple[str, str, str]:
    return message.title, message.message, message.severity


class SafeApp(App[Result], Generic[Result]):
    """The base of the app. Overrides private names of textual 8.2.8, which is pinned; tests/tui/safety checks them.

    ``[@click=...]`` in a string does nothing on any widget: give the widget a handler instead.
    """

    crash_dir: Path | None = None
    """The folder for crash reports. None means the system's temporary folder."""

    def __init__(self) -> None:
        super().__init__()
        self._filters.insert(0, StripControls())
        self._sent = ChangedCells()

    def _display(self, screen: Screen[object], renderable: Any) -> None:
        """Send only the cells that changed, and nothing if there are none. A browser that returns gets all."""
        if self._sends and self._is_known and isinstance(renderable, CompositorUpdate):
            renderable = self._sent.reduced(renderable)
            place = self.screen.outer_size.clamp_offset(self.cursor_position)
            if isinstance(renderable, Pieces) and not renderable.pieces and place == self._previous_cursor_position:
                renderable = None
        super()._display(screen, renderable)

    @property
    def _sends(self) -> bool:
        """Whether output is being sent now, and to a screen of its own."""
        waits = self._closed or self._batch_count or not self._running
        return not (waits or self._driver is None or self.is_headless or self.is_inline)

    @property
    def _is_known(self) -> bool:
        """Whether the screen still shows what was sent."""
        return not self.is_web or getattr(self._driver, "tells_return", False)

    def write_to_terminal(self, text: str) -> None:
        """Write a sequence that shows nothing on the screen. Does nothing if there is no terminal."""
        if self._sends and self._driver is not None and not self.is_web:
            self._driver.write(text)

    def forget_screen(self) -> None:
        """Treat the screen's contents as unknown, and send all of it with the next layout."""
        self._sent.forget()

    def _resume_signal(self) -> None:
        """Forget the screen's contents: the program that was in the foreground may have written over them."""
        self.forget_screen()
        super()._resume_signal()

    async def _broker_event(self, event_name: str, event: events.Event, default_namespace: DOMNode) -> bool:  # noqa: ARG002
        return False

    async def on_event(self, event: events.Event) -> None:
        """Apply the keys of an input line in the order they were typed.

        Textual looks up keys other than letters only after they have bubbled through all widgets to the app. Letters
        typed after them would arrive first, and Ctrl+U or Backspace would delete those.
        """
        if isinstance(event, events.Key) and not event.is_forwarded and isinstance(line := self.focused, Input):
            bindings = line._bindings.key_to_bindings.get(event.key, ())  # noqa: SLF001 - Textual has no other way
            found = [binding.action for binding in bindings if not binding.priority]
            if found:
                if not await self._check_bindings(event.key, priority=True):
                    line.call_later(self.run_action, found[0], line)
                return
        await super().on_event(event)

    async def _on_key(self, event: events.Key) -> None:
        """Pass letters to the focused input line: one that arrives here was sent before the line had the focus.

        If ``/name`` is typed ahead or pasted, it would otherwise start the actions of the keys n, a, m and e.
        """
        line = self.focused
        if isinstance(line, Input) and event.is_printable:
            event.prevent_default()
            line._forward_event(events.Key(event.key, event.character))  # noqa: SLF001

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,  # noqa: ARG002 - never, whatever the caller says
    ) -> None:
        """Show a message for a while. It is cleaned and never parsed as markup."""
        super().notify(_lines(message), title=clean(title), severity=severity, timeout=timeout, markup=False)

    def _on_notify(self, event: Notify) -> None:
        """Show a message that is still on the screen anew, instead of a second time."""
        said = _words(event.notification)
        for shown in [one for one in self._notifications if _words(one) == said]:
            self._unnotify(shown, refresh=False)
        for screen in self._screen_stack[-1:]:
            for holder in screen.query(ToastHolder):  # of a toast alone, Textual would leave the holder behind
                if any(_words(toast._notification) == said for toast in holder.query(Toast)):  # noqa: SLF001
                    holder.remove()
        super()._on_notify(event)

    def exit(self, result: Result | None = None, return_code: int = 0, message: RenderableType | None = None) -> None:
        """End the app. A message that is a string is cleaned."""
        super().exit(result, return_code, plain_text(message) if isinstance(message, str) else message)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy text without control characters, which would take effect if pasted into a shell."""
        super().copy_to_clipboard("\n".join(strip_unsafe(line) for line in text.split("\n")))

    def _handle_exception(self, error: Exception) -> None:
        """End the app and report where it failed, without values: Textual's own report prints every local variable."""
        self._return_code = 1
        if self._exception is None:
            self._exit_renderables[:] = [plain_text(crash_report(error, self.crash_dir))]
            self._exception = error
            self._exception_event.set()
        self._close_messages_no_wait()
