"""The snapshots of every backend that supports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import RemoveSnapshot, RestoreSnapshot
from sandbox_console.model.image import Snapshot
from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.text import clean
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.dialogs.action_menu import Choice
from sandbox_console.tui.images.resource_screen import ResourceScreen
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.messages import VerbInputRequested
from sandbox_console.tui.state.verbs import NAMINGS, unfit
from sandbox_console.tui.text.formatting import DASH, host_label, shown_name, size, span
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.table.table_layout import Column
from sandbox_console.tui.widgets.table.table_rows import Row


class SnapshotsScreen(ResourceScreen[Snapshot]):
    """Enter creates a sandbox from the selected snapshot."""

    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["snapshots"]
    TITLE_WORDS = "Snapshots"
    EMPTY = "No snapshots yet."
    NEXT = ("snapshots-take", "takes one of the sandbox selected in the list")
    CAPABILITY = Capability.SNAPSHOT
    COLUMNS = (
        Column("name", "NAME", 16, 60, priority=0),
        Column("of", "OF", 8, 40, priority=1),
        Column("kind", "KIND", 4, 6, priority=3),
        Column("size", "SIZE", 5, 8, "right", priority=1, largest=True),
        Column("age", "AGE", 6, 8, "right", priority=2),
        Column("backend", "BACKEND", 8, 24, priority=4),
    )

    async def fetch(self, host_key: HostKey) -> Sequence[Snapshot]:
        return sorted(await self._service.inside.snapshots(*host_key), key=lambda snapshot: snapshot.name)

    def rows(self, snapshot: Snapshot, now: float) -> list[Row]:
        host_key = snapshot.backend, snapshot.host
        age = None if snapshot.created_at is None else now - snapshot.created_at
        kind = "memory" if snapshot.full else "disk"
        shown = DASH if age is None else span(age)
        cells = (
            clean(snapshot.name, cap=200), clean(snapshot.of, cap=200) or DASH, kind, size(snapshot.size_bytes), shown,
            host_label(host_key),
        )  # fmt: skip
        order = (snapshot.name, snapshot.of, kind, snapshot.size_bytes, age, host_key)
        return [Row((host_key, snapshot.name), cells, ("", "", "dim", "", "", "dim"), order)]

    def summary(self, snapshots: Sequence[Snapshot]) -> str:
        return f"{len(snapshots)} snapshots, {size(sum(snapshot.size_bytes or 0 for snapshot in snapshots))}"

    @property
    def selected(self) -> Snapshot | None:
        """The snapshot under the cursor."""
        if (key := self.key) is None:
            return None
        host_key, name = key
        return next((snapshot for snapshot in self.resources(host_key) if snapshot.name == name), None)

    def commands(self) -> list[Choice]:
        lines = []
        if (box := self.console_app.selected) is not None:
            lines.append(("Take", command_line(NAMINGS["snapshot"].make(box, ""))))
        if (snapshot := self.selected) is not None:
            lines.append(("Restore", command_line(RestoreSnapshot(snapshot.backend, snapshot.host, snapshot.name, ""))))
            lines.append(("Remove", command_line(RemoveSnapshot(snapshot.backend, snapshot.host, snapshot.name))))
        lines.append(("List", "sandbox-console snapshot ls"))
        return [Choice(line, label, "", detail=line) for label, line in lines]

    # --- keys

    def action_take(self) -> None:
        """Take a snapshot of the sandbox selected in the list."""
        box = self.console_app.selected
        if box is None:
            self.notify("No sandbox is selected in the list.", severity="warning")
        elif lack := self._reasons.get((box.ref.backend, box.ref.host)):
            self.notify(f"{shown_name(box)}: {lack.plain}", title="snapshot", severity="warning")
        elif reason := unfit(NAMINGS["snapshot"], box, self.console_app.fleet.busy.get(box.ref)):
            self.notify(f"{shown_name(box)}: {reason}.", title="snapshot", severity="warning")
        else:
            self.post_message(VerbInputRequested(NAMINGS["snapshot"], box))

    def action_restore(self) -> None:
        """Create a sandbox from the snapshot under the cursor."""
        if (snapshot := self.selected) is None:
            self.notify("No snapshot is selected.", severity="warning")
        else:
            self.app.run_worker(self._flow.restore(snapshot))

    def action_remove(self) -> None:
        """Remove the snapshot under the cursor."""
        if (snapshot := self.selected) is None:
            self.notify("No snapshot is selected.", severity="warning")
        else:
            self.app.run_worker(self._flow.remove_snapshot(snapshot))

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self.action_restore()
