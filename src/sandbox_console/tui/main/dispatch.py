"""Turns keys on the list into requests to the app, for the marked sandboxes or the selected one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sandbox_console.model.action import Create
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.text import clean
from sandbox_console.tui.actions.availability import choices, verb_key
from sandbox_console.tui.actions.cli_command import bulk_command, command_line
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.keys.keymap import Keymap
from sandbox_console.tui.main.main_base import MainBase
from sandbox_console.tui.state.messages import (
    ActionRequested,
    AttachRequested,
    BulkRequested,
    ChangesRequested,
    EditSeveralRequested,
    FormRequested,
    ForwardRequested,
    VerbInputRequested,
)
from sandbox_console.tui.state.verbs import (
    NAMINGS,
    Naming,
    Verb,
    bulk_pause,
    toggled_pause,
    toggled_quarantine,
    unfit,
    verbs_for,
)
from sandbox_console.tui.text import port_text
from sandbox_console.tui.text.formatting import LOCAL, many, shown_name


def ask(screen: MainBase, verb: Verb) -> None:
    """Request a verb on the marked sandboxes, or on the selected one."""
    if marked := screen.marked:
        screen.post_message(BulkRequested(verb, marked, hidden(screen, marked)))
        return
    sandbox = screen.selected
    if sandbox is None:
        screen.notify("No sandbox is selected.", severity="warning")
    elif reason := unfit(verb, sandbox, screen.state.busy.get(sandbox.ref)):
        screen.notify(f"{shown_name(sandbox)}: {reason}.", title=verb.name, severity="warning")
    else:
        screen.post_message(ActionRequested(verb.make(sandbox), sandbox))


def hidden(screen: MainBase, marked: Iterable[Sandbox]) -> set[SandboxRef]:
    """Return the marked sandboxes that the list does not show now."""
    shown = {row.key for row in screen.table.rows}
    return {one.ref for one in marked if one.ref not in shown}


def ask_name(screen: MainBase, naming: Naming) -> None:
    """Request a verb that takes a word, on the selected sandbox."""
    if (sandbox := _fit(screen, naming)) is not None:
        screen.post_message(VerbInputRequested(naming, sandbox))


def ask_attach(screen: MainBase) -> None:
    """Request to attach to the selected sandbox's main process."""
    if (sandbox := _running(screen, "attach")) is not None:
        screen.post_message(AttachRequested(sandbox))


def ask_forward(screen: MainBase) -> None:
    """Request to forward a port of the selected sandbox, or to end a forward."""
    if (sandbox := _running(screen, "forward")) is not None:
        screen.post_message(ForwardRequested(sandbox))


def _running(screen: MainBase, title: str) -> Sandbox | None:
    """Return the selected sandbox if it is running. Otherwise show why ``title`` is not possible."""
    sandbox = screen.selected
    if sandbox is None:
        screen.notify("No sandbox is selected.", severity="warning")
    elif sandbox.status is not Status.RUNNING:
        screen.notify(f"{shown_name(sandbox)}: it is {sandbox.status}.", title=title, severity="warning")
    else:
        return sandbox
    return None


def ask_changes(screen: MainBase) -> None:
    """Request how the selected sandbox's files differ from its image."""
    if screen.selected is None:
        screen.notify("No sandbox is selected.", severity="warning")
    else:
        screen.post_message(ChangesRequested(screen.selected))


def ask_edit(screen: MainBase) -> None:
    """Request the form of the marked sandboxes, or of the selected one."""
    marked = screen.marked
    if len(marked) > 1:
        screen.post_message(EditSeveralRequested(marked, hidden(screen, marked)))
    elif marked:
        screen.post_message(FormRequested(marked[0]))
    elif screen.selected is None:
        screen.notify("No sandbox is selected.", severity="warning")
    else:
        screen.post_message(FormRequested(screen.selected))


def _fit(screen: MainBase, naming: Naming) -> Sandbox | None:
    sandbox = screen.selected
    if sandbox is None:
        screen.notify("No sandbox is selected.", severity="warning")
    elif reason := unfit(naming, sandbox, screen.state.busy.get(sandbox.ref)):
        screen.notify(f"{shown_name(sandbox)}: {reason}.", title=naming.name, severity="warning")
        return None
    return sandbox


def ask_pause(screen: MainBase) -> None:
    """Request to pause, or to resume if paused."""
    if marked := screen.marked:
        ask(screen, bulk_pause(marked))
    elif screen.selected is not None:
        ask(screen, toggled_pause(screen.selected))
    else:
        screen.notify("No sandbox is selected.", severity="warning")


def ask_quarantine(screen: MainBase) -> None:
    """Request to put into quarantine, or to release from it."""
    several = screen.marked or ([screen.selected] if screen.selected else [])
    ask(screen, toggled_quarantine(several))


