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
    """Why and by whom a sandbox is held, and what its release needs: whether it was frozen, and the rules it had.

    ``at`` is seconds since the epoch; ``rules`` is None if egress was not cut.
    """

    ref: str
    name: str
    by: str
    reason: str = ""
    at: float = 0.0
    frozen: bool = False
    rules: tuple[EgressRule, ...] | None = None

    @property
    def told(self) -> str:
        """The mark shown in lists: why it is held, and by whom."""
        return f"in quarantine: {self.reason} ({self.by})" if self.reason else f"in quarantine by {self.by}"
