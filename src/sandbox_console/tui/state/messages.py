"""What widgets ask of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from textual.message import Message

from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Consent
from sandbox_console.tui.state.fleet_state import News
from sandbox_console.tui.state.verbs import Verb


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


class ConsentAsked(Message):
    """Something that a person asked for may need more than that: ``answer`` is their consent, or None."""

    def __init__(self, action: Action, sandbox: Sandbox) -> None:
        super().__init__()
        self.action = action
        self.sandbox = sandbox
        self.answer: asyncio.Future[Consent | None] = asyncio.get_running_loop().create_future()
