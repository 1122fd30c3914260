"""The runtime's own log of a sandbox, as events."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from sandbox_console.backends.microsandbox import sdk
from sandbox_console.errors import NotFound
from sandbox_console.model.guest import GuestEvent

QUIET_S = 1.0
_PAUSE_S = 0.1  # the pause between a stream's end and the next one
START, DIE = "start", "die"
_WORDS = (("received core.ready", START), ("Vmm is stopping", DIE))
_OVER = ("stopped", "crashed")
_LINE = re.compile(r"(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) (?P<target>[\w:]+): (?P<text>.*)", re.DOTALL)
_MARK = re.compile(r"--- (?P<text>.*) ---")


async def entries(module: Any, handle: Any, since: float | None, *, follow: bool) -> AsyncGenerator[Any | None, None]:
    """Entries, oldest first, and None when the sandbox ended; with ``follow`` also new ones, until it is removed."""
    cursor: str | None = None
    while True:
        async with aclosing(_stream(module, handle, cursor, since, follow=False)) as stream:
            kept = [entry async for entry in stream]
        for entry in sorted(kept, key=lambda one: one.timestamp_ms):  # they are returned file by file
            yield entry
        cursor = kept[-1].cursor if kept else cursor
        if str(handle.status) in _OVER:
            yield None
        if not follow:
            return
        if str(handle.status) not in _OVER:
            async with aclosing(_stream(module, handle, cursor, since, follow=True)) as coming:
                async for entry in coming:
                    cursor = entry.cursor
                    yield entry
        if (found := await _next(module, handle)) is None:
            return
        handle = found


async def _next(module: Any, handle: Any) -> Any | None:
    """The current handle, after an end only once the sandbox runs again; None if it is removed."""
    await asyncio.sleep(_PAUSE_S)
    ended, found = str(handle.status) in _OVER, await _again(module, handle)
    while ended and found is not None and str(found.status) in _OVER:
        await asyncio.sleep(QUIET_S)
        found = await _again(module, handle)
    return found


async def _stream(
    module: Any, handle: Any, cursor: str | None, since: float | None, *, follow: bool
) -> AsyncGenerator[Any, None]:
    """The entries after a cursor; with ``follow`` until the sandbox ends."""
    bounds = {"from_cursor": cursor} if cursor else {} if since is None else {"since_ms": since * 1000}
    asked = handle.log_stream(sources=[module.LogReadSource.SYSTEM], follow=follow, **bounds)
    stream = await sdk.call(module, "a system log", asked)
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(stream, None))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if not done:
                found = await _again(module, handle)
                if found is None or str(found.status) in _OVER:
                    return
                continue
            with sdk.translated(module, "a system log"):
                entry, waiting = waiting.result(), None
            if entry is None:
                return
            yield entry
    finally:
        if waiting is not None:
            waiting.cancel()


async def _again(module: Any, handle: Any) -> Any | None:
    """The current handle; None if the sandbox is removed."""
    with contextlib.suppress(NotFound):
        return await sdk.call(module, f"sandbox {handle.name}", handle.refresh())
    return None


async def guest_events(
    module: Any, handle: Any, since: float | None, *, follow: bool
) -> AsyncGenerator[GuestEvent, None]:
    """The entries as events. The log of a killed machine has no end, so it is added here."""
    runs = False
    async with aclosing(entries(module, handle, since, follow=follow)) as found:
        async for entry in found:
            if event := guest_event(entry) if entry is not None else None:
                runs = event.what == START or (runs and event.what != DIE)
                yield event
            elif entry is None and runs:
                runs, now = False, await _again(module, handle)
                if now is not None and now.updated_at:
                    yield GuestEvent(now.updated_at / 1000, DIE, "its process ended without a word in the log")


def guest_event(entry: Any) -> GuestEvent | None:
    """One entry as an event; None for an empty line."""
    text = entry.data.decode("utf-8", "replace").strip()
    if not text:
        return None
    at = entry.timestamp_ms / 1000
    if mark := _MARK.fullmatch(text):
        return GuestEvent(at, mark["text"].rpartition(" ")[2] or "note", mark["text"])
    if line := _LINE.match(text):
        kind = next((word for words, word in _WORDS if words in line["text"]), line["level"].lower())
        return GuestEvent(at, kind, line["text"].strip(), {"from": line["target"]})
    return GuestEvent(at, "kernel", text)
