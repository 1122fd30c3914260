"""Stores the folders that guests were given, in case a backend does not answer or a folder was moved."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
from msgspec import Struct, field

from sandbox_console.hostfs.guest_writable import GuestFolders, MovedFolder
from sandbox_console.hostfs.kernel import birth_of
from sandbox_console.hostfs.own_files import load_own, write_own

FILE = "shares.json"
_SEEN = "seen"
_MOST_BYTES = 4 << 20
_MOST_EACH = 8
"""The most folders remembered for one path since the machine started."""


class FolderRecord(Struct, frozen=True, array_like=True):
    """A folder as it was when it was given to a guest."""

    device: int
    inode: int
    born: int


class SharedFolders(Struct, frozen=True):
    """Folders by ``backend/host``; and for each path the folders that it has been since the machine started.

    A guest keeps the folder that it was given, even if it is moved and something else has its path.
    """

    folders: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, list[FolderRecord]] = field(default_factory=dict)

    @property
    def all(self) -> set[str]:
        """Every folder."""
        return {folder for found in self.folders.values() for folder in found}

    def now(self, folders: Mapping[str, Sequence[str]]) -> SharedFolders:
        """A copy with these folders instead, checked again. Folders that no guest has any more are dropped."""
        fresh = _sorted(folders)
        seen: dict[str, list[FolderRecord]] = {}
        for folder in {one for found in fresh.values() for one in found}:
            known = self.seen.get(folder, [])
            one = _look(folder)
            seen[folder] = known if one is None or one in known else [*known, one][-_MOST_EACH:]
        return SharedFolders(fresh, seen)

    def without(self, passed: Callable[[str], bool]) -> SharedFolders:
        """All except the folders for which ``passed`` is true."""
        folders = {key: [one for one in found if not passed(one)] for key, found in self.folders.items()}
        return SharedFolders(folders, {folder: found for folder, found in self.seen.items() if not passed(folder)})

    def ground(self, private: Path | None = None) -> GuestFolders:
        """The guests' ground."""
        moved = {
            (one.device, one.inode): MovedFolder(path, one.born) for path, found in self.seen.items() for one in found
        }
        return GuestFolders.of(self.all, private, moved)


def read(state: Path) -> SharedFolders:
    """What is stored in a state folder; nothing if it cannot be read."""
    return load_own(state / FILE, _MOST_BYTES, _decoded) or SharedFolders()


def _decoded(content: bytes) -> SharedFolders:
    data = msgspec.json.decode(content, type=dict[str, Any])
    seen = data.pop(_SEEN, None)
    return SharedFolders(msgspec.convert(data, dict[str, list[str]]), _seen(seen))


def everywhere(state: Path, said: Mapping[str, Sequence[str]] | None = None) -> SharedFolders:
    """What this user's consoles have given to guests, including those with their state in the default folder.

    ``said`` is what this console's backends have just reported, in case it could not be stored.
    """
    shared_folders = read(state)
    if said and shared_folders.folders != shared_folders.folders | _sorted(said):
        shared_folders = shared_folders.now({**shared_folders.folders, **said})
    with contextlib.suppress(RuntimeError):  # no home
        usual = read(Path(platformdirs.user_state_path("sandbox-console")))
        folders = {key: [*usual.folders.get(key, []), *shared_folders.folders.get(key, [])] for key in usual.folders}
        return SharedFolders(shared_folders.folders | folders, usual.seen | shared_folders.seen)
    return shared_folders


def change(state: Path, fresh: Callable[[dict[str, Sequence[str]]], Mapping[str, Sequence[str]]]) -> None:
    """Store which folders are given now. A full or read-only state folder stays as it is; callers know them anyway.

    Consoles take turns, so that none overwrites what another has stored meanwhile.
    """
    try:
        lock = os.open(state / f".{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = read(state)
        now = known.now(fresh(dict(known.folders)))
        if now != known:
            _keep(state, now)
    finally:
        os.close(lock)


def _keep(state: Path, shared_folders: SharedFolders) -> None:
    data: dict[str, Any] = {
        **shared_folders.folders,
        _SEEN: msgspec.to_builtins(_SavedFolders(_boot(), shared_folders.seen)),
    }
    with contextlib.suppress(OSError):
        write_own(state / FILE, msgspec.json.encode(data))


def _sorted(folders: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {key: sorted(set(found)) for key, found in folders.items()}


def _look(folder: str) -> FolderRecord | None:
    try:
        fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        st = os.fstat(fd)
        return FolderRecord(st.st_dev, st.st_ino, birth_of(fd))
    finally:
        os.close(fd)


def _seen(data: Any) -> dict[str, list[FolderRecord]]:
    """What was stored since the machine started. Older inode and device numbers mean nothing, and no guest survived."""
    try:
        found = msgspec.convert(data, _SavedFolders)
    except msgspec.ValidationError:
        return {}
    return found.folders if found.boot == _boot() else {}


class _SavedFolders(Struct, frozen=True):
    boot: str
    folders: dict[str, list[FolderRecord]]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
