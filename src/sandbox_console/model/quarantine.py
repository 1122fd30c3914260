"""A sandbox in quarantine, as data."""

from __future__ import annotations

from msgspec import Struct

from sandbox_console.model.egress import EgressRule


class Step(Struct, frozen=True):
    """One step of a quarantine or of its release. ``note`` says what was done, or why it could not be done."""

    what: str
    done: bool
    note: str = ""


class Hold(Struct, frozen=True):
    """Why and by whom a sandbox is held, and what its release needs.

    ``at`` is seconds since the epoch. ``frozen`` and ``closed`` are whether it was frozen, and its ports closed;
    ``rules`` are those of its egress, or None if that was not cut. ``damaged`` is whether its record cannot be read.
    """

    ref: str
    name: str
    by: str
    reason: str = ""
    at: float = 0.0
    frozen: bool = False
    rules: tuple[EgressRule, ...] | None = None
    closed: bool = False
    damaged: bool = False

    @property
    def label(self) -> str:
        """The mark shown in lists: why it is held, and by whom."""
        return f"in quarantine: {self.reason} ({self.by})" if self.reason else f"in quarantine by {self.by}"