async def menu(screen: MainBase) -> None:
    """Show all actions on the marked sandboxes or the selected one, and run the chosen one."""
    sandbox = screen.selected
    if marked := screen.marked:
        title, found = f"{many(len(marked))} marked", bulk_choices(marked, screen.console_app.keymap)
    elif sandbox is not None:
        title = shown_name(sandbox)
        found = await choices(screen.service, sandbox, screen.state.busy.get(sandbox.ref), screen.console_app.keymap)
    else:
        screen.notify("No sandbox is selected.", severity="warning")
        return
    if screen.app.screen is not screen:  # an earlier click has already opened it
        return
    action = await screen.app.push_screen_wait(MenuScreen(title, found))
    if action:
        await screen.run_action(action)


def bulk_choices(marked: Sequence[Sandbox], keys: Keymap) -> list[Choice]:
    """Return each verb with the number of marked sandboxes that it applies to."""
    choices = []
    for verb in verbs_for(marked):
        reasons = Counter(unfit(verb, sandbox) for sandbox in marked)
        fits = reasons.pop("", 0)
        reason = ", ".join(f"{count}: {text}" for text, count in reasons.items())
        label = f"{verb.label} {fits}"
        choices.append(Choice(f"bulk('{verb.name}')", label, verb_key(keys, verb.name), "" if fits else reason))
    return [
        *choices,
        Choice("edit", "Edit", keys.first("edit")),
        Choice("merge", "Merge logs", keys.first("merge-logs")),
        Choice("compare", "Compare", keys.first("compare"), "" if len(marked) == 2 else "it needs two"),
        Choice("unmark", "Unmark", keys.first("unmark")),
    ]


async def copy_address(screen: MainBase) -> None:
    """Copy ``http://ADDRESS:PORT`` of the selected sandbox's first port, or say why there is none."""
    sandbox = screen.selected
    if sandbox is None:
        screen.notify("No sandbox is selected.", severity="warning")
        return
    from sandbox_console.tui.detail.spec_tab import whole

    sandbox = await whole(screen.service, sandbox)
    name, url = shown_name(sandbox), port_text.address(sandbox)
    if not url:
        free = "its address is known once it runs" if port_text.openings(sandbox) else "it publishes no port"
        screen.notify(f"{name}: {free}.", title="address", severity="warning")
        return
    screen.app.copy_to_clipboard(url)
    there = "" if sandbox.ref.host in LOCAL else f" (at {clean(sandbox.ref.host, cap=60)})"
    still = "" if sandbox.status.live else f"; nothing answers there while it is {sandbox.status}"
    screen.notify(f"Copied {url}{there}{still}")


async def copy_command(screen: MainBase) -> None:
    """Show the commands that are equivalent to the keys, and copy the chosen one."""
    marked, sandbox = screen.marked, screen.selected
    several = marked or ([sandbox] if sandbox else [])
    if not several:
        screen.notify("No sandbox is selected.", severity="warning")
        return
    title = many(len(marked)) if marked else shown_name(several[0])
    command = await screen.app.push_screen_wait(MenuScreen(f"Copy a command for {title}", list(commands_of(several))))
    if command:
        screen.app.copy_to_clipboard(command)
        screen.notify(f"Copied: {command}")


def commands_of(sandboxes: Sequence[Sandbox]) -> Iterator[Choice]:
    """Yield each action as a command line."""
    for verb in verbs_for(sandboxes):
        command = bulk_command([verb.make(sandbox) for sandbox in sandboxes])
        yield Choice(command, verb.label, "", detail=command)
    refs = [str(sandbox.ref) for sandbox in sandboxes]
    yield from (_read(label, words, refs) for label, words in (("Logs", ["logs", "-f"]), ("Stats", ["stats"])))
    if len(refs) == 1:
        for label, words in _OF_ONE:
            yield _read(label, words, refs)
        for naming in NAMINGS.values():
            command = command_line(naming.make(sandboxes[0], ""))
            yield Choice(command, naming.label, "", detail=command)
        if (spec := sandboxes[0].spec) is not None:
            command = command_line(Create(spec, sandboxes[0].ref.backend, sandboxes[0].ref.host))
            yield Choice(command, "Create", "", detail=command)


_OF_ONE = (
    ("Show", ["show"]), ("Shell", ["shell"]), ("Attach", ["attach"]), ("Changes", ["diff"]),
    ("Egress", ["egress", "show"]),
)  # fmt: skip


def _read(label: str, words: Sequence[str], refs: Sequence[str]) -> Choice:
    command = shlex.join(["sandbox-console", *words, *refs])
    return Choice(command, label, "", detail=command)
