"""Saves lines to a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from sandbox_console.hostfs.files import NewFile
from sandbox_console.hostfs.guest_writable import GuestFolders


async def save_new(path: Path, parts: Callable[[], Iterable[bytes]], guest_folders: GuestFolders) -> int:
    """Write bytes to a file that must not exist, readable only by its owner, off the loop. Returns their number.

    ``guest_folders`` is what guests can change; no links are followed there. Raises OSError, Conflict.
    """
    return await asyncio.to_thread(_write_new, path, parts, guest_folders)


def _write_new(path: Path, parts: Callable[[], Iterable[bytes]], guest_folders: GuestFolders) -> int:
    new_file = NewFile(path, guest_folders)
    try:
        written = sum(new_file.file.write(part) for part in parts())
        new_file.keep()
    except BaseException:
        new_file.drop()
        raise
    return written
