"""Opens shells and attaches to processes: the policy's question, the session, and the screen that shows it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath

from textual.app import App
from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Attach, EndShell, OpenShell
from sandbox_console.model.guest import GuestProcess
from sandbox_console.model.kept_shell import KeptShell
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console, find_paths
from sandbox_console.service.sessions.attach import attach
from sandbox_console.service.sessions.brought_shell import with_busybox
from sandbox_console.tui.actions.action_flow import Flows
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.shell.open_shells import OpenShells
from sandbox_console.tui.shell.shell import Shell, ShellRequested
from sandbox_console.tui.shell.shell_choice import ShellChoice, ShellChoices
from sandbox_console.tui.shell.shell_tab import ShellPane
from sandbox_console.tui.text.formatting import error_words, sandbox_host, shown_name

_SHELLS = {"bash", "zsh", "fish", "ash", "dash", "ksh", "sh"}
_LISTED = 100
_OFFERED = 4


class ShellFlow:
    """Each step runs in a worker of the app. ``running`` returns the sandboxes that a shell can be opened in."""

    def __init__(
        self, app: App[None], console: Console, flows: Flows, running: Callable[[], Sequence[Sandbox]]
    ) -> None:
        self._app = app
        self._console = console
        self._flows = flows
        self._choices = ShellChoices(find_paths().state, self._may_be_secret)
        self._running_sandboxes = running

    def _may_be_secret(self, text: str) -> bool:
        return self._console.secrets.may_be_one(text, self._console.config.policy.hash_words_from)

    async def shell(self, asked: ShellRequested, shells: OpenShells) -> None:
        """Open a shell through the gate, and connect it to its place."""
        shell, sandbox = asked.shell, asked.shell.sandbox
        choice = shell.choice or self._choices.of(sandbox.ref)
        request = choice.request(sandbox.ref, asked.cols, asked.rows)
        if shell.choice is None and (kept_shell := await self._left_alone(sandbox)) is not None:
            watches = self._console.read_only
            request = OpenShell(
                sandbox.ref,
                cols=asked.cols,
                rows=asked.rows,
                attach=kept_shell.id,
                name=kept_shell.name,
                read_only=watches,
            )
        consent = await self._flows.consent(request, sandbox)
        if consent is None:
            shells.refuse(shell, "not confirmed")
            return
        try:
            if choice.busybox and not request.attach:
                request = await with_busybox(self._console, request, consent)
            session = await self._console.shell(request, consent=consent)
        except ConsoleError as error:
            shells.refuse(shell, error_words(error))
            self._app.notify(error.message, title=f"shell in {shown_name(sandbox)}", severity="error")
            return
        if shell not in shells:  # its place was closed in the meantime
            await session.close()
            return
        from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator  # 120 ms of CPU time

        shells.connect(shell, session, GhosttyEmulator(asked.cols, asked.rows))
        self._tell_lacking(sandbox, session.without)

    def _tell_lacking(self, sandbox: Sandbox, without: Sequence[str]) -> None:
        if without:
            names = ", ".join(map(clean, without))
            each = "it is" if len(without) == 1 else "they are"
            words = f"{names} cannot be read here: {each} not handed over, and not masked where shown."
            self._app.notify(words, title=f"shell in {shown_name(sandbox)}", severity="warning", timeout=10)

    async def _left_alone(self, sandbox: Sandbox) -> KeptShell | None:
        """Return the newest kept shell of a sandbox that nobody is attached to. One comes back to it."""
        shells = await self._console.kept_shells.of(sandbox.ref)
        return next((shell for shell in reversed(shells) if shell.answers and not shell.viewers), None)

    async def offer_kept(self) -> None:
        """Name the kept shells that nobody is attached to, for somebody whose session has just begun."""
        with contextlib.suppress(ConsoleError):
            left = [one for one in await self._console.kept_shells.list() if one.answers and not one.viewers]
            if left:
                names = ", ".join(clean(f"{one.name} in {one.sandbox}", cap=80) for one in left[:_OFFERED])
                more = f" and {len(left) - _OFFERED} more" if len(left) > _OFFERED else ""
                words = f"{names}{more}. Opening a shell in its sandbox goes on with it."
                self._app.notify(words, title="kept shells", timeout=15)

    async def choose(self, sandbox: Sandbox) -> ShellChoice | None:
        """Ask how a shell is opened, and remember the answer for the sandbox. Returns None if it was left."""
        from sandbox_console.tui.shell.shell_dialog import ChoiceScreen

        find = partial(self._console.inside.shells, sandbox.ref)
        choice = await self._app.push_screen_wait(ChoiceScreen(sandbox, self._choices.of(sandbox.ref), find))
        if choice is not None:
            await self._console.secrets.learn()
            try:
                self._choices.remember(sandbox.ref, choice)
            except OSError as error:
                self._app.notify(f"The choice is not remembered: {error.strerror or error}", severity="warning")
        return choice

    async def page(self, sandboxes: Sequence[Sandbox], pane: ShellPane, *, choose: bool = False) -> None:
        """Show the page of all shells, with a new shell in each of these sandboxes. ``choose`` asks how first."""
        choice = await self.choose(sandboxes[0]) if choose and sandboxes else None
        if choose and choice is None:
            return
        if not sandboxes and pane.open.tab is None:
            self._app.notify("No shell is open, and no sandbox is selected.", severity="warning")
            return
        if len(sandboxes) > 1 and not await self._app.push_screen_wait(_open_several(sandboxes)):
            return
        from sandbox_console.tui.shell.shell_screen import ShellScreen

        close = partial(self.close, shells=pane.open)
        pane.lend()
        page = ShellScreen(pane.open, self._running_sandboxes, close, self.choose, sandboxes, choice)
        self._app.push_screen(page, pane.take_back)

    async def close(self, shell: Shell, shells: OpenShells) -> None:
        """End a shell and give up its place. Asks first if something runs in it, or if that cannot be known."""
        kept = shell.link.session.kept if shell.link is not None and shell.is_open else ""
        question = await self._question(shell) if shell.is_open and not kept else None
        if question is not None and not await self._app.push_screen_wait(question):
            return
        if shell in shells and not shell.closing:
            shell.closing = True
            shells.redraw()
            if shell.link is not None and not shell.link.ended:
                with contextlib.suppress(ConsoleError):  # its end is noted in the audit log, also if it failed
                    await shell.link.session.close()
                await shell.link.leave()
            shells.forget(shell)
            if kept:
                self._app.notify(f"{kept} goes on. To end it: sandbox-console shells end {kept}")

    async def _question(self, shell: Shell) -> ConfirmScreen | None:
        name = shown_name(shell.sandbox)
        if shell.link is not None and shell.link.emulator.alternate_screen:
            words, listed = "A full-screen program runs in it.", None
        else:
            found = await self._running(shell.sandbox)
            if found is not None and not found:
                return None
            words = "It is not known what runs in it." if found is None else f"This runs in shells of {name}:"
            listed = Content("\n".join(found)) if found else None
        body = Content(f"{words} Closing the shell ends what it started.")
        return ConfirmScreen(f"Close the shell in {name}?", body, "Close", listed=listed)

    async def _running(self, sandbox: Sandbox) -> list[str] | None:
        try:
            return started_by_shells(await self._console.inside.processes(sandbox.ref))
        except ConsoleError:
            return None

    async def attach(self, sandbox: Sandbox) -> None:
        """Show the main process's streams on the screen."""
        from sandbox_console.tui.shell.attach_screen import AttachScreen  # with its emulator

        consent = await self._flows.consent(Attach(sandbox.ref), sandbox)
        if consent is None:
            return
        try:
            session = await attach(self._console, Attach(sandbox.ref), consent=consent)
        except ConsoleError as error:
            self._app.notify(error_words(error, apart=True), title=f"attach {shown_name(sandbox)}", severity="error")
            return
        self._app.push_screen(AttachScreen(sandbox, session))

    async def attach_kept(self, shell: KeptShell, *, watch: bool) -> None:
        """Show a kept shell on the screen."""
        from sandbox_console.tui.shell.attach_screen import KeptShellScreen  # with its emulator

        watches = watch or self._console.read_only
        cols, rows = self._app.size
        request = OpenShell(
            shell.ref, cols=max(cols, 20), rows=max(rows - 2, 5), attach=shell.id, name=shell.name, read_only=watches
        )
        try:
            consent = await self._flows.consent(request, await self._console.inspect(shell.ref))
            if consent is None:
                return
            session = await self._console.shell(request, consent=consent)
        except ConsoleError as error:
            self._app.notify(error_words(error, apart=True), title=f"attach {clean(shell.name)}", severity="error")
            return
        self._app.push_screen(KeptShellScreen(shell, session, watches=watches))

    async def end_kept(self, shell: KeptShell) -> None:
        """End a kept shell for everybody, after a question."""
        name, others = clean(shell.name, cap=60), [clean(viewer.actor, cap=60) for viewer in shell.viewers]
        seen = f" Attached: {', '.join(others)}." if others else ""
        body = Content(f"It ends for everybody, with everything that it started in {clean(shell.sandbox)}.{seen}")
        command = f"sandbox-console shells end {name}"
        if not await self._app.push_screen_wait(ConfirmScreen(f"End the shell {name}?", body, "End", command=command)):
            return
        action = EndShell(shell.ref, shell.id)
        try:
            consent = await self._flows.consent(action, await self._console.inspect(shell.ref), confirmed=True)
            if consent is not None:
                await self._console.end_shell(action, consent=consent)
        except ConsoleError as error:
            self._app.notify(error_words(error, apart=True), title=f"end {name}", severity="error")


def _open_several(sandboxes: Sequence[Sandbox]) -> ConfirmScreen:
    listed = Content("\n".join(f"{sandbox_host(sandbox)}  {shown_name(sandbox)}" for sandbox in sandboxes))
    return ConfirmScreen(
        f"Open {len(sandboxes)} shells?", Content("One in each marked sandbox, side by side."), "Open", listed=listed
    )


def started_by_shells(processes: Sequence[GuestProcess]) -> list[str]:
    """Return the commands that interactive shells of a sandbox have started, cleaned. Empty if all wait for input."""
    shells = {process.pid for process in processes if _interactive(process.command)}
    started = [process for process in processes if process.parent in shells and process.pid not in shells]
    return [f"{process.pid:>7}  {clean(process.command, cap=200)}" for process in started[:_LISTED]]


def _interactive(command: str) -> bool:
    """Return whether a command line is a shell without a script: ``bash``, ``-sh``, ``/bin/zsh -l``."""
    program, *words = command.split() or [""]
    return PurePosixPath(program.lstrip("-")).name in _SHELLS and all(word in ("-i", "-l", "--login") for word in words)
