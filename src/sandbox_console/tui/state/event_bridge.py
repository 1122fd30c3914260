"""From the console's subscription to the app: batches of at most 50 ms, one message each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sandbox_console.model.event import Event
from sandbox_console.service import Subscription

BATCH_S = 0.05
"""Textual's message queue has no bound: a flood is gathered here, where the hub coalesces it."""


async def bridge(subscription: Subscription, deliver: Callable[[Sequence[Event]], object]) -> None:
    """Deliver what changes until cancelled; the first batch at once."""
    try:
        while True:
            deliver(await subscription.batch())
            await asyncio.sleep(BATCH_S)
    finally:
        subscription.close()
