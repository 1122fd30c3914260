"""Waits for work that a cancellation must not split."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Awaitable[T]) -> T:
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


async def shielded(work: asyncio.Future[T]) -> T:
    """Wait for work that is another's too: a cancelled wait leaves it be, and is passed on at once."""
    return await asyncio.shield(work)


async def wait_until_done(work: asyncio.Future[Any]) -> BaseException | None:
    """Wait until work is done, however often the waiter is cancelled, and give what it raised.

    For an ``except CancelledError`` that raises again: a thread or another process goes on all the same.
    """
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return None if work.cancelled() else work.exception()
