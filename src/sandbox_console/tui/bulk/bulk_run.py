"""One verb on several sandboxes. Each action runs separately, with its own outcome and audit row."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from sandbox_console.errors import (
    AuditUnavailable,
    BackendUnreachable,
    ConsoleError,
    Denied,
    TimedOut,
    Unsupported,
)
from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Ask, Console, Deny
from sandbox_console.tui.actions.consent import agreed
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.state.verbs import Verb, unfit

AT_ONCE = 8
"""Actions in flight at one time. An engine is no faster with more, and with this many the list stays usable."""


REFUSED = "refused: "
"""The note of an action that the policy denies begins with it."""


class ItemOutcome(StrEnum):
    """The outcome for one sandbox."""

    WAITING = "waiting"
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    DENIED = "denied"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"  # it was tried, but the result is not known
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # it was not tried, so it has no row


class Item(Struct):
    """One sandbox of a bulk action. ``note`` is what the user should know first, ``cause`` the reason for its fate.

    ``keep`` would keep what the action loses; as ``first`` it is done before it.
    """

    sandbox: Sandbox
    action: Action
    fate: ItemOutcome = ItemOutcome.WAITING
    cause: str = ""
    note: str = ""
    keep: Action | None = None
    first: Action | None = None
    audit_id: int | None = None
    took_s: float | None = None

    @property
    def to_do(self) -> bool:
        """Whether the action will be tried."""
        return self.fate is not ItemOutcome.SKIPPED


async def plan(
    console: Console,
    verb: Verb,
    sandboxes: Sequence[Sandbox],
    busy: Mapping[SandboxRef, str],
    hidden: Collection[SandboxRef] = (),
) -> list[Item]:
    """Return what a verb would do to each. Those that it does not apply to are skipped, with the reason, and come last.

    Actions that the policy denies are still tried, as with one sandbox: the gate refuses and records them.
    """
    items = await asyncio.gather(*(_item(console, verb, sandbox, busy.get(sandbox.ref)) for sandbox in sandboxes))
    for item in items:
        if item.sandbox.ref in hidden and not item.cause:
            item.note = ", ".join(filter(None, [item.note, "hidden in the list"]))
    return sorted(items, key=lambda item: item.fate is ItemOutcome.SKIPPED)


async def _item(console: Console, verb: Verb, sandbox: Sandbox, busy: str | None) -> Item:
    item = Item(sandbox, verb.make(sandbox))
    if reason := unfit(verb, sandbox, busy):
        item.fate, item.cause = ItemOutcome.SKIPPED, reason
        return item
    try:
        if verb.look is not None:
            look = await verb.look(sandbox)
            item.note, item.keep = look.note, look.keep
            if look.refusal:
                item.fate, item.cause = ItemOutcome.SKIPPED, look.refusal
                return item
        decision = await console.decide(item.action, sandbox)
    except ConsoleError as error:
        item.note = error.message
        return item
    if isinstance(decision, Deny):
        item.note = f"{REFUSED}{decision.reason}"
    elif isinstance(decision, Ask) and decision.token:
        item.fate, item.cause = ItemOutcome.SKIPPED, f"its id must be typed, do it alone: {decision.reason}"
    elif isinstance(decision, Ask):
        item.note = "; ".join(filter(None, (decision.reason, item.note)))
    return item


class BulkRun:
    """A running verb on several sandboxes. ``version`` counts the changes to ``items``."""

    def __init__(self, verb: Verb, items: Sequence[Item], console: Console, work: Work) -> None:
        self.verb = verb
        self.items = list(items)
        self.version = 0
        self._console = console
        self._work = work
        self._limit = asyncio.Semaphore(AT_ONCE)

    @property
    def done(self) -> bool:
        """Whether nothing is waiting or running."""
        return not any(item.fate in (ItemOutcome.WAITING, ItemOutcome.RUNNING) for item in self.items)

    @property
    def counts(self) -> Counter[ItemOutcome]:
        """The number of items with each fate."""
        fates = [item.fate for item in self.items]
        counted = {fate: fates.count(fate) for fate in ItemOutcome}  # hashing 10,000 takes 5 ms
        return Counter({fate: count for fate, count in counted.items() if count})

    def with_fate(self, *fates: ItemOutcome) -> list[Item]:
        """Return the items with one of these fates."""
        return [item for item in self.items if item.fate in fates]

    def stop(self) -> None:
        """Start nothing more. What is in flight runs to its end."""
        for item in self.with_fate(ItemOutcome.WAITING):
            item.fate, item.cause = ItemOutcome.CANCELLED, "it was not started"
        self.version += 1

    async def run(self) -> None:
        """Run all of them, `AT_ONCE` at a time."""
        async with asyncio.TaskGroup() as group:
            for item in self.with_fate(ItemOutcome.WAITING):
                group.create_task(self._one(item))

    async def _one(self, item: Item) -> None:
        async with self._limit:
            if item.fate is not ItemOutcome.WAITING:
                return
            item.fate = ItemOutcome.RUNNING
            self.version += 1
            began = time.monotonic()
            try:
                if item.first is not None:
                    await self._work.carry(item.first, agreed())
                result = await self._work.carry(item.action, agreed())
                item.fate, item.audit_id = ItemOutcome.OK, result.audit_id
            except ConsoleError as error:
                item.cause, item.audit_id = error.message, error.audit_id
                item.fate = fate_of(error, tried=await self._tried(error))
            except asyncio.CancelledError:
                item.fate, item.cause = ItemOutcome.CANCELLED, "the console was closed"
                raise
            finally:
                item.took_s = time.monotonic() - began
                self.version += 1

    async def _tried(self, error: ConsoleError) -> bool:
        """Return whether the backend was called at all, according to the audit log."""
        if error.audit_id is None:
            return False
        try:
            entry = await self._console.audit_entry(error.audit_id)
        except ConsoleError:
            return True
        return dict(entry.attempt.body.get("policy", {})).get("rule") != "request"


def fate_of(error: ConsoleError, *, tried: bool) -> ItemOutcome:
    """Return the fate that an error means. A backend that was called and stopped answering may have done it, or not."""
    match error:
        case Denied():
            return ItemOutcome.DENIED
        case Unsupported():
            return ItemOutcome.UNSUPPORTED
        case BackendUnreachable() | TimedOut() | AuditUnavailable() if tried:
            return ItemOutcome.UNKNOWN
        case _:
            return ItemOutcome.FAILED


_ORDER = (
    ItemOutcome.RUNNING, ItemOutcome.WAITING, ItemOutcome.OK, ItemOutcome.FAILED, ItemOutcome.UNKNOWN,
    ItemOutcome.DENIED, ItemOutcome.UNSUPPORTED, ItemOutcome.CANCELLED, ItemOutcome.SKIPPED,
)  # fmt: skip


def summary(run: BulkRun) -> str:
    """Return a summary such as ``9 ok, 1 failed, 2 skipped``."""
    counts = run.counts
    return ", ".join(f"{counts[fate]} {fate}" for fate in _ORDER if counts[fate])
