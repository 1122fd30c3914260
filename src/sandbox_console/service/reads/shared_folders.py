"""Stores the folders that guests were given, in case a backend does not answer, or a folder was moved or kept.

The workspace of a removed sandbox stays a guest's folder, as its links do: see ``removed_workspaces``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import platformdirs
from msgspec import Struct, field, structs

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.guest_writable import GuestFolders, MovedFolder
from sandbox_console.hostfs.own_files import NOT_OURS, read_own, write_own
from sandbox_console.service.reads import removed_workspaces
from sandbox_console.service.reads.removed_workspaces import FolderRecord, RemovedWorkspace, boot_id, look

FILE = "shares.json"
_SEEN = "seen"
_MOST_BYTES = 4 << 20
_MOST_EACH = 8
"""The most folders remembered for one path since the machine started."""


class SharedFolders(Struct, frozen=True):
    """Folders by ``backend/host``; and for each path the folders that it has been since the machine started.

    A guest keeps the folder that it was given, even if it is moved and something else has its path. ``given`` are the
    workspaces that a console gave, and ``removed`` those whose sandboxes are gone.
    """

    folders: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, list[FolderRecord]] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    removed: dict[str, RemovedWorkspace] = field(default_factory=dict)

    @property
    def shared(self) -> set[str]:
        """Every folder that a guest has now."""
        return {folder for found in self.folders.values() for folder in found}

    @property
    def all(self) -> set[str]:
        """Every folder that a guest has, and every workspace of a removed sandbox that is still at its place."""
        return self.shared | self._in_place()

    def _in_place(self) -> set[str]:
        return {path for path, one in self.removed.items() if one.in_place(path)}

    def now(self, folders: Mapping[str, Sequence[str]], given: Iterable[str] = ()) -> SharedFolders:
        """A copy with these folders instead, checked again. Folders that no guest has any more are dropped.

        Of these, the workspaces that a console gave become ``removed``.
        """
        fresh = _sorted(folders)
        shared = {one for found in fresh.values() for one in found}
        seen: dict[str, list[FolderRecord]] = {}
        for folder in shared:
            known = self.seen.get(folder, [])
            one = look(folder)
            seen[folder] = known if one is None or one in known else [*known, one][-_MOST_EACH:]
        ours = self.given | set(given)
        gone = {path: removed_workspaces.removed(path, self.seen.get(path, ())) for path in ours - shared}
        removed = removed_workspaces.kept(
            {path: one for path, one in (self.removed | gone).items() if path not in shared}
        )
        return SharedFolders(fresh, seen, ours & shared, removed)

    def without(self, passed: Callable[[str], bool]) -> SharedFolders:
        """All except the folders for which ``passed`` is true."""
        return SharedFolders(
            {key: [one for one in found if not passed(one)] for key, found in self.folders.items()},
            {folder: found for folder, found in self.seen.items() if not passed(folder)},
            self.given,
            {path: one for path, one in self.removed.items() if not passed(path)},
        )

    def ground(self, private: Path | None = None) -> GuestFolders:
        """The guests' ground."""
        found = [(path, one, True) for path, was in self.removed.items() for one in was.moved]
        found += [(path, one, False) for path, each in self.seen.items() for one in each]
        moved = {(one.device, one.inode): MovedFolder(path, one.born, over) for path, one, over in found}
        return GuestFolders.of(self.shared, private, moved, self._in_place())


def read(state: Path) -> SharedFolders:
    """What is stored in a state folder. Raises ConfigError if it is damaged, as it decides which links are followed."""
    path = state / FILE
    try:
        return _decoded(read_own(path, _MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return SharedFolders()
    except OSError as error:
        reason = error.strerror or type(error).__name__
    except NOT_OURS:
        reason = "its content is not what a console writes"
    raise ConfigError(
        f"{path} is damaged ({reason}), so nobody knows in which folders a sandbox may have left links",
        hint="look at the links in the workspaces of your sandboxes, also of removed ones, then remove the file",
    )


def _decoded(content: bytes) -> SharedFolders:
    data = msgspec.json.decode(content, type=dict[str, Any])
    saved = msgspec.convert(data.pop(_SEEN, {}), _SavedFolders)
    seen = saved.folders if saved.boot == boot_id() else {}  # older numbers mean nothing, and no guest survived
    return SharedFolders(msgspec.convert(data, dict[str, list[str]]), seen, frozenset(saved.given), saved.removed)


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
        return SharedFolders(
            shared_folders.folders | folders,
            usual.seen | shared_folders.seen,
            usual.given | shared_folders.given,
            usual.removed | shared_folders.removed,
        )
    return shared_folders


def change(
    state: Path,
    fresh: Callable[[dict[str, Sequence[str]]], Mapping[str, Sequence[str]]],
    given: Iterable[str] = (),
) -> None:
    """Store which folders are given now. A full or read-only state folder stays as it is; callers know them anyway.

    ``given`` are workspaces that a console gives or takes back. Consoles take turns, so that none overwrites what
    another has stored meanwhile. Raises ConfigError if what is stored is damaged.
    """
    with contextlib.suppress(OSError), _locked(state):
        known = read(state)
        now = known.now(fresh(dict(known.folders)), given)
        if now != known:
            _write(state, now)


def forget(state: Path, paths: Iterable[str]) -> None:
    """Forget workspaces of removed sandboxes, in this state folder and in the default one. Raises OSError."""
    passed = set(paths)
    for place in _states(state):
        with _locked(place):
            known = read(place)
            _write(
                place, structs.replace(known, removed={p: one for p, one in known.removed.items() if p not in passed})
            )


def _states(state: Path) -> list[Path]:
    """A state folder, and the default one if it is there."""
    with contextlib.suppress(RuntimeError):  # no home
        usual = Path(platformdirs.user_state_path("sandbox-console"))
        return [state, *([usual] if usual != state and usual.is_dir() else ())]
    return [state]


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    """Consoles take turns. Raises OSError."""
    lock = os.open(state / f".{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(state: Path, shared_folders: SharedFolders) -> None:
    saved = _SavedFolders(boot_id(), shared_folders.seen, sorted(shared_folders.given), shared_folders.removed)
    data: dict[str, Any] = {**shared_folders.folders, _SEEN: msgspec.to_builtins(saved)}
    write_own(state / FILE, msgspec.json.encode(data), sync=True)  # an empty one after a power cut would be an error


def _sorted(folders: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {key: sorted(set(found)) for key, found in folders.items()}


class _SavedFolders(Struct, frozen=True):
    boot: str = ""
    folders: dict[str, list[FolderRecord]] = field(default_factory=dict)
    given: list[str] = field(default_factory=list)
    removed: dict[str, RemovedWorkspace] = field(default_factory=dict)
