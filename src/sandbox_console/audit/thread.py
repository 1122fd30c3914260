"""Run one function on an aiosqlite connection's thread: the unit that a cancellation cannot split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import aiosqlite

T = TypeVar("T")


async def unit(db: aiosqlite.Connection, function: Callable[..., T], *args: Any) -> T:
    """Call ``function(*args)`` there. aiosqlite offers this only under a private name: its version is pinned."""
    result: T = await db._execute(function, *args)  # type: ignore[no-untyped-call]  # noqa: SLF001
    return result
