"""The runtime's own log of a sandbox, as events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from typing import Any

from sandbox_console.backends.microsandbox import sdk
from sandbox_console.backends.microsandbox.sdk import result
from sandbox_console.model.inside import Happening

QUIET_S = 1.0
_LINE = re.compile(r"(?P<level>TRACE|DEBUG|INFO|WARN|ERROR) (?P<target>[\w:]+): (?P<text>.*)", re.DOTALL)
_MARK = re.compile(r"--- (?P<text>.*) ---")


async def entries(module: Any, handle: Any, since: float | None, *, follow: bool) -> AsyncGenerator[Any, None]:
    """Entries, oldest first; with ``follow`` also those that come, until the sandbox ends."""
    sources = [module.LogReadSource.SYSTEM]
    bounds = {} if since is None else {"since_ms": since * 1000}
    cursor = None
    for entry in await sdk.call(module, "a system log", handle.logs(sources=sources, **bounds)):
        cursor = entry.cursor
        yield entry
    if not follow:
        return
    bounds = {"from_cursor": cursor} if cursor else bounds
    stream = await sdk.call(module, "a system log", handle.log_stream(sources=sources, follow=True, **bounds))
    waiting: asyncio.Future[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(stream, None))
            done, _ = await asyncio.wait({waiting}, timeout=QUIET_S)
            if not done:
                if str((await result(handle.refresh())).status) in ("stopped", "crashed"):
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


def happening(entry: Any) -> Happening | None:
    """One entry as an event; None for an empty line."""
    text = entry.data.decode("utf-8", "replace").strip()
    if not text:
        return None
    at = entry.timestamp_ms / 1000
    if mark := _MARK.fullmatch(text):
        return Happening(at, mark["text"].rpartition(" ")[2] or "note", mark["text"])
    if line := _LINE.match(text):
        return Happening(at, line["level"].lower(), line["text"].strip(), {"from": line["target"]})
    return Happening(at, "kernel", text)
