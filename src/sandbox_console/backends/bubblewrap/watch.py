"""Watches the state directory, and turns its changes into events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from sandbox_console.backends.bubblewrap.state import Store
from sandbox_console.backends.common import notify
from sandbox_console.backends.common.polling import differences
from sandbox_console.errors import ConsoleError
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.sandbox import Sandbox, SandboxRef

_SETTLE_S = 0.01  # several files change at once when a sandbox starts or ends
_TOP = "."


async def changes(
    store: Store, look: Callable[[], list[Sandbox]], others: Callable[[], list[Path]] = list
) -> AsyncIterator[BackendEvent]:
    """First Listed, then each sandbox that differs from the last report. ``others`` are further folders to watch.

    A supervisor's death is a change too: the kernel releases the lock that it held.
    """
    await asyncio.to_thread(store.prepare)
    folders = notify.Folders(notify.STATE, poll_s=1.0)
    try:
        folders.add(_TOP, store.folder)
        known: dict[SandboxRef, Sandbox] | None = None
        while True:
            for identity in await asyncio.to_thread(store.ids):
                folders.add(identity, store.folder / identity)
            for folder in await asyncio.to_thread(others):
                folders.add(str(folder), folder)
            try:
                now = {sandbox.ref: sandbox for sandbox in await asyncio.to_thread(look)}
            except ConsoleError:
                await asyncio.sleep(1.0)
                continue
            for event in differences(("bubblewrap", "local"), known, now):
                yield event
            known = now
            await folders.changed()
            await asyncio.sleep(_SETTLE_S)
    finally:
        folders.close()
