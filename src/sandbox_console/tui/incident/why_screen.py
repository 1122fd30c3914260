"""The page that says why a sandbox is in its state, with the evidence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import ClassVar

from rich.cells import cell_len
from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.service.incident.cause import Cause, cause
from sandbox_console.service.incident.cause_sections import FIELDS, Section, sections
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.detail.detail_pane import identity
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.messages import ActionRequested, TimelineRequested
from sandbox_console.tui.state.verbs import toggled_quarantine, unfit
from sandbox_console.tui.text.formatting import shown_name, span
from sandbox_console.tui.text.wrap import Part, hanging
from sandbox_console.tui.widgets.key_bar import KeyBar

LOOK_S = 0.5
_INDENT = 2
_LINE_MOST = 2000
_CELL_MOST = 60


class WhyScreen(Screen[None]):
    """The verdict, the evidence and what would have settled it. Judged again when the sandbox or its records change."""

    DEFAULT_CSS = """
    WhyScreen { background: $background; }
    WhyScreen > #why-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    WhyScreen > VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    WhyScreen #why-text { height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["why"]
    AUTO_FOCUS: ClassVar[str] = "VerticalScroll"

    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, sandbox: Sandbox, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._sandbox = sandbox
        self._clock = clock
        self._found: Cause | None = None
        self._judged: Hashable = None

    def compose(self) -> ComposeResult:
        yield Static(id="why-title", markup=False)
        with VerticalScroll(can_focus=True):
            yield Static("Reading its records…", id="why-text", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self._look)
        self._look()

    @property
    def ref(self) -> SandboxRef:
        """The sandbox that the page is about."""
        return self._sandbox.ref

    def _look(self) -> None:
        """Judge again if anything is new. A sandbox that was removed meanwhile stays as it was last seen."""
        fleet = self.console_app.fleet
        self._sandbox = fleet.sandboxes.get(self.ref, self._sandbox)
        denied = fleet.denied.get(self.ref)
        version = (self._sandbox, fleet.acted[-1:], denied.at if denied else None, self.ref in fleet.sandboxes)
        if version != self._judged:
            self._judged = version
            self.run_worker(self._judge(), exclusive=True, group="why")

    async def _judge(self) -> None:
        self._found = await cause(self._service, self._sandbox)
        self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        gone = self.ref not in self.console_app.fleet.sandboxes
        words = identity(self._sandbox, self.size.width - (17 if gone else 7))
        title = Content.assemble(("Why  ", "bold"), words, ("  removed" if gone else "", "$text-warning"))
        put(self, "#why-title", title)
        for text in self.query("#why-text").results(Static):
            if self._found is not None and (width := text.content_size.width):
                found = sections(self._found, self._clock(), span)
                text.update(Content.assemble(*hanging(cause_parts(found), width, _INDENT + 2)))

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_again(self) -> None:
        """Read all records again."""
        self._judged = None
        self._look()

    def action_quarantine(self) -> None:
        """Put it into quarantine, or release it."""
        verb = toggled_quarantine([self._sandbox])
        if reason := unfit(verb, self._sandbox, self.console_app.fleet.busy.get(self.ref)):
            self.notify(f"{shown_name(self._sandbox)}: {reason}.", title=verb.name, severity="warning")
        else:
            self.post_message(ActionRequested(verb.make(self._sandbox), self._sandbox))

    def action_timeline(self) -> None:
        """Show what happened around it."""
        self.post_message(TimelineRequested([self._sandbox]))

    def action_copy(self) -> None:
        """Copy the command that prints this page."""
        command = f"sandbox-console why {self.ref}"
        self.app.copy_to_clipboard(command)
        self.notify(f"Copied: {command}")


def cause_parts(sections: Iterable[Section]) -> Iterator[Part]:
    """Yield the text of the page. Texts of guests are cleaned, one line each."""
    for number, section in enumerate(sections):
        before = "\n\n" if number else ""
        yield f"{before}{clean(section.head, cap=200)}", "bold $primary"
        if number == 0:
            yield from ((f"\n{' ' * _INDENT}{_line(line)}", _verdict_style(section)) for line in section.lines)
            continue
        for line in _table(section.rows) if section.rows else map(_line, section.lines):
            yield f"\n{' ' * _INDENT}{line}", ""


def _verdict_style(section: Section) -> str:
    return "bold $text-error" if section.head.endswith("(not sure)") else "bold $text-warning"


def _line(text: str) -> str:
    return clean(text.replace("\t", " "), cap=_LINE_MOST)


def _table(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    cells = [FIELDS, *(tuple(clean(cell, cap=_CELL_MOST) for cell in row) for row in rows)]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(FIELDS))]
    for row in cells:
        yield "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
