"""The output of several sandboxes in one view, by time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from sandbox_console.logs.merge import HOLD_S, Merger
from sandbox_console.model.log import LogItem
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console
from sandbox_console.tui.keymap import hint
from sandbox_console.tui.panes.log_feed import FOLLOWED, Feed, Stand
from sandbox_console.tui.widgets.log_view import LogView
from sandbox_console.tui.words import shown_name

MOST = 200
"""Streams that are open at a time."""
TAIL_ALL = 20_000
"""Lines that are asked for at first, of all sandboxes together."""
FIRST_HOLD_S = 1.5
"""What was written before comes sandbox by sandbox: it is held until it can be put in order."""
BEAT_S = 0.1


class Merged:
    """Feeds of several sandboxes into a view. ``what`` says which they are."""

    def __init__(
        self, console: Console, sandboxes: Sequence[Sandbox], view: LogView, note: Callable[[str], None], what: str
    ) -> None:
        self.sandboxes = list(sandboxes)[:MOST]
        self.names = [shown_name(sandbox) for sandbox in self.sandboxes]
        self._left_out = len(sandboxes) - len(self.sandboxes)
        self._what = what
        self._view = view
        self._note = note
        self._merger = Merger(FIRST_HOLD_S)
        self._problems: dict[int, str] = {}
        self._feeds = [self._feed(console, at, sandbox) for at, sandbox in enumerate(self.sandboxes)]

    def _feed(self, console: Console, at: int, sandbox: Sandbox) -> Feed:
        def sink(items: Sequence[LogItem]) -> None:
            self._merger.put(at, items, monotonic())

        def note(text: str) -> None:
            self._problems[at] = text
            self._tell()

        def forget() -> int | None:
            self._show(all=True)  # a part of a line may be waiting there
            return self._view.store.take_partials(at)

        return Feed(console, sandbox, sink, note, forget)

    def renew(self, now: Callable[[SandboxRef], Sandbox | None]) -> None:
        """Take the sandboxes as they are now."""
        for feed in self._feeds:
            sandbox = now(feed.sandbox.ref)
            if sandbox is not None and sandbox is not feed.sandbox:
                feed.renew(sandbox)

    @property
    def stand(self) -> Stand:
        """How many of the streams more may come of."""
        still = sum(feed.stand.open for feed in self._feeds)
        if still == len(self._feeds):
            return FOLLOWED
        return Stand(f"FOLLOWING {still} of {len(self._feeds)}" if still else "ENDED: none is followed", bool(still))

    async def follow(self) -> None:
        """Follow all until cancelled."""
        self._tell()
        tail = max(50, TAIL_ALL // max(len(self._feeds), 1))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._give_out())
            for feed in self._feeds:
                group.create_task(feed.follow(tail))

    async def _give_out(self) -> None:
        began = monotonic()
        self._merger.hold_s = FIRST_HOLD_S
        while True:
            await asyncio.sleep(BEAT_S)
            if monotonic() - began > FIRST_HOLD_S:
                self._merger.hold_s = HOLD_S
            self._show()

    def _show(self, *, all: bool = False) -> None:
        for source, items in self._merger.due(monotonic(), all=all):
            self._view.append(items, source)

    def _tell(self) -> None:
        words = [f"{len(self.sandboxes)} sandboxes by time: {self._what}."]
        words += [f"{back}."] if (back := hint(self._view, "merge-logs", "goes back to one")) else []
        words = [" ".join(words)]
        if self._left_out:
            words.append(f"{self._left_out} more are left out: {MOST} are followed at most.")
        words += [f"{self.names[at]}: {text}" for at, text in self._problems.items() if text][:3]
        self._note("\n".join(words))
