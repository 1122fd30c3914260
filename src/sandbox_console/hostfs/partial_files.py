"""Chooses where a file is written until it is complete: next to its place, or where no guest can reach it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from sandbox_console.errors import Conflict
from sandbox_console.hostfs.files import remove_tree
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.kernel import mount_of
from sandbox_console.hostfs.walk import Folder, folder_at

_LEFT_S = 24 * 3600
"""After this time, files in the private folder are assumed to be left over from a killed console."""


def nursery(target: Folder, guest_folders: GuestFolders) -> Folder:
    """An open folder from which a file can be renamed into ``target``: the console's, or one above the guests'.

    Outside the guests' ground it is the target itself. On their ground it is the target too if no other folder is on
    the same mount. A guest may then see incomplete files, but everything is reached by descriptors, never by a path.
    """
    if target.root is not None:
        for place in (_private(guest_folders), os.path.dirname(target.root.path)):
            if place and (folder := _usable(place, target, guest_folders)) is not None:
                return folder
    return target.again()


def _private(guest_folders: GuestFolders) -> str:
    if guest_folders.private is None:
        return ""
    try:
        guest_folders.private.mkdir(mode=0o700, exist_ok=True)
        _sweep(guest_folders.private, guest_folders)
    except OSError:  # read-only, or no state folder yet
        return ""
    return str(guest_folders.private)


def _sweep(folder: Path, guest_folders: GuestFolders) -> None:
    with folder_at(folder, guest_folders) as here:
        for name in here.names():
            with contextlib.suppress(OSError):
                if here.look(name).st_mtime < time.time() - _LEFT_S:
                    remove_tree(here, name, guest_folders)


def _usable(path: str, target: Folder, guest_folders: GuestFolders) -> Folder | None:
    try:
        folder = folder_at(path, guest_folders)
    except (OSError, Conflict):
        return None
    if folder.root is None and mount_of(folder.fd) == mount_of(target.fd) and os.access(path, os.W_OK | os.X_OK):
        return folder
    folder.close()
    return None
