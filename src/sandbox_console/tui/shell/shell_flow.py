"""Opens shells and attaches to processes: the policy's question, the session, and the screen that shows it."""

from __future__ import annotations

from textual.app import App

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Attach, OpenShell
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.service.sessions.attach import attach
from sandbox_console.tui.actions.action_flow import Flows
from sandbox_console.tui.shell.shell_tab import ShellPane
from sandbox_console.tui.state.messages import ShellAsked
from sandbox_console.tui.text.formatting import error_words, shown_name


class ShellFlow:
    """Each step runs in a worker of the app."""

    def __init__(self, app: App[None], console: Console, flows: Flows) -> None:
        self._app = app
        self._console = console
        self._flows = flows

    async def shell(self, asked: ShellAsked, pane: ShellPane) -> None:
        """Open a shell through the gate and put it on screen."""
        sandbox = asked.sandbox
        request = OpenShell(sandbox.ref, cols=asked.cols, rows=asked.rows)
        consent = await self._flows.consent(request, sandbox)
        if consent is None:
            pane.refused(sandbox, "not confirmed")
            return
        try:
            session = await self._console.shell(request, consent=consent)
        except ConsoleError as error:
            pane.refused(sandbox, error_words(error))
            self._app.notify(error.message, title=f"shell in {shown_name(sandbox)}", severity="error")
            return
        await pane.opened(sandbox, session)
        if session.without:
            names = ", ".join(map(clean, session.without))
            each = "it is" if len(session.without) == 1 else "they are"
            words = f"{names} cannot be read here: {each} not handed over, and not masked where shown."
            self._app.notify(words, title=f"shell in {shown_name(sandbox)}", severity="warning", timeout=10)

    async def attach(self, sandbox: Sandbox) -> None:
        """Show the main process's streams on the screen."""
        from sandbox_console.tui.shell.attach_screen import AttachScreen

        consent = await self._flows.consent(Attach(sandbox.ref), sandbox)
        if consent is None:
            return
        try:
            session = await attach(self._console, Attach(sandbox.ref), consent=consent)
        except ConsoleError as error:
            self._app.notify(error_words(error, apart=True), title=f"attach {shown_name(sandbox)}", severity="error")
            return
        self._app.push_screen(AttachScreen(sandbox, session))
