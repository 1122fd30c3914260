"""The Shell tab of the detail: the shell of the selected sandbox that was used last."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import ContentSwitcher, Static

from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import clean
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import set_text
from sandbox_console.tui.keys.keymap import hint, key_of
from sandbox_console.tui.shell.held_keys import QUIET_S, ShellNotice
from sandbox_console.tui.shell.open_shells import OpenShells
from sandbox_console.tui.shell.shell import Shell, ShellRequested
from sandbox_console.tui.shell.terminal_questions import TerminalQuestions
from sandbox_console.tui.state.fleet_state import News
from sandbox_console.tui.text.formatting import shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class ShellPane(TerminalQuestions, Vertical):
    """Shows a sandbox's shell. The shells stay open while other tabs, rows and pages are shown."""

    DEFAULT_CSS = """
    ShellPane { height: 1fr; }
    ShellPane > ContentSwitcher { height: 1fr; }
    ShellPane #shell-none { padding: 1 2; color: $text-muted; height: 1fr; }
    ShellPane > #shell-status {
        height: 1;
        padding: 0 1;
        background: $panel;
        color: $text-muted;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self, publish: Callable[[News], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.open = OpenShells(publish)
        self.open.listeners.append(self._changed)
        self._views: dict[int, TerminalView] = {}
        self._sandbox: Sandbox | None = None
        self._entering: Shell | None = None
        self._lent = False
        self._count = 0

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="shell-none"):
            yield ShellNotice(id="shell-none")
        yield Static(id="shell-status", markup=False)

    @property
    def open_count(self) -> int:
        """The number of open shells."""
        return self.open.open_count

    @property
    def in_terminal(self) -> bool:
        """Whether keys go to a guest."""
        return any(view.has_focus for view in self._views.values())

    def show(self, sandbox: Sandbox | None) -> None:
        """Show a sandbox's shell, or that it has none."""
        self._sandbox = sandbox
        shell = self._shell
        view = self._view_of(shell)
        switcher = self.query_one(ContentSwitcher)
        switcher.current = view.id if view else "shell-none"
        self.query_one("#shell-none", ShellNotice).update(self._notice(shell))
        set_text(self.query_one("#shell-status", Static), self._status(shell), fixed=True)

    def enter(self, sandbox: Sandbox) -> None:
        """Go to a sandbox's shell, and request one if none is open."""
        self.show(sandbox)
        shell = self._shell
        if shell is not None and shell.is_open:
            self._views[shell.number].focus()
        elif shell is None or not shell.opening:
            self._ask(sandbox, shell)

    def copy_mode(self, sandbox: Sandbox) -> None:
        """Copy from a sandbox's shell, or search in it, also after its end."""
        self.show(sandbox)
        shell = self._shell
        if shell is not None and (view := self._views.get(shell.number)) is not None:
            view.begin_copy()
            view.focus()
        else:
            self.notify(f"No shell is open in {shown_name(sandbox)}.", severity="warning")

    def _ask(self, sandbox: Sandbox, ended: Shell | None) -> None:
        if ended is not None:
            self._drop_view(ended.number)
            self.open.reopen(ended)
        shell = self._entering = ended or self.open.add(sandbox)
        self.show(sandbox)
        notice = self.query_one(ShellNotice)
        notice.hold()
        notice.focus()
        area = self.query_one(ContentSwitcher).size
        self.post_message(ShellRequested(shell, max(area.width, 20), max(area.height, 5)))

    def lend(self) -> None:
        """Leave the shells to the shells page, which shows them in widgets of its own."""
        self._lent = True
        for number in [*self._views]:
            self._drop_view(number)
        self.show(self._sandbox)

    def take_back(self, _: None = None) -> None:
        """Show the shells here again."""
        self._lent = False
        self.show(self._sandbox)

    @property
    def _shell(self) -> Shell | None:
        return self.open.of(self._sandbox.ref) if self._sandbox else None

    def _view_of(self, shell: Shell | None) -> TerminalView | None:
        """Return the widget of a shell, made if it has none yet. None while there is nothing to show."""
        if shell is None or shell.link is None or self._lent:
            return None
        if shell.number not in self._views:
            from sandbox_console.tui.widgets.terminal.terminal import TerminalView

            self._count += 1
            link = shell.link
            view = self._views[shell.number] = TerminalView(
                lambda: link.emulator, owned=False, id=f"terminal-{self._count}"
            )
            self.query_one(ContentSwitcher).mount(view)
            link.show_in(view)
        return self._views[shell.number]

    def _drop_view(self, number: int) -> None:
        if (view := self._views.pop(number, None)) is not None:
            view.detach()
            view.remove()

    def _changed(self) -> None:
        if not self.is_attached or not self.is_mounted:
            return
        for number in [*self._views]:
            if number not in (one.number for one in self.open):
                self._drop_view(number)
        self.show(self._sandbox)
        if (shell := self._entering) is not None and not shell.opening:
            self._entering = None
            self._arrived(shell)
        for one in self.open:
            if one.looked_at and not one.is_open and one.number in self._views:
                self._hand_over(self._views[one.number])

    def _arrived(self, shell: Shell) -> None:
        """Give the keys that were typed in the meantime to a shell that was opened."""
        typed = self.query_one(ShellNotice).release()
        if self._shell is not shell or shell.link is None or (view := self._views.get(shell.number)) is None:
            return
        if self.display:  # otherwise another tab is open, whose keys are not for a guest
            view.focus()
        for one in typed:
            view.on_key(one) if isinstance(one, events.Key) else view.on_paste(one)

    async def on_unmount(self) -> None:
        await self.open.leave()

    def _hand_over(self, view: TerminalView) -> None:
        """Return the focus to the screen once the user has noticed that the shell has ended."""
        if not view.has_focus:
            return
        if view.copying is not None:  # what it wrote last is being read; its end is reported below
            self.set_timer(QUIET_S, lambda: self._hand_over(view))
            return
        left = QUIET_S - (monotonic() - max(view.typed_at, view.detached_at))
        if left > 0:
            self.set_timer(left, lambda: self._hand_over(view))
        else:
            self.screen.focus_next()

    def _notice(self, shell: Shell | None) -> Content:
        sandbox = self._sandbox
        if sandbox is None:
            return Content("No sandbox is selected.")
        if shell is not None and shell.opening:
            return Content.assemble((f"Opening a shell in {shown_name(sandbox)}…", ""))
        if shell is not None and shell.reason:
            return plain(f"✕ {shell.reason}", "$text-error")
        if sandbox.status is not Status.RUNNING:
            return Content(f"{shown_name(sandbox)} is {sandbox.status}: a shell needs a running sandbox.")
        key = key_of(self, "shell")
        return Content.assemble(
            (f"No shell is open in {shown_name(sandbox)}. ", ""), *([(key, "bold $primary"), " or "] if key else ()),
            ("Enter", "bold $primary"), (" opens one.", ""),
        )  # fmt: skip

    def _status(self, shell: Shell | None) -> Content:
        others = self.open_count - (1 if shell is not None and shell.is_open else 0)
        more = f"   {others} more open" if others else ""
        pages = f", {hint(self, 'shells', 'shows all')}" if others and key_of(self, "shells") else ""
        if shell is None or shell.link is None:
            return Content(f"{more}{pages}".strip())
        if not shell.is_open:
            again = hint(self, "shell", "opens a new one")
            end = clean(shell.reason, cap=200)
            return Content.assemble((f"■ ended: {end}", "$text-warning"), (f"   {again}{more}{pages}", ""))
        session = shell.link.session
        without = f", without {clean(', '.join(session.without), cap=80)}" if session.without else ""
        state = f"● kept shell {session.kept}" if session.kept else "● shell open"
        return Content.assemble(
            (state, "$text-success"), (", recorded" if session.recorded else "", "$text-success"),
            (without, "$text-warning"), ("   ♪" if shell.rang else "", "bold $text-warning"),
            ("   Ctrl+] leaves it open   Shift+PgUp scrolls", ""), (f"{more}{pages}", ""),
        )  # fmt: skip
