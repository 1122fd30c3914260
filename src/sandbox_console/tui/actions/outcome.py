"""The messages shown after an action has ended, and the changes that ``diff`` found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import convert
from textual.content import Content

from sandbox_console.model.action import (
    Action,
    Commit,
    Fork,
    Quarantine,
    Rename,
    TakeSnapshot,
)
from sandbox_console.model.guest import PathChange
from sandbox_console.model.host_action import PruneImages
from sandbox_console.model.quarantine import Step
from sandbox_console.model.text import clean
from sandbox_console.service import ActionResult
from sandbox_console.tui.text.formatting import size

_DONE = {"start": "started", "stop": "stopped", "kill": "killed", "restart": "restarted", "pause": "paused",
         "resume": "resumed", "remove": "removed", "update": "updated", "create": "created", "pull": "pulled",
         "remove-image": "removed", "restore": "made from its snapshot", "remove-snapshot": "removed",
         "release": "is out of quarantine"}  # fmt: skip


def ended_words(action: Action, name: str, result: ActionResult) -> str:
    """Return a sentence for an action that succeeded."""
    match action:
        case Rename(name=new):
            return f"{name} is called {clean(new, cap=60)} now"
        case Commit(image=image):
            return f"{name} was committed to {clean(image, cap=80)}"
        case TakeSnapshot(name=snapshot):
            return f"{name} was saved as {clean(snapshot, cap=60)}"
        case Fork(name=copy):
            return f"{name} was copied to {clean(copy, cap=60)}"
        case Quarantine():
            steps = convert(result.details.get("steps", []), list[Step])
            gone = "; ".join(f"{step.what}: {step.note}" for step in steps if not step.done)
            kept = "".join(
                f" The evidence is in {step.note}." for step in steps if step.what == "evidence" and step.done
            )
            return clean(f"{name} is in quarantine.{f' Not done: {gone}.' if gone else ''}{kept}", cap=600)
        case PruneImages():
            removed, freed = result.details.get("removed"), result.details.get("freed_bytes")
            count = len(removed) if isinstance(removed, list) else 0
            return f"{count} images removed" + (f", {size(freed)} freed" if isinstance(freed, int) else "")
        case _:
            return f"{name} {_DONE.get(action.verb, action.verb)}"


SHOWN = 2000
"""How many lines are drawn: wrapping these takes 0.1 s, and `sandbox-console diff` prints all of them."""
_HOW = {"added": ("A", "$text-success"), "changed": ("C", "$text-warning"), "deleted": ("D", "$text-error")}


def change_words(changes: Sequence[PathChange], command: str) -> Content:
    """Return a line for each path, as in docker diff, below the number of each kind."""
    if not changes:
        return Content("Nothing differs from its image.")
    count = Counter(change.how for change in changes)
    parts: list[tuple[str, str]] = [(", ".join(f"{number} {how}" for how, number in count.items()), "bold")]
    parts.append((f"   $ {command}\n", "$dim"))
    for change in changes[:SHOWN]:
        sign, style = _HOW.get(change.how, ("?", ""))
        parts += [(f"\n{sign} ", style), (clean(change.path, cap=400), "")]
    if len(changes) > SHOWN:
        parts.append((f"\n\n{len(changes) - SHOWN} more: {command} prints all", "$text-warning"))
    return Content.assemble(*parts)
