"""What is told when an action has ended, and who else has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from sandbox_console.model.action import Action, Commit, Fork, PruneImages, Rename, TakeSnapshot
from sandbox_console.model.text import clean
from sandbox_console.service import ActionResult
from sandbox_console.tui.text.formatting import size

if TYPE_CHECKING:
    from sandbox_console.tui.images.resource_screen import HoldingsScreen

_DONE = {"start": "started", "stop": "stopped", "kill": "killed", "restart": "restarted", "pause": "paused",
         "resume": "resumed", "remove": "removed", "update": "updated", "create": "created", "pull": "pulled",
         "remove-image": "removed", "restore": "made from its snapshot", "remove-snapshot": "removed"}  # fmt: skip


def ended_words(action: Action, name: str, result: ActionResult) -> str:
    """A sentence for an action that was done."""
    match action:
        case Rename(name=new):
            return f"{name} is called {clean(new, cap=60)} now"
        case Commit(image=image):
            return f"{name} was committed to {clean(image, cap=80)}"
        case TakeSnapshot(name=snapshot):
            return f"{name} was saved as {clean(snapshot, cap=60)}"
        case Fork(name=copy):
            return f"{name} was copied to {clean(copy, cap=60)}"
        case PruneImages():
            removed, freed = result.details.get("removed"), result.details.get("freed_bytes")
            count = len(removed) if isinstance(removed, list) else 0
            return f"{count} images removed" + (f", {size(freed)} freed" if isinstance(freed, int) else "")
        case _:
            return f"{name} {_DONE.get(action.verb, action.verb)}"


def refresh_holdings(app: App[None]) -> None:
    """Have the open screens that list images or snapshots ask again."""
    for screen in app.screen_stack:
        if getattr(screen, "holdings", False):
            shown: HoldingsScreen[object] = screen  # type: ignore[assignment]
            shown.reload()
