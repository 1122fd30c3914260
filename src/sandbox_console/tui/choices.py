"""The actions on a sandbox with the reason where one cannot be done: its state, the policy, or the backend."""

from __future__ import annotations

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, OpenShell, Update
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.service import Console, Deny
from sandbox_console.tui.keymap import Keymap
from sandbox_console.tui.offers import VERBS, unfit
from sandbox_console.tui.screens.menu import Choice

KEY_OF = {"resume": "pause"}
"""Verbs that have another action's key."""


async def choices(console: Console, sandbox: Sandbox, busy: str | None, keys: Keymap) -> list[Choice]:
    """Every verb, in the order of the menu."""
    found = []
    for verb in VERBS.values():
        reason = unfit(verb, sandbox, busy) or await _denied(console, verb.make(sandbox), sandbox)
        found.append(Choice(f"verb('{verb.name}')", verb.label, keys.first(KEY_OF.get(verb.name, verb.name)), reason))
    return [*await _entering(console, sandbox, keys), *found]


async def _entering(console: Console, sandbox: Sandbox, keys: Keymap) -> list[Choice]:
    stopped = "" if sandbox.status is Status.RUNNING else f"it is {sandbox.status}"
    shell = stopped or await _denied(console, OpenShell(sandbox.ref), sandbox)
    if not sandbox.managed or sandbox.spec is None:
        edit = "it was not made by this console"
    else:
        edit = await _denied(console, Update(sandbox.ref, sandbox.spec), sandbox)
    return [Choice("shell", "Shell", keys.first("shell"), shell), Choice("edit", "Edit", keys.first("edit"), edit)]


async def _denied(console: Console, action: Action, sandbox: Sandbox) -> str:
    try:
        decision = await console.decide(action, sandbox)
    except ConsoleError as error:
        return error.message
    return decision.reason if isinstance(decision, Deny) else ""
