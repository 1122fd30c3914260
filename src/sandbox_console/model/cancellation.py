"""Waits for work that a cancellation must not split."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Awaitable[T]) -> T:
    """Await work that must not be cut short. A cancellation is passed on once the work is done."""
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
    """Wait for shared work. A cancellation ends the wait at once, but does not cancel the work."""
    return await asyncio.shield(work)


async def wait_until_done(work: asyncio.Future[Any]) -> BaseException | None:
    """Wait until work is done, however often the waiter is cancelled, and return what it raised.

    This is for an ``except CancelledError`` that raises again, as a thread or another process is not cancelled with it.
    """
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return None if work.cancelled() else work.exception()
