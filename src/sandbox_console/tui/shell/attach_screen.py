"""Shows an attached main process or kept shell on the whole screen, until it is detached."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.model.kept_shell import KeptShell
from sandbox_console.model.sandbox import Exit, Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service.sessions.attach import AttachedSession
from sandbox_console.service.sessions.shell import ShellSession
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.shell.terminal_link import Session, ShellLink
from sandbox_console.tui.shell.terminal_questions import TerminalQuestions
from sandbox_console.tui.text.formatting import exit_words, shown_name
from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class SessionScreen(TerminalQuestions, Screen[None]):
    """Every key except Ctrl+] goes to what is attached. Leaving detaches from it, and it keeps running."""

    DEFAULT_CSS = """
    SessionScreen { background: $background; }
    SessionScreen > #attach-title, SessionScreen > #attach-status {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    SessionScreen TerminalView { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+right_square_bracket", "leave", "Let go"),
    ]

    def __init__(self, session: Session, title: Content, how: str) -> None:
        super().__init__()
        self._session, self._title_words, self._how = session, title, how
        self._link: ShellLink | None = None

    def compose(self) -> ComposeResult:
        yield Static(self._title_words, id="attach-title", markup=False)
        yield TerminalView(id="attached")
        yield Static(id="attach-status", markup=False)

    def on_mount(self) -> None:
        view = self.query_one(TerminalView)
        view.focus()
        self._link = ShellLink(self._session, view.emulator, self._ended)
        self._link.show_in(view)
        put(self, "#attach-status", Content.assemble(("● attached", "$text-success"), f"   {self._how}"))

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


class AttachScreen(SessionScreen):
    """Shows the main process of a sandbox."""

    def __init__(self, sandbox: Sandbox, session: AttachedSession) -> None:
        title = [(f"Main process of {shown_name(sandbox)}", "bold $primary"), ("  from now on", "$dim")]
        words = Content.assemble(*title, ("; what it wrote before is in its logs", "$dim"))
        super().__init__(session, words, f"{_takes(session)}   Ctrl+] detaches, it keeps running")


class KeptShellScreen(SessionScreen):
    """Shows a kept shell."""

    def __init__(self, shell: KeptShell, session: ShellSession, *, watches: bool) -> None:
        title = [(f"Kept shell {clean(shell.name, cap=60)}", "bold $primary"), (f"  in {clean(shell.sandbox)}", "$dim")]
        keys = "Only watching" if watches else "Keys go to it"
        super().__init__(session, Content.assemble(*title), f"{keys}   Ctrl+] detaches, it goes on")


def _takes(session: AttachedSession) -> str:
    if not session.attachment.takes_input:
        return "Its input is closed: only watching"
    return "Keys go to its terminal" if session.attachment.tty else "Lines go to its input"
