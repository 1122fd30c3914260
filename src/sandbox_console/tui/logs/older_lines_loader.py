"""Loads log lines older than those in memory into a view, and shows its progress there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandbox_console.errors import ConsoleError
from sandbox_console.logs.store import LineStore
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console
from sandbox_console.tui.logs.older_lines import OlderLog, older
from sandbox_console.tui.widgets.log.log_view import LogView

_BEGINS = "the log begins here"
_NO_OLDER = "there are no older lines"  # what rotation may have taken is known once all of a log was read
_FULL = "memory is full: tui.log_memory_mib"
_DROPPED = "older lines were dropped meanwhile: load them again"
_WAIT_S = 0.05


class OlderLinesLoader:
    """Reads older lines of one sandbox at a time. Each of its methods runs in a worker and may be cancelled."""

    def __init__(self, console: Console, view: LogView) -> None:
        self._console = console
        self._view = view
        self._whole: LineStore | None = None  # the last one whose log was read to its beginning
        self._begins = _BEGINS

    def show_progress(self, text: str) -> None:
        """Show the progress in the view."""
        self._view.older = text
        self._view.refresh()

    async def page(self, sandbox: Sandbox, since_ns: int | None) -> None:
        """Insert a page before the oldest line, or all lines since a time."""
        store = self._view.store
        if not store.room_bytes:
            self.show_progress(_FULL)
            return
        self.show_progress("fetching older lines…")
        async with self._retaining(store) as put:
            found = await older(self._console, sandbox.ref, store, sandbox.created_at, since_ns)
            lines = await asyncio.to_thread(LineStore.of, found.items)  # a second for a million of them
            lines.begins = found.at_start
            if put(lines):
                self.show_progress(_FULL if found.full else _NO_OLDER if found.at_start else "")
                if since_ns is not None and not self._view.follow:
                    self._view.go_to_time(since_ns)

    async def to_start(self, sandbox: Sandbox) -> None:
        """Go to the true beginning of the log. If memory has no room for all of it, a gap counts what is left out."""
        if await self._rest(sandbox, head=True) and not self._view.follow:
            self._view.go_to_first()

    async def search(self, sandbox: Sandbox) -> None:
        """Search or filter older lines too, and go to the nearest match if there was none so far."""
        while self._view.store.oldest_ns is None:  # noqa: ASYNC110 - no line has arrived yet
            await asyncio.sleep(_WAIT_S)
        if await self._rest(sandbox, head=False):
            self._view.seek_older()

    async def _rest(self, sandbox: Sandbox, *, head: bool) -> bool:
        """Read all older lines. Returns whether they are in the view now."""
        store, lines = self._view.store, self._view.lines
        if store.begins or store.oldest_ns is None:
            self.show_progress(self._begins if store is self._whole else _BEGINS)
            return True
        wanted = lines.search if lines.search is not None else lines.filter  # an index without matches is falsy
        rest = OlderLog(store, wanted.pattern if wanted is not None else None, head=head)
        verb = "looking through older lines" if wanted is not None else "reading older lines"
        self.show_progress(f"{verb}…")
        async with self._retaining(store) as put:
            await rest.fill(
                self._console,
                sandbox.ref,
                lambda: self.show_progress(f"{verb}: {rest.read:,} so far, {rest.share:.0%}"),
            )
            left_out = _left_out(rest)
            if put(rest.lines):
                self._whole, self._begins = store, left_out or _BEGINS
                self.show_progress(self._begins)
                return True
        return False

    @asynccontextmanager
    async def _retaining(self, store: LineStore) -> AsyncIterator[Callable[[LineStore], bool]]:
        """Keep the store from dropping lines while older ones are read, as that leaves a hole. Shows errors."""
        store.holding = True
        first = store.first

        def put(lines: LineStore) -> bool:
            if self._view.store is not store:
                return False
            if store.first != first:
                self.show_progress(_DROPPED)
                return False
            self._view.put_older(lines)
            return True

        try:
            yield put
        except ConsoleError as error:
            self.show_progress(f"older lines could not be read: {error.message}")
        finally:
            if self._view.store is store:
                store.holding = not self._view.follow


def _left_out(rest: OlderLog) -> str:
    """Return which of the older lines are not in the view, or an empty string if all are."""
    rotated = ""
    if rest.rotated:
        rotated = f"{rest.rotated:,} lines rotated away" if rest.rotated > 0 else "older ones rotated away, not counted"
    elif rest.maybe_rotated:
        rotated = "older ones may have been rotated away: the engine does not count them"
    held = _BEGINS if rotated and not rest.maybe_rotated else ""
    if rest.found_not_held:
        held = f"{rest.found_not_held:,} more in {rest.not_held:,} older lines not in memory"
    elif rest.lines.dropped:
        held = f"none in {rest.not_held:,} older lines not in memory"
    return "; ".join(filter(None, [held, rotated]))
