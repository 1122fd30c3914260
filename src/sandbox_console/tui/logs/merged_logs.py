"""The logs of several sandboxes in one view, ordered by time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from sandbox_console.logs.merge import HOLD_S, Merger
from sandbox_console.logs.store import LineStore
from sandbox_console.model.log import LogItem
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.logs.log_feed import FOLLOWED, Feed, StreamState
from sandbox_console.tui.text.formatting import many, short_id, shown_name
from sandbox_console.tui.widgets.log.log_view import LogView

MOST = 200
"""The most streams that are open at a time."""
TAIL_ALL = 20_000
"""Lines that are requested initially, for all sandboxes together."""
FIRST_HOLD_S = 1.5
"""Seconds that earlier output is held so that it can be sorted: it arrives sandbox by sandbox."""
BEAT_S = 0.1


class Group(NamedTuple):
    """Sandboxes whose logs are shown together, and a description of them.

    With ``wanted``, later sandboxes for which it is true join the group.
    """

    sandboxes: Sequence[Sandbox]
    label: str
    wanted: Callable[[Sandbox], bool] | None = None


class Merged:
    """Feeds several sandboxes' output into a view, including that of new ones for which ``wanted`` is true."""

    def __init__(
        self,
        console: Console,
        group: Group,
        view: LogView,
        note: Callable[[str], None],
    ) -> None:
        self.names: list[str] = []
        self._console = console
        self._left_out = len(group.sandboxes[MOST:])
        self._group = group
        self._view = view
        self._note = note
        self._merger = Merger(FIRST_HOLD_S)
        self._problems: dict[int, str] = {}
        self._feeds: dict[SandboxRef, Feed] = {}
        self._tasks: asyncio.TaskGroup | None = None
        for sandbox in group.sandboxes[:MOST]:
            self._add(sandbox)

    def _add(self, sandbox: Sandbox) -> Feed:
        feed = self._feeds[sandbox.ref] = self._feed(len(self._feeds), sandbox)
        name = shown_name(sandbox)
        self.names.append(f"{short_id(sandbox)[:6]} {name}" if name in self.names else name)
        return feed

    def _feed(self, at: int, sandbox: Sandbox) -> Feed:
        def sink(items: Sequence[LogItem]) -> None:
            self._merger.put(at, items, monotonic())

        def note(text: str) -> None:
            self._problems[at] = text
            self._tell()

        def forget() -> int | None:
            self._show(all=True)  # part of a line may be waiting there
            return self._view.store.take_partials(at)

        return Feed(self._console, sandbox, sink, note, forget)

    def renew(self, now: Mapping[SandboxRef, Sandbox]) -> None:
        """Update the sandboxes, and start following new ones."""
        for ref, feed in self._feeds.items():
            sandbox = now.get(ref)
            if sandbox is not None and sandbox is not feed.sandbox:
                feed.renew(sandbox)
        wanted = self._group.wanted
        new = [one for ref, one in now.items() if ref not in self._feeds and wanted(one)] if wanted else []
        room = MOST - sum(feed.stand.open for feed in self._feeds.values()) if new else 0
        for sandbox in new[: max(room, 0)]:
            feed = self._add(sandbox)
            if self._tasks is not None:
                self._tasks.create_task(feed.follow(self._tail))
        if wanted and self._left_out != (left := len(new[max(room, 0) :])):
            self._left_out = left
            self._tell()

    def gone(self, live: Callable[[SandboxRef], bool]) -> Iterator[tuple[Sandbox, LineStore]]:
        """Yield what was read of sandboxes that are gone."""
        self._show(all=True)
        for at, feed in enumerate(self._feeds.values()):
            if not live(feed.sandbox.ref):
                yield feed.sandbox, self._view.store.of_source(at)

    @property
    def stand(self) -> StreamState:
        """The state, with the number of streams that may have more output."""
        still = sum(feed.stand.open for feed in self._feeds.values())
        if still == len(self._feeds):
            return FOLLOWED
        return StreamState(
            f"FOLLOWING {still} of {len(self._feeds)}" if still else "ENDED: no log is followed", bool(still)
        )

    async def follow(self) -> None:
        """Follow all sandboxes until cancelled."""
        self._tell()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._tasks.create_task(self._give_out())
                for feed in self._feeds.values():
                    self._tasks.create_task(feed.follow(self._tail))
        finally:
            self._tasks = None

    @property
    def _tail(self) -> int:
        return max(50, TAIL_ALL // max(len(self._feeds), 1))

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
        words = [f"{many(len(self._feeds))} by time: {self._group.label}."]
        words += [f"{back}."] if (back := hint(self._view, "merge-logs", "goes back to one")) else []
        words = [" ".join(words)]
        if self._left_out:
            words.append(f"{self._left_out} more are left out: {MOST} is the most that can be followed.")
        words += [f"{self.names[at]}: {text}" for at, text in self._problems.items() if text][:3]
        self._note("\n".join(words))
