"""What happened to a sandbox, as its supervisor and the consoles recorded it (``supervise/events.py``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path

from sandbox_console.backends.bubblewrap.supervise.events import NEW, OLD
from sandbox_console.backends.common import notify
from sandbox_console.model.guest import GuestEvent


async def read(folder: Path, *, since: float | None, follow: bool) -> AsyncGenerator[GuestEvent, None]:
    """The events of a sandbox, oldest first. Following ends when the sandbox is removed."""
    watching = notify.Folders(notify.EVENTS, poll_s=1.0) if follow else None
    seen: set[str] = set()
    try:
        if watching:
            watching.add("events", folder)
        while True:
            lines = await asyncio.to_thread(_lines, folder)
            for line in lines:
                if line not in seen and (event := _parsed(line)) and (since is None or event.at >= since):
                    yield event
            seen = set(lines)
            if watching is None or not await asyncio.to_thread(folder.exists):
                return
            await watching.changed(5.0)  # nothing else reports that a folder was removed
    finally:
        if watching:
            watching.close()


def _lines(folder: Path) -> list[str]:
    """All complete lines, the older file's first. Lines are distinguished by their times."""
    found: list[str] = []
    for name in (OLD, NEW):
        try:
            found += (folder / name).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            continue
    return found


def _parsed(line: str) -> GuestEvent | None:
    try:
        event = json.loads(line)
        attributes = {str(key): str(value) for key, value in event["attributes"].items()}
        return GuestEvent(float(event["at"]), str(event["what"]), str(event["detail"]), attributes)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
