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
"""Seconds to gather events. Textual's message queue is unbounded; here, the hub coalesces a flood."""


class Arrived(Message):
    """News about the fleet, gathered over at most 50 ms."""

    def __init__(self, events: Sequence[News]) -> None:
        super().__init__()
        self.events = events


class ActionRequested(Message):
    """The user requests an action on a sandbox."""

    def __init__(self, action: Action, sandbox: Sandbox) -> None:
        super().__init__()
        self.action = action
        self.sandbox = sandbox


class BulkRequested(Message):
    """The user requests one action on several sandboxes. ``hidden`` are those that a filter hides.

    ``agreed`` is called when they have confirmed it.
    """

    def __init__(
        self, verb: Verb, sandboxes: Sequence[Sandbox], hidden: Collection[SandboxRef] = (),
        agreed: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.verb = verb
        self.sandboxes = sandboxes
        self.hidden = hidden
        self.agreed = agreed


class ShellsRequested(Message):
    """The user requests the page of all shells, with a new shell in each of these sandboxes.

    ``choose`` asks first how it is opened.
    """

    def __init__(self, sandboxes: Sequence[Sandbox] = (), *, choose: bool = False) -> None:
        super().__init__()
        self.sandboxes = sandboxes
        self.choose = choose


class EgressRequested(Message):
    """The user requests to allow or deny a host for sandboxes."""

    def __init__(self, host: str, port: int, sandboxes: Sequence[Sandbox], *, allow: bool) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.sandboxes = sandboxes
        self.allow = allow


class DraftRequested(Message):
    """The user requests to test egress rules for one of these sandboxes on its traffic."""

    def __init__(self, sandboxes: Sequence[Sandbox]) -> None:
        super().__init__()
        self.sandboxes = sandboxes


class CauseRequested(Message):
    """The user requests to see why a sandbox is in its state."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


class TimelineRequested(Message):
    """The user requests to see what happened to sandboxes."""

    def __init__(self, sandboxes: Sequence[Sandbox]) -> None:
        super().__init__()
        self.sandboxes = sandboxes


class RecordingsRequested(Message):
    """The user requests the recordings of a sandbox, or of all."""

    def __init__(self, sandbox: Sandbox | None) -> None:
        super().__init__()
        self.sandbox = sandbox


class FormRequested(Message):
    """The user requests to create a sandbox, or to edit this one."""

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        super().__init__()
        self.sandbox = sandbox


class EditSeveralRequested(Message):
    """The user requests to edit several sandboxes together. ``hidden`` are those that a filter hides."""

    def __init__(self, sandboxes: Sequence[Sandbox], hidden: Collection[SandboxRef] = ()) -> None:
        super().__init__()
        self.sandboxes = sandboxes
        self.hidden = hidden


class FormSourceRequested(Message):
    """The user requests to create a sandbox from a template, a docker run line or a file."""


class TemplateRequested(Message):
    """The user requests to store this sandbox's spec as a template."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


class VerbInputRequested(Message):
    """The user requests a verb that takes a word, on a sandbox. The word has not been typed yet."""

    def __init__(self, naming: Naming, sandbox: Sandbox) -> None:
        super().__init__()
        self.naming = naming
        self.sandbox = sandbox


class AttachRequested(Message):
    """The user requests to attach to a sandbox's main process."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


class ForwardRequested(Message):
    """The user requests to forward a port of a sandbox to this machine, or to end a forward."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


class ChangesRequested(Message):
    """The user requests to see how a sandbox's files differ from its image."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__()
        self.sandbox = sandbox


async def bridge(subscription: Subscription, deliver: Callable[[Sequence[Event]], object]) -> None:
    """Deliver changes until cancelled. The first batch is delivered immediately."""
    try:
        while True:
            deliver(await subscription.batch())
            await asyncio.sleep(BATCH_S)
    finally:
        subscription.close()
