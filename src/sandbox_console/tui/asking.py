"""From a key on the list to what is asked of the app: of the marked sandboxes where there are some, else of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.choices import choices
from sandbox_console.tui.messages import Asked, BulkAsked
from sandbox_console.tui.offers import VERBS, Verb, bulk_pause, toggled_pause, unfit
from sandbox_console.tui.screens.bulk import many
from sandbox_console.tui.screens.menu import Choice, MenuScreen
from sandbox_console.tui.words import shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.screens.main import MainScreen


def ask(screen: MainScreen, verb: Verb) -> None:
    """Ask for a verb on the marked sandboxes, or on the selected one."""
    if marked := screen.marked:
        shown = {row.key for row in screen.table.rows}
        screen.post_message(BulkAsked(verb, marked, {one.ref for one in marked if one.ref not in shown}))
        return
    sandbox = screen.selected
    if sandbox is None:
        screen.notify("No sandbox is selected.", severity="warning")
    elif reason := unfit(verb, sandbox, screen.state.busy.get(sandbox.ref)):
        screen.notify(f"{shown_name(sandbox)}: {reason}.", title=verb.name, severity="warning")
    else:
        screen.post_message(Asked(verb.make(sandbox), sandbox))


def ask_pause(screen: MainScreen) -> None:
    """Ask to pause, or to resume what is paused."""
    if marked := screen.marked:
        ask(screen, bulk_pause(marked))
    elif screen.selected is not None:
        ask(screen, toggled_pause(screen.selected))


async def menu(screen: MainScreen) -> None:
    """Show all that can be done to the marked sandboxes or the selected one, and do what is chosen."""
    sandbox = screen.selected
    if marked := screen.marked:
        title, found = f"{many(len(marked))} marked", bulk_choices(marked)
    elif sandbox is not None:
        title = shown_name(sandbox)
        found = await choices(screen.service, sandbox, screen.state.busy.get(sandbox.ref))
    else:
        screen.notify("No sandbox is selected.", severity="warning")
        return
    action = await screen.app.push_screen_wait(MenuScreen(title, found))
    if action:
        await screen.run_action(action)


def bulk_choices(marked: Sequence[Sandbox]) -> list[Choice]:
    """Each verb with how many of the marked it fits."""
    found = []
    for verb in VERBS.values():
        reasons = Counter(unfit(verb, one) for one in marked)
        fits = reasons.pop("", 0)
        why = ", ".join(f"{count}: {text}" for text, count in reasons.items())
        label = f"{verb.label} {fits}"
        found.append(Choice(f"bulk('{verb.name}')", label, verb.key, "" if fits else why))
    return [
        *found,
        Choice("merge", "Merge logs", "L"),
        Choice("compare", "Compare", "=", "" if len(marked) == 2 else "it takes two"),
        Choice("unmark", "Unmark", "Esc"),
    ]
