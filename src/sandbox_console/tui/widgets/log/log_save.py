"""Lines to a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path


async def save_new(path: Path, parts: Callable[[], Iterable[bytes]]) -> int:
    """Write bytes to a file that must not exist, for its owner alone, off the loop. Gives how many. Raises OSError."""
    return await asyncio.to_thread(_write_new, path, parts)


def _write_new(path: Path, parts: Callable[[], Iterable[bytes]]) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        return sum(file.write(part) for part in parts())
