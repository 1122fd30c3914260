"""Keys that request an action on sandboxes."""

from __future__ import annotations

from textual import on

from sandbox_console.tui.main import dispatch
from sandbox_console.tui.main.compare import compare, merge_logs
from sandbox_console.tui.main.detail_actions import DetailActions
from sandbox_console.tui.state.messages import (
    CauseRequested,
    FormRequested,
    FormSourceRequested,
    RecordingsRequested,
    TemplateRequested,
    TimelineRequested,
)
from sandbox_console.tui.state.verbs import NAMINGS, VERBS
from sandbox_console.tui.widgets.table.marked_table import MarkedTable


class AskActions(DetailActions):
    """Each requests an action on the marked sandboxes or on the selected one."""

    def action_create(self) -> None:
        """Create a sandbox."""
        self.post_message(FormRequested())

    def action_create_from(self) -> None:
        """Create a sandbox from a template, a docker run line or a file."""
        self.post_message(FormSourceRequested())

    def action_save_template(self) -> None:
        """Store the selected sandbox's spec as a template."""
        if self.need_one() and self.selected is not None:
            self.post_message(TemplateRequested(self.selected))

    def action_edit(self) -> None:
        """Edit the marked sandboxes together, or the selected one."""
        dispatch.ask_edit(self)

    def action_pause(self) -> None:
        """Pause or resume."""
        dispatch.ask_pause(self)

    def action_quarantine(self) -> None:
        """Put into quarantine and keep the evidence, or release from it."""
        dispatch.ask_quarantine(self)

    def action_why(self) -> None:
        """Show why the selected sandbox is in its state."""
        if self.need_one() and self.selected is not None:
            self.post_message(CauseRequested(self.selected))

    def action_timeline(self) -> None:
        """Show what happened to the marked sandboxes, or to the selected one."""
        if self.marked or self.need_one():
            self.post_message(TimelineRequested(self.marked or [sandbox for sandbox in (self.selected,) if sandbox]))

    def action_recordings(self) -> None:
        """Show the recordings of the selected sandbox, or of all if none is selected."""
        self.post_message(RecordingsRequested(self.selected))

    def action_verb(self, name: str) -> None:
        """Request a verb on the marked sandboxes, or on the selected one."""
        dispatch.ask(self, VERBS[name])

    action_bulk = action_verb

    def action_name(self, name: str) -> None:
        """Request a verb that takes a word: rename, commit, snapshot, fork."""
        dispatch.ask_name(self, NAMINGS[name])

    def action_changes(self) -> None:
        """Show how the sandbox's files differ from its image."""
        dispatch.ask_changes(self)

    def action_attach(self) -> None:
        """Attach to the main process."""
        dispatch.ask_attach(self)

    def action_forward(self) -> None:
        """Forward a port of the sandbox to this machine, or end a forward."""
        dispatch.ask_forward(self)

    def action_merge(self) -> None:
        """Merge the logs of marked sandboxes or those with a label, or go back to one."""
        self.run_worker(merge_logs(self, list(self.state.sandboxes.values()), self.marked))

    def action_compare(self) -> None:
        """Compare two sandboxes: the two marked, or this one and the next one chosen."""
        compare(self, self.marked, self.selected)

    def action_copy_command(self) -> None:
        """Copy the command that is equivalent to a key."""
        self.app.run_worker(dispatch.copy_command(self))

    def action_copy(self) -> None:
        """Copy the sandbox's ref, which the command line accepts."""
        if self.need_one() and self.selected is not None:
            self.app.copy_to_clipboard(str(self.selected.ref))
            self.notify(f"Copied {self.selected.ref}")

    def action_copy_address(self) -> None:
        """Copy this host's address for the sandbox's first port."""
        self.app.run_worker(dispatch.copy_address(self))

    @on(MarkedTable.MenuRequested)
    def action_menu(self) -> None:
        """Show all actions on the marked sandboxes, or on the selected one."""
        self.app.run_worker(dispatch.menu(self))
