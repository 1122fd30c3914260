"""Where the list's cursor moves by itself: to the top at the start, to a new sandbox, to one that a page names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.tui.main.main_base import MainBase
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import shown_name

OPENING_TICKS = 2


class CursorPlaces(MainBase):
    """A sandbox that the cursor waits for, and the row it stays on while the backends answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._awaited: SandboxRef | None = None
        self._opening = True
        self._top: Hashable | None = None
        self._on_top_until = OPENING_TICKS

    def select(self, ref: SandboxRef) -> None:
        """Put the cursor on a sandbox, at once or when it comes."""
        self._awaited = ref
        self.draw()

    def go_to(self, ref: SandboxRef) -> None:
        """Put the cursor on a sandbox that a page names, or say that it is not there."""
        if ref in self.state.sandboxes:
            self.select(ref)
        else:
            self.notify(f"{ref} is not there any more.", severity="warning")

    def select_new(self, ref: SandboxRef, *, in_place: bool) -> None:
        """Go to a sandbox that an action made, ``in_place`` of another; not while a person works in the detail."""
        working = self.is_current and self.detail.has_focus_within
        if in_place or not working:
            self.select(ref)

    def place_cursor(self, state: FleetState) -> None:
        """Bring it where it is to be, now that the rows are set."""
        if self._opening:
            self._stay_on_top(state)
        self._go_to_awaited(state)

    def _stay_on_top(self, state: FleetState) -> None:
        """While the backends answer one after the other, until a person moves the cursor."""
        table, ticks = self.table, self.ticks
        if state.connecting:
            self._on_top_until = ticks + OPENING_TICKS  # what one that answered holds comes after its answer
        moved = self._top is not None and table.cursor_key != self._top
        self._opening = not moved and ticks < self._on_top_until
        if self._opening:
            table.action_go(0)
            self._top = table.cursor_key

    def _go_to_awaited(self, state: FleetState) -> None:
        ref = self._awaited
        if ref is None or not (self.table.move_to(ref) or ref in state.sandboxes):
            return
        self._awaited = None  # a hidden one is not waited for: the cursor would jump when it is shown
        if self.table.cursor_key != ref:
            self.notify(f"{shown_name(state.sandboxes[ref])} is hidden in the list.", severity="warning")
