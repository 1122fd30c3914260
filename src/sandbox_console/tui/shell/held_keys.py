"""Holds the keys that are typed while a shell is being opened, so that none acts elsewhere or is lost."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Static

from sandbox_console.tui.text.formatting import LEAVE_KEY

QUIET_S = 0.7
"""After a shell ends, keys are ignored until none arrives for this long, as keys for it must not act elsewhere."""


class ShellNotice(Static, can_focus=True):
    """Shown where no shell is open. Holds keys that are typed while one is being opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "screen.shell", "Open a shell")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.holding = False
        self.typed_at = 0.0
        self._held: list[events.Key | events.Paste] = []

    def hold(self) -> None:
        """Hold every key from now on."""
        self.holding = True
        self._held.clear()

    def release(self) -> list[events.Key | events.Paste]:
        """Stop holding keys. Returns what was typed and pasted in the meantime."""
        self.holding = False
        keys, self._held = self._held, []
        return keys

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002 - Textual's signature
        """Return whether a key is held rather than looked up in the bindings."""
        return key != LEAVE_KEY and (self.holding or monotonic() - self.typed_at < QUIET_S)

    def on_key(self, event: events.Key) -> None:
        if self.check_consume_key(event.key, event.character):
            event.stop()
            event.prevent_default()
            self.typed_at = monotonic()
            if self.holding:
                self._held.append(event)

    def on_paste(self, event: events.Paste) -> None:
        if self.holding:
            event.stop()
            self._held.append(event)
