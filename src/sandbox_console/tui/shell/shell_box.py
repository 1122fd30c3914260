"""The place of one shell on the shells page, and the area that these places share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget
from textual.widgets import Static

from sandbox_console.model.text import clean
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.shell.held_keys import ShellNotice
from sandbox_console.tui.shell.shell import Shell
from sandbox_console.tui.text.formatting import shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class ShellBox(Vertical):
    """Shows a shell in every state: being opened, open, ended or refused. A lone one has no frame."""

    DEFAULT_CSS = """
    ShellBox { border: round $border; border-title-color: $text-muted; border-subtitle-color: $text-muted; }
    ShellBox.-lone { border: none; }
    ShellBox.-active { border: round $primary; border-title-color: $primary; }
    ShellBox.-active.-lone { border: none; }
    ShellBox.-bell { border-subtitle-color: $warning; }
    ShellBox.-receives, ShellBox.-receives.-lone {
        border: heavy $error; border-title-color: $error; border-subtitle-color: $error;
    }
    ShellBox ShellNotice { height: 1fr; padding: 1 2; color: $text-muted; }
    ShellBox > #shell-end {
        height: 1; padding: 0 1; background: $panel; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    ShellBox > #shell-end.-on { display: block; }
    """

    def __init__(self, shell: Shell, on_typed: Callable[[Shell, events.Key | str], None]) -> None:
        super().__init__()
        self.shell = shell
        self.view: TerminalView | None = None
        self._on_typed = on_typed

    def compose(self) -> ComposeResult:
        yield ShellNotice()
        yield Static(id="shell-end", markup=False)

    @property
    def notice(self) -> ShellNotice:
        """What is shown while there is no terminal. It holds keys while the shell is being opened."""
        return self.query_one(ShellNotice)

    def show(self, *, active: bool, lone: bool, broadcast: bool, again: str) -> None:
        """Show the shell's state. ``again`` says which key opens an ended one again."""
        shell = self.shell
        self._connect()
        self.set_class(active, "-active")
        self.set_class(lone, "-lone")
        self.set_class(broadcast and shell.marked and shell.is_open, "-receives")
        self.set_class(shell.rang, "-bell")
        self.border_title = Content(f"{'✓ ' if shell.marked else ''}{shell.title}")
        self.border_subtitle = Content(self._signs(broadcast=broadcast))
        if self.view is None:
            self.notice.update(self._words(again))
        ended = self.view is not None and (not shell.is_open or shell.closing)
        words = "closing…" if shell.closing else f"■ ended: {clean(shell.reason, cap=200)}   {again}"
        put(self, "#shell-end", Content.styled(words, "$text-warning") if ended else Content(""))
        self.query_one("#shell-end").set_class(ended, "-on")

    def _signs(self, *, broadcast: bool) -> str:
        signs = ["♪"] if self.shell.rang else []
        if broadcast and self.shell.marked and self.shell.is_open:
            signs.append("BROADCAST")
        return " ".join(signs)

    def _words(self, again: str) -> Content:
        shell = self.shell
        if shell.opening:
            return Content(f"Opening a shell in {shown_name(shell.sandbox)}…")
        return Content.assemble(plain(f"✕ {shell.reason}", "$text-error"), f"\n\n{again}")

    def _connect(self) -> None:
        """Make the widget that shows a session, or remove that of one that has been given up."""
        link = self.shell.link
        if self.view is not None and (link is None or self.view.emulator is not link.emulator):
            self.view.detach()
            self.view.remove()
            self.view = None
            self.notice.display = True
        if self.view is None and link is not None:
            from sandbox_console.tui.widgets.terminal.terminal import TerminalView

            self.view = TerminalView(lambda: link.emulator, owned=False)
            self.view.on_typed = lambda typed: self._on_typed(self.shell, typed)
            self.mount(self.view, before="#shell-end")
            link.show_in(self.view)


class ShellArea(Widget):
    """Lays out the boxes by the places that the page gives it. Those without a place are hidden."""

    DEFAULT_CSS = "ShellArea { height: 1fr; }"

    def __init__(self, places: Callable[[Size], Mapping[int, Region]]) -> None:
        super().__init__()
        self._own_layout = _Places(places)

    @property
    def layout(self) -> Layout:
        """The layout by places, which has no name that a style could give."""
        return self._own_layout


class _Places(Layout):
    name = "shells"

    def __init__(self, places: Callable[[Size], Mapping[int, Region]]) -> None:
        self._places = places

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:  # noqa: ARG002 - Textual's signature
        places = self._places(size)
        return [
            WidgetPlacement(places[box.shell.number], NULL_OFFSET, NULL_SPACING, box)
            for box in children
            if isinstance(box, ShellBox) and box.shell.number in places
        ]
