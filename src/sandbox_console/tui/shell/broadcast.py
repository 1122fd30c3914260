"""Type into several shells at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual import events

from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.keys.keymap import hints
from sandbox_console.tui.shell.shell import Shell
from sandbox_console.tui.shell.shell_page import ShellPage
from sandbox_console.tui.shell.terminal_questions import TerminalQuestions
from sandbox_console.tui.text.formatting import sandbox_host

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class BroadcastActions(TerminalQuestions, ShellPage):
    """The actions of the page that mark shells and broadcast to them."""

    def _typed(self, shell: Shell, typed: events.Key | str) -> None:
        """Type into the other marked shells what was typed into one of them."""
        if not self.shells.broadcasting or not shell.marked:
            return
        for other in self.shells.marked:
            if other is not shell and other.link is not None:
                emulator = other.link.emulator
                sent = emulator.paste(typed) if isinstance(typed, str) else emulator.key(typed.key, typed.character)
                other.link.send(sent)

    def pasted_into(self, view: TerminalView) -> int:
        """Return how many shells get what is pasted into one."""
        shell = next((box.shell for box in self._boxes.values() if box.view is view), None)
        together = self.shells.broadcasting and shell is not None and shell.marked
        return len(self.shells.marked) if together else 1

    def action_mark(self) -> None:
        """Mark the active shell for a broadcast, or remove its mark."""
        shell = self.shells.active
        if shell is not None and shell.is_open:
            shell.marked = not shell.marked
            self.shells.check_broadcast()
            self.draw()

    def action_mark_all(self) -> None:
        """Mark every open shell, or none if all are marked."""
        every = [shell for shell in self.shells if shell.is_open]
        wanted = not all(shell.marked for shell in every)
        for shell in every:
            shell.marked = wanted
        self.shells.check_broadcast()
        self.draw()

    def action_broadcast(self) -> None:
        """Type into all marked shells at once, after one question; or no longer."""
        marked = self.shells.marked
        if self.shells.broadcasting:
            self.shells.broadcasting = False
            self.draw()
        elif len(marked) < 2:
            words = hints(self, ("shells-mark", "marks a shell"), ("shells-mark-all", "marks all"))
            self.notify(f"A broadcast needs two marked shells. {words}.", severity="warning")
        else:
            listed = plain("\n".join(f"{sandbox_host(shell.sandbox)}  {shell.title}" for shell in marked))
            title = f"Type into {len(marked)} shells at once?"
            body = plain("Every key and every paste in one of them goes to all of them, until the broadcast is ended.")
            self.app.push_screen(
                ConfirmScreen(title, body, "Broadcast", danger=True, listed=listed), partial(self._broadcast, marked)
            )

    def _broadcast(self, marked: Sequence[Shell], agreed: bool | None) -> None:
        if agreed and marked == self.shells.marked:
            self.shells.broadcasting = True
            if (shell := self.shells.active) is not None and not shell.marked:
                self.shells.use(marked[0])
            self.draw()
            self._type()
        elif agreed:
            self.notify("The marked shells have changed; nothing is broadcast.", severity="warning")
