"""Keeps the garbage collector from delaying keys: objects that live as long as the app are not scanned again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator

SETTLE_S = 2.0
"""Seconds after which the first screen and the first list are shown."""


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause collections until :func:`freeze_objects` is called: at startup they take a tenth of the CPU time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def freeze_soon() -> asyncio.TimerHandle:
    """Call :func:`freeze_objects` once the app has started. The caller cancels the timer at the end."""
    return asyncio.get_running_loop().call_later(SETTLE_S, freeze_objects)


def freeze_objects() -> None:
    """Resume collections, but never scan existing objects again: 85,000 of them delay a key by 70 ms in a log flood."""
    gc.collect()
    gc.freeze()
    gc.enable()
