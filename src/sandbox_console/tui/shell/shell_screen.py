"""The page of all shells: tabs, each with its shells side by side or stacked.

While a shell has the focus every key goes to it, except Ctrl+]. After Ctrl+] one key acts on the page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar

from textual.binding import BindingType

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.shell.broadcast import BroadcastActions
from sandbox_console.tui.shell.open_shells import OpenShells
from sandbox_console.tui.shell.shell import Shell, ShellRequested
from sandbox_console.tui.shell.shell_box import ShellArea
from sandbox_console.tui.shell.shell_choice import ShellChoice
from sandbox_console.tui.shell.shell_page import DRAW_S
from sandbox_console.tui.shell.tab_actions import TabActions
from sandbox_console.tui.text.formatting import sandbox_host, shown_name

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ShellScreen(TabActions, BroadcastActions):
    """Opens and closes `OpenShells`. ``close`` ends a shell, after a question if something runs in it."""

    DEFAULT_CSS = """
    ShellScreen { background: $background; }
    ShellScreen.-broadcast TabLine { background: $error; color: $background; }
    ShellScreen KeyBar { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["shells"]

    def __init__(
        self, shells: OpenShells, sandboxes: Callable[[], Sequence[Sandbox]], close: Callable[[Shell], Awaitable[None]],
        choose: Callable[[Sandbox], Awaitable[ShellChoice | None]], wanted: Sequence[Sandbox] = (),
        choice: ShellChoice | None = None,
    ) -> None:  # fmt: skip
        super().__init__(shells)
        self._sandboxes = sandboxes
        self._end_shell = close
        self._wanted, self._choice = wanted, choice
        self._choose = choose

    def on_mount(self) -> None:
        if self._wanted:
            wide = self.app.size.width >= 2 * self.app.size.height
            for shell in self.shells.add_several([*self._wanted], wide=wide):
                shell.choice = self._choice
                self._open(shell)
        self.draw()
        self._type()

    def _open(self, shell: Shell) -> None:
        self.draw()
        self.call_after_refresh(self._ask, shell)

    def _ask(self, shell: Shell) -> None:
        box = self._boxes.get(shell.number)
        if box is None or not shell.opening:
            return
        if not box.is_mounted:
            self.set_timer(DRAW_S, partial(self._ask, shell))
            return
        box.notice.hold()
        self._focus_active()
        area = box.content_size or self.query_one(ShellArea).size  # without a size while another tab is shown
        self.post_message(ShellRequested(shell, max(area.width, 20), max(area.height, 5)))

    def _add(self, sandbox: Sandbox, beside: Shell | None = None, *, across: bool = True) -> None:
        self._open(self.shells.add(sandbox, beside, across=across))

    def action_new(self) -> None:
        """Open another shell in the sandbox of the active one, in a new tab."""
        if (shell := self.shells.active) is not None:
            self._add(shell.sandbox)

    def action_choose(self) -> None:
        """Choose the shell, its user, folder and environment, and open it in a new tab."""
        if (shell := self.shells.active) is not None:
            self.app.run_worker(self._add_chosen(shell.sandbox))

    async def _add_chosen(self, sandbox: Sandbox) -> None:
        choice = await self._choose(sandbox)
        if choice is not None and self.is_attached:
            self._open(self.shells.add(sandbox, choice=choice))

    def action_split(self, across: int) -> None:
        """Open another shell in the sandbox of the active one, beside it or below it."""
        if (shell := self.shells.active) is not None:
            self.shells.tab_of(shell).zoomed = False
            self._add(shell.sandbox, shell, across=bool(across))

    def action_other(self, beside: int = 0) -> None:
        """Choose another sandbox, and open a shell in it."""
        self.app.run_worker(self._pick(beside=bool(beside)))

    async def _pick(self, *, beside: bool) -> None:
        running = {str(sandbox.ref): sandbox for sandbox in self._sandboxes()}
        choices = [
            Choice(ref, shown_name(sandbox), letter, detail=sandbox_host(sandbox))
            for (ref, sandbox), letter in zip(running.items(), [*_LETTERS] + [""] * len(running), strict=False)
        ]
        found = await self.app.push_screen_wait(MenuScreen("Open a shell in", choices))
        if found in running and self.is_attached:
            self._add(running[found], self.shells.active if beside else None)

    def action_close_shell(self) -> None:
        """End the active shell and give up its place. Asks if something runs in it."""
        if (shell := self.shells.active) is not None:
            self.app.run_worker(self._end_and_go_on(shell))

    async def _end_and_go_on(self, shell: Shell) -> None:
        await self._end_shell(shell)
        if self.is_attached:
            self.draw()
            self._type()

    def action_type(self) -> None:
        """Go into the active shell, or open it again if it has ended."""
        shell = self.shells.active
        if shell is None or shell.closing:
            return
        if not shell.is_open and not shell.opening:
            self.shells.reopen(shell)
            self._open(shell)
        self._type()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Ctrl+] leaves a shell while one has the keys, and is sent to it after that."""
        return action != "keys" or self.focused is not None

    def action_keys(self) -> None:
        """Let the keys act on the page. The terminal handles the key itself, so this is only shown in the footer."""
        self.set_focus(None)

    def action_literal(self) -> None:
        """Send Ctrl+] itself to the shell."""
        shell = self.shells.active
        if shell is not None and shell.link is not None:
            shell.link.send(b"\x1d")
        self._type()

    def action_leave(self) -> None:
        """Go back to the list. The shells stay open."""
        self.dismiss()

    def action_copy_mode(self, search: int) -> None:
        """Copy from the active shell, or search in it."""
        box = self._active_box
        if box is not None and box.view is not None:
            box.view.begin_copy()
            self.set_focus(box.view)
            if search:
                box.view.action_copy_search()
