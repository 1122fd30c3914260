"""Awaiting what a cancellation must not split."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """Await work that must not be cut short: a cancellation is passed on once it is done."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
            cancelled = True
        except Exception:  # noqa: BLE001 - raised below, from the task itself
            break
    if cancelled:
        task.exception()
        raise asyncio.CancelledError
    return task.result()
