"""Messages to the app: requests from widgets, and news from the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from textual.message import Message

from sandbox_console.model.action import Action
from sandbox_console.model.event import Event
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Subscription
from sandbox_console.tui.state.fleet_state import News
from sandbox_console.tui.state.verbs import Naming, Verb

BATCH_S = 0.05
"""Textual's message queue has no bound: a flood is gathered here, where the hub coalesces it."""


class Arrived(Message):
    """News of the fleet, gathered over at most 50 ms."""

    def __init__(self, events: Sequence[News]) -> None:
        super().__init__()
        self.events = events


class Asked(Message):
    """A person wants something done to a sandbox."""

    def __init__(self, action: Action, sandbox: Sandbox) -> None:
        super().__init__()
        self.action = action
        self.sandbox = sandbox


class BulkAsked(Message):
    """A person wants the same done to several sandboxes; ``hidden`` are those that a filter hides."""

    def __init__(self, verb: Verb, sandboxes: Sequence[Sandbox], hidden: Collection[SandboxRef] = ()) -> None:
        super().__init__()
        self.verb = verb
        self.sandboxes = sandboxes
        self.hidden = hidden


class ShellAsked(Message):
    """A person wants a shell, of this size, in a sandbox."""

    def __init__(self, sandbox: Sandbox, cols: int, rows: int) -> None:
        super().__init__()
        self.sandbox = sandbox
        self.cols = cols
        self.rows = rows


class EgressAsked(Message):
    """A person wants a host allowed or denied to sandboxes."""

    def __init__(self, host: str, port: int, sandboxes: Sequence[Sandbox], *, allow: bool) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.sandboxes = sandboxes
        self.allow = allow


class DraftAsked(Message):
    """A person wants to try rules of egress for one of these sandboxes on what it asked for."""

    def __init__(self, sandboxes: Sequence[Sandbox]) -> None:
        super().__init__()
        self.sandboxes = sandboxes


class FormAsked(Message):
    """A person wants to create a sandbox, or to edit this one."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        super().__init__()
        self.sandbox = sandbox


class NameAsked(Message):
    """A person wants a verb that takes a word done to a sandbox: the word is not asked for yet."""

    def __init__(self, naming: Naming, sandbox: Sandbox) -> None:
        super().__init__()
        self.naming = naming
        self.sandbox = sandbox


class AttachAsked(Message):
    """A person wants to watch and feed a sandbox's main process."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


class ForwardAsked(Message):
    """A person wants a port of a sandbox forwarded to this machine, or a forward ended."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


class ChangesAsked(Message):
    """A person wants to see how a sandbox's files differ from its image."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


async def bridge(subscription: Subscription, deliver: Callable[[Sequence[Event]], object]) -> None:
    """Deliver what changes until cancelled; the first batch at once."""
    try:
        while True:
            deliver(await subscription.batch())
            await asyncio.sleep(BATCH_S)
    finally:
        subscription.close()
