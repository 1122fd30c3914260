"""The keys of the main screen that ask for something to be done to sandboxes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.message_pump import MessagePump

from sandbox_console.tui.main import dispatch as asking
from sandbox_console.tui.main.compare import compare, merge_logs
from sandbox_console.tui.state.messages import FormAsked
from sandbox_console.tui.state.verbs import NAMINGS, VERBS
from sandbox_console.tui.widgets.table.marked_table import MarkedTable

if TYPE_CHECKING:
    from sandbox_console.tui.main.main_screen import MainScreen


class AskActions(MessagePump):
    """Mixed into the main screen."""

    @property
    def _asker(self) -> MainScreen:
        screen: MainScreen = self  # type: ignore[assignment]
        return screen

    def action_create(self) -> None:
        """Make a sandbox."""
        self.post_message(FormAsked())

    def action_edit(self) -> None:
        """Edit the selected one."""
        asking.ask_edit(self._asker)

    def action_pause(self) -> None:
        """Pause, or resume."""
        asking.ask_pause(self._asker)

    def action_verb(self, name: str) -> None:
        """Ask for something to be done to the marked sandboxes, or to the selected one."""
        asking.ask(self._asker, VERBS[name])

    action_bulk = action_verb

    def action_name(self, name: str) -> None:
        """Ask for something that takes a word: rename, commit, snapshot, fork."""
        asking.ask_name(self._asker, NAMINGS[name])

    def action_changes(self) -> None:
        """How its files differ from its image."""
        asking.ask_changes(self._asker)

    def action_attach(self) -> None:
        """Watch and feed the main process."""
        asking.ask_attach(self._asker)

    def action_forward(self) -> None:
        """Forward a port of it to this machine, or end that."""
        asking.ask_forward(self._asker)

    def action_merge(self) -> None:
        """The logs of marked sandboxes, or of those with a label, in one; again: back to one."""
        main = self._asker
        main.run_worker(merge_logs(main, list(main.state.sandboxes.values()), main.marked))

    def action_compare(self) -> None:
        """Two sandboxes beside each other: the two marked, or this one and the next one chosen."""
        compare(self._asker, self._asker.marked, self._asker.selected)

    def action_copy_command(self) -> None:
        """Copy the command that does the same as a key."""
        self.app.run_worker(asking.copy_command(self._asker))

    def action_copy(self) -> None:
        """Copy what the command line calls the sandbox."""
        main = self._asker
        if main.need_one() and main.selected is not None:
            self.app.copy_to_clipboard(str(main.selected.ref))
            main.notify(f"Copied {main.selected.ref}")

    def action_copy_address(self) -> None:
        """Copy where this host answers for the sandbox's first port."""
        self.app.run_worker(asking.copy_address(self._asker))

    @on(MarkedTable.MenuAsked)
    def action_menu(self) -> None:
        """All that can be done to the marked sandboxes, or to the selected one."""
        self.app.run_worker(asking.menu(self._asker))
