"""Which actions a sandbox allows now, and why not: because of its state, the policy, or the backend."""

from __future__ import annotations

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, Attach, Forward, OpenShell, Update
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.service import Console, Deny, fixed_fields, spec_of
from sandbox_console.tui.dialogs.action_menu import Choice
from sandbox_console.tui.keys.keymap import Keymap
from sandbox_console.tui.state.verbs import NAMINGS, unfit, verbs_for

LIVE = ("cpus", "memory_mib", "pids", "name")
"""The fields that can be changed in a sandbox that another tool made."""

_OTHER_KEY = {"resume": "pause", "fork": "", "release": "quarantine"}
"""Verbs that share another action's key, or have none."""


def verb_key(keys: Keymap, verb: str) -> str:
    """Return the key that menus show for a verb, or an empty string if it has none."""
    action = _OTHER_KEY.get(verb, verb)
    return keys.first(action) if action else ""


async def choices(console: Console, sandbox: Sandbox, busy: str | None, keys: Keymap) -> list[Choice]:
    """Return every verb, in menu order."""
    found = []
    for verb in verbs_for([sandbox]):
        reason = unfit(verb, sandbox, busy) or await _denied(console, verb.make(sandbox), sandbox)
        found.append(Choice(f"verb('{verb.name}')", verb.label, verb_key(keys, verb.name), reason))
    for naming in NAMINGS.values():
        reason = unfit(naming, sandbox, busy) or await _denied(console, naming.make(sandbox, sandbox.name), sandbox)
        found.append(Choice(f"name('{naming.name}')", naming.label, verb_key(keys, naming.name), reason))
    return [*await _entering(console, sandbox, keys), *found]


async def _entering(console: Console, sandbox: Sandbox, keys: Keymap) -> list[Choice]:
    stopped = "" if sandbox.status is Status.RUNNING else f"it is {sandbox.status}"
    shell = stopped or await _denied(console, OpenShell(sandbox.ref), sandbox)
    attach = stopped or await _denied(console, Attach(sandbox.ref), sandbox)
    forward = stopped or await _denied(console, Forward(sandbox.ref, 80), sandbox)
    return [
        Choice("shell", "Shell", keys.first("shell"), shell),
        Choice("attach", "Attach", keys.first("attach"), attach),
        Choice("forward", "Forward port", "", forward),
        Choice("edit", "Edit", keys.first("edit"), await not_editable(console, sandbox)),
        Choice("save_template", "As template", "", _unknown_spec(console, sandbox)),
        Choice("changes", "Changes", keys.first("changes"), await _lacks(console, sandbox, Capability.DIFF)),
    ]


async def not_editable(console: Console, sandbox: Sandbox) -> str:
    """Return why nothing in a sandbox can be changed. If another tool made it, its backend's live edits still work."""
    if sandbox.spec is not None:
        return await _denied(console, Update(sandbox.ref, sandbox.spec), sandbox)
    try:
        fixed = fixed_fields(sandbox, await console.capabilities(sandbox.ref.backend, sandbox.ref.host))
    except ConsoleError as error:
        return error.message
    if all(field in fixed for field in LIVE):
        return f"another tool made it, and here nothing of it changes live: {fixed[LIVE[0]]}"
    return await _denied(console, Update(sandbox.ref, spec_of(sandbox)), sandbox)


def _unknown_spec(console: Console, sandbox: Sandbox) -> str:
    if console.read_only:
        return "this console is read-only"
    return "" if sandbox.spec is not None else "another tool made it: sandbox-console import sandbox reads it"


async def _lacks(console: Console, sandbox: Sandbox, capability: Capability) -> str:
    try:
        can = await console.capabilities(sandbox.ref.backend, sandbox.ref.host)
    except ConsoleError as error:
        return error.message
    return "" if can.has(capability) else f"{capability} is unsupported here: {can.reason(capability)}"


async def _denied(console: Console, action: Action, sandbox: Sandbox) -> str:
    try:
        decision = await console.decide(action, sandbox)
    except ConsoleError as error:
        return error.message
    return decision.reason if isinstance(decision, Deny) else ""
