"""The shells that this app has open, and the tabs in which the shells page shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef
from sandbox_console.service import ShellSession
from sandbox_console.tui.shell.shell import Shell, ShellTab
from sandbox_console.tui.shell.shell_choice import ShellChoice
from sandbox_console.tui.shell.tab_layout import leaves, tiled, with_new, without
from sandbox_console.tui.shell.terminal_link import ShellLink
from sandbox_console.tui.state.fleet_state import News, ShellClosed, ShellOpened
from sandbox_console.tui.text.formatting import exit_words

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.emulator import Emulator


class OpenShells:
    """All shells, by number, and their tabs. ``listeners`` are called when a tab, a title or a state has changed."""

    def __init__(self, publish: Callable[[News], None]) -> None:
        self.tabs: list[ShellTab] = []
        self.current = 0
        self.broadcasting = False
        self.listeners: list[Callable[[], None]] = []
        self._publish = publish
        self._shells: dict[int, Shell] = {}
        self._latest: dict[SandboxRef, int] = {}
        self._count = 0

    def __iter__(self) -> Iterator[Shell]:
        """Yield every shell in the order of the tabs."""
        return (self._shells[number] for tab in self.tabs for number in tab.shells)

    def __getitem__(self, number: int) -> Shell:
        """Return a shell. Raises KeyError if it was closed."""
        return self._shells[number]

    @property
    def tab(self) -> ShellTab | None:
        """The current tab."""
        return self.tabs[self.current] if self.tabs else None

    @property
    def active(self) -> Shell | None:
        """The active shell of the current tab."""
        return self._shells[self.tab.active] if self.tab else None

    @property
    def open_count(self) -> int:
        """The number of shells that are open."""
        return sum(shell.is_open for shell in self._shells.values())

    @property
    def marked(self) -> list[Shell]:
        """The open shells that a broadcast types into."""
        return [shell for shell in self if shell.marked and shell.is_open]

    def of(self, ref: SandboxRef) -> Shell | None:
        """Return the shell of a sandbox that was used last."""
        shell = self._shells.get(self._latest.get(ref, -1))
        if shell is not None and (shell.is_open or shell.opening):
            return shell
        others = [one for one in self if one.sandbox.ref == ref]
        return next((one for one in reversed(others) if one.is_open), shell or (others[-1] if others else None))

    def tab_of(self, shell: Shell) -> ShellTab:
        """Return the tab that shows a shell. Raises StopIteration if it was closed."""
        return next(tab for tab in self.tabs if shell.number in tab.shells)

    def __contains__(self, shell: object) -> bool:
        """Return whether a shell has not been closed."""
        return isinstance(shell, Shell) and self._shells.get(shell.number) is shell

    # --- changes

    def add(
        self, sandbox: Sandbox, beside: Shell | None = None, *, across: bool = True, choice: ShellChoice | None = None
    ) -> Shell:
        """Add a shell that is being opened: in a new tab, or beside (under) another one."""
        self._count += 1
        shell = self._shells[self._count] = Shell(self._count, sandbox, choice)
        if beside is None:
            self.tabs.append(ShellTab(shell.number, shell.number))
            self.current = len(self.tabs) - 1
        else:
            tab = self.tab_of(beside)
            tab.node = with_new(tab.node, beside.number, shell.number, across=across)
        self.use(shell)
        return shell

    def add_several(self, sandboxes: list[Sandbox], *, wide: bool) -> list[Shell]:
        """Add a shell in each sandbox, all in one new tab."""
        shells = [self.add(sandboxes[0])]
        for sandbox in sandboxes[1:]:
            shells.append(self.add(sandbox, shells[-1]))
        tab = self.tab_of(shells[0])
        tab.node = tiled([shell.number for shell in shells], wide=wide)
        self.use(shells[0])
        return shells

    def use(self, shell: Shell) -> None:
        """Make a shell the active one, and its tab the current one."""
        tab = self.tab_of(shell)
        self.current = self.tabs.index(tab)
        tab.active = shell.number
        tab.zoomed = tab.zoomed and len(tab.shells) > 1
        self._latest[shell.sandbox.ref] = shell.number
        shell.rang = False
        self.redraw()

    def connect(self, shell: Shell, session: ShellSession, emulator: Emulator) -> None:
        """Connect a session that was opened for a shell."""
        ref = shell.sandbox.ref
        shell.reason = ""
        shell.link = ShellLink(
            session, emulator, lambda end, problem: self._ended(shell, end, problem), lambda: self._notify(shell)
        )
        self._publish(ShellOpened(ref.whole))
        self.redraw()

    def reopen(self, shell: Shell) -> None:
        """Make room for a new session in the place of one that has ended. The widget that showed it is gone."""
        shell.link, shell.reason, shell.bells, shell.guest_title = None, "", 0, ""
        self.redraw()

    async def leave(self) -> None:
        """Disconnect all. The console ends the shells."""
        for shell in self._shells.values():
            if shell.link is not None:
                await shell.link.leave()

    def redraw(self) -> None:
        """Tell the listeners that a state has changed."""
        for listener in [*self.listeners]:
            listener()

    def refuse(self, shell: Shell, reason: str) -> None:
        """Note why a shell was not opened."""
        shell.reason = reason
        self.redraw()

    def forget(self, shell: Shell) -> None:
        """Remove a shell from its tab. Whoever calls it has ended it, and removed the widget that showed it."""
        if shell not in self:
            return
        tab = self.tab_of(shell)
        order = tab.shells
        node = without(tab.node, shell.number)
        if node is None:
            at = self.tabs.index(tab)
            self.tabs.remove(tab)
            self.current = max(0, min(self.current - (at < self.current), len(self.tabs) - 1))
        else:
            tab.node = node
            if tab.active == shell.number:
                tab.active = tab.shells[max(0, order.index(shell.number) - 1)]
            tab.zoomed = False
        del self._shells[shell.number]
        self.check_broadcast()
        self.redraw()

    def move_to_own_tab(self, shell: Shell) -> None:
        """Take a shell out of its split into a tab of its own."""
        tab = self.tab_of(shell)
        node = without(tab.node, shell.number)
        if node is None:
            return
        tab.node, tab.zoomed = node, False
        tab.active = tab.shells[0]
        self.tabs.insert(self.tabs.index(tab) + 1, ShellTab(shell.number, shell.number))
        self.use(shell)

    def join_tab_before(self, shell: Shell, *, across: bool) -> None:
        """Take a shell into the tab before, beside or under the shell that is active there."""
        tab = self.tab_of(shell)
        at = self.tabs.index(tab)
        rest = without(tab.node, shell.number)
        if at == 0:
            return
        into = self.tabs[at - 1]
        if rest is None:
            self.tabs.remove(tab)
        else:
            tab.node, tab.active = rest, next(leaves(rest))
        into.node = with_new(into.node, into.active, shell.number, across=across)
        into.zoomed = False
        self.use(shell)

    def _ended(self, shell: Shell, end: Exit | None, problem: str) -> None:
        shell.reason = problem or exit_words(end) or "ended"
        if not any(one.is_open and one.sandbox.ref == shell.sandbox.ref for one in self._shells.values()):
            self._publish(ShellClosed(shell.sandbox.ref.whole))
        self.check_broadcast()
        self.redraw()

    def _notify(self, shell: Shell) -> None:
        """Note the bell and the title."""
        if shell.link is None:
            return
        bells, title = shell.link.emulator.bells, shell.link.emulator.title
        if (bells, title) != (shell.bells, shell.guest_title):
            shell.rang = shell.rang or (bells != shell.bells and not shell.looked_at)
            shell.bells, shell.guest_title = bells, title
            self.redraw()

    def check_broadcast(self) -> None:
        """End a broadcast that has fewer than two shells left."""
        if self.broadcasting and len(self.marked) < 2:
            self.broadcasting = False
