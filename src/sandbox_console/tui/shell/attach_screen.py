"""Shows an attached main process on the whole screen, until it is detached."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.model.sandbox import Exit, Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service.sessions.attach import AttachedSession
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.shell.terminal_link import ShellLink
from sandbox_console.tui.shell.terminal_questions import TerminalQuestions
from sandbox_console.tui.text.formatting import exit_words, shown_name
from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class AttachScreen(TerminalQuestions, Screen[None]):
    """Every key except Ctrl+] goes to the process. Leaving detaches from it, and it keeps running."""

    DEFAULT_CSS = """
    AttachScreen { background: $background; }
    AttachScreen > #attach-title, AttachScreen > #attach-status {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    AttachScreen TerminalView { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+right_square_bracket", "leave", "Let go"),
    ]

    def __init__(self, sandbox: Sandbox, session: AttachedSession) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._session = session
        self._link: ShellLink | None = None

    def compose(self) -> ComposeResult:
        title = [(f"Main process of {shown_name(self._sandbox)}", "bold $primary"), ("  from now on", "$dim")]
        yield Static(Content.assemble(*title, ("; what it wrote before is in its logs", "$dim")), id="attach-title")
        yield TerminalView(id="attached")
        yield Static(id="attach-status", markup=False)

    def on_mount(self) -> None:
        view = self.query_one(TerminalView)
        view.focus()
        self._link = ShellLink(self._session, view.emulator, self._ended)
        self._link.show_in(view)
        put(self, "#attach-status", Content.assemble(("● attached", "$text-success"), f"   {self._how()}"))

    def _how(self) -> str:
        attachment = self._session.attachment
        if not attachment.takes_input:
            return "Its input is closed: only watching   Ctrl+] detaches, it keeps running"
        kind = "Keys go to its terminal" if attachment.tty else "Lines go to its input"
        return f"{kind}   Ctrl+] detaches, it keeps running"

    def _ended(self, end: Exit | None, problem: str) -> None:
        if self.is_attached:
            outcome = clean(problem or exit_words(end) or "ended", cap=200)
            put(self, "#attach-status", Content.assemble((f"■ {outcome}", "$text-warning"), "   Esc leaves"))
            self.set_focus(None)

    def on_terminal_view_left(self) -> None:
        self.action_leave()

    async def on_unmount(self) -> None:
        if self._link is not None:
            await self._link.leave()
        await self._session.close()

    def action_leave(self) -> None:
        """Detach."""
        self.dismiss()
