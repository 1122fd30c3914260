"""What a pane is told to show."""

from __future__ import annotations

from typing import NamedTuple

from sandbox_console.model.sandbox import Sandbox


class Look(NamedTuple):
    """A sandbox, whether the pane is in view, and what differs from before when there were actions since."""

    sandbox: Sandbox | None
    active: bool
    version: object = None
