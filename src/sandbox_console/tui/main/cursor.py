"""Moves the list's cursor automatically: to the top at the start, to a new sandbox, or to one that a page names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.tui.main.main_base import MainBase
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import shown_name

OPENING_TICKS = 2


class CursorPlaces(MainBase):
    """Holds the sandbox that the cursor waits for, and the row it stays on while the backends answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._awaited: SandboxRef | None = None
        self._opening = True
        self._top: Hashable | None = None
        self._on_top_until = OPENING_TICKS

    def select(self, ref: SandboxRef) -> None:
        """Move the cursor to a sandbox, now or when it appears."""
        self._awaited = ref
        self.draw()

    def go_to(self, ref: SandboxRef) -> None:
        """Move the cursor to a sandbox that a page names, or say that it no longer exists."""
        if ref in self.state.sandboxes:
            self.select(ref)
        else:
            self.notify(f"{ref} no longer exists.", severity="warning")

    def select_new(self, ref: SandboxRef, *, in_place: bool) -> None:
        """Go to a sandbox that an action made, but not if the user works in the detail, unless it is ``in_place``."""
        working = self.is_current and self.detail.has_focus_within
        if in_place or not working:
            self.select(ref)

    def place_cursor(self, state: FleetState) -> None:
        """Move the cursor to its place after the rows have been set."""
        if self._opening:
            self._stay_on_top(state)
        self._go_to_awaited(state)

    def _stay_on_top(self, state: FleetState) -> None:
        """Keep the cursor at the top while the backends answer one by one, until the user moves it."""
        table, ticks = self.table, self.ticks
        if state.connecting:
            self._on_top_until = ticks + OPENING_TICKS  # a backend's sandboxes arrive after its answer
        moved = self._top is not None and table.cursor_key != self._top
        self._opening = not moved and ticks < self._on_top_until
        if self._opening:
            table.action_go(0)
            self._top = table.cursor_key

    def _go_to_awaited(self, state: FleetState) -> None:
        ref = self._awaited
        if ref is None or not (self.table.move_to(ref) or ref in state.sandboxes):
            return
        self._awaited = None  # do not wait for a hidden one, or the cursor would jump when it is shown
        if self.table.cursor_key != ref:
            self.notify(f"{shown_name(state.sandboxes[ref])} is hidden in the list.", severity="warning")
