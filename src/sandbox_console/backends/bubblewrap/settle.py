"""Work that a cancellation must not leave half done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any


async def settled(task: asyncio.Future[Any]) -> BaseException | None:
    """Wait until the task is done, however often the waiter is cancelled, and give what it raised.

    For an ``except CancelledError`` that raises again: a thread or another process goes on all the same.
    """
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return None if task.cancelled() else task.exception()
