"""Knows which folders of this machine belong to guests, and which are the console's and must never be shared."""

from __future__ import annotations

import asyncio
import os
import pwd
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from sandbox_console.backends.abilities import NamesFolders
from sandbox_console.errors import ConfigError, Conflict, ConsoleError
from sandbox_console.hostfs import mounts
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import find, led_by
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.reads import shared_folders
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.shared_folders import SharedFolders

ASKED_S = 1.0
"""How long a backend may take to name its guests' folders before its last answer is used instead."""
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - files are made there with random names, and only their owner may rename
_ANOTHER = "name another folder, or set policy.home_workspace = true"
_APART = "a sandbox could change what the console does, and what it has recorded"


class OwnFolders(Struct, frozen=True):
    """The console's own places: their names and paths.

    ``home`` says that a home folder and one for temporary files may be shared. ``used`` are those that the console runs
    or reads: they must not be a workspace either, but the console does not end if another tool uses one as such.
    ``private`` are the user's keys and programs, and what engines are made of. ``read`` are files that libraries use on
    their own: one that a guest can change ends the console, as it would trust that guest's servers.
    """

    state: Path
    places: tuple[tuple[str, Path], ...] = ()
    home: bool = False
    used: tuple[tuple[str, Path], ...] = ()
    private: tuple[tuple[str, Path], ...] = ()
    read: tuple[tuple[str, Path], ...] = ()


class FolderGuard:
    """Queries the backends, and stores their last answers for when one of them does not answer."""

    def __init__(self, fleet: Fleet, own: OwnFolders) -> None:
        self._fleet, self._own = fleet, own
        self._changing = Counter[tuple[str, str]]()

    async def ground(self) -> GuestFolders:
        """The folders that guests can change now. Raises ConfigError if the console's own state is in one."""
        answers = await asyncio.gather(*(self._ask(*key) for key in self._fleet.keys))
        shared = {f"{name}/{host}": found for (name, host), found in zip(self._fleet.keys, answers, strict=True)}
        return await asyncio.to_thread(self._ground, {key: one for key, one in shared.items() if one is not None})

    def _ground(self, shared: Mapping[str, Sequence[str]]) -> GuestFolders:
        shared_folders.change(self._own.state, lambda known: {**known, **shared})
        known = shared_folders.everywhere(self._own.state, shared)
        refuse_guests(self._own, known)
        keep_temporary_files_apart(self._own.state, known)
        return known.ground(self._own.state / "parts")

    async def _ask(self, name: str, host: str) -> Sequence[str] | None:
        """The folders of one backend's guests; None if it does not answer."""
        try:
            async with asyncio.timeout(ASKED_S):
                backend = await self._fleet.use(name, host)
                if isinstance(backend, NamesFolders):
                    return await backend.shares()
                return [
                    sandbox.spec.workspace
                    for sandbox in await backend.list()
                    if sandbox.spec and sandbox.spec.workspace
                ]
        except (TimeoutError, ConsoleError, OSError):
            return None

    async def refresh(self, backend: str, host: str) -> None:
        """Query one backend again after something was made or removed. If it does not answer, the old answer stays."""
        found = await self._ask(backend, host)
        if found is not None:
            fresh = {f"{backend}/{host}": found}
            await asyncio.to_thread(shared_folders.change, self._own.state, lambda known: {**known, **fresh})

    @asynccontextmanager
    async def changing(self, backend: str, host: str) -> AsyncIterator[None]:
        """While the block runs, a sandbox with folders is made or removed. The last of several at once refreshes.

        Until then too many folders are stored, which is safe: each that is given is remembered before.
        """
        key = backend, host
        self._changing[key] += 1
        try:
            yield
        finally:
            self._changing[key] -= 1
            if not self._changing[key]:
                await self.refresh(backend, host)

    async def remember(self, backend: str, host: str, folder: str) -> None:
        """Remember a folder that is about to become a guest's, or that a sandbox had until now."""
        await asyncio.to_thread(self._remember, f"{backend}/{host}", folder)

    def _remember(self, key: str, folder: str) -> None:
        shared_folders.change(self._own.state, lambda known: {**known, key: [*known.get(key, ()), folder]}, [folder])
        keep_temporary_files_apart(self._own.state, SharedFolders({key: [folder]}))

    async def problems(self, spec: SandboxSpec) -> Mapping[str, str]:
        """Why a spec's folders cannot be given to a sandbox, by field."""
        found: dict[str, str] = {}
        if spec.workspace and (reason := await asyncio.to_thread(self._workspace_problem, spec.workspace)):
            found["workspace"] = reason
        if spec.image.startswith("dir:") and (reason := await self._image_problem(spec.image[4:])):
            found["image"] = reason
        return found

    def _workspace_problem(self, folder: str) -> str:
        known = shared_folders.everywhere(self._own.state)
        return workspace_problem(folder, self._own) or planted(folder, known)

    async def _image_problem(self, folder: str) -> str:
        """Why an image cannot be used: if a guest can change it, its links could lead a new sandbox anywhere."""
        guest_folders = await self.ground()
        if root := await asyncio.to_thread(_lies_in, folder, [root.path for root in guest_folders.roots.values()]):
            return f"{folder} lies in {root}, which a sandbox can write: copy it to a place of its own"
        return ""


def planted(folder: str, known: SharedFolders) -> str:
    """Why a guest could redirect a workspace before it is mounted; empty if none could.

    It may be the same folder that others have, but not a folder inside it, which could be a link by then.
    """
    try:
        with find(folder, known.ground()) as found:
            root = found.folder.root
            if root is not None and root.removed:  # no guest is left that could exchange it
                return ""
    except Conflict as error:
        return f"{error.message}: {error.hint}"
    except OSError:  # the backend reports missing folders
        return ""
    reason = "by then another sandbox could have put a link there; name the folder that it has, or one of your own"
    return f"{folder} lies in {root.path}, which a sandbox can write: {reason}" if root else ""


def workspace_problem(folder: str, own: OwnFolders) -> str:
    """Why a folder must not be given to sandboxes; empty if nothing is wrong with it."""
    known = mounts.read()
    theirs = list(mounts.spots(folder, known))
    return (
        _touches(folder, theirs, own.places, known, _APART)
        or ("" if own.home else _too_wide(folder, theirs, known))
        or _touches(folder, theirs, (*own.used, *own.read), known, _APART)
        or _touches(folder, theirs, own.private, known, _ANOTHER)
    )


def _touches(
    folder: str, theirs: list[mounts.Spot], guarded: Iterable[tuple[str, Path]], known: list[mounts.Mount], why: str
) -> str:
    for what, path in guarded:
        if mounts.overlap(theirs, mounts.spots(str(path), known)):
            return f"{folder} is, contains or is inside {path}, {what}: {why}"
    return ""


def _too_wide(folder: str, theirs: list[mounts.Spot], known: list[mounts.Mount]) -> str:
    """Whether it contains a whole home folder, or the folder for temporary files."""
    for home in _homes():
        if _holds(theirs, mounts.spots(home, known)):
            return (
                f"{folder} is or contains the home folder {home}, with keys and programs of yours: name a folder "
                "in it, or set policy.home_workspace = true"
            )
    for temporary in _temporary():
        if _holds(theirs, mounts.spots(temporary, known)):
            return (
                f"{folder} is or contains {temporary}, where programs of yours keep sockets (tmux, ssh-agent): "
                "name a folder in it, or set policy.home_workspace = true"
            )
    return ""


def _holds(folder: Iterable[mounts.Spot], other: Iterable[mounts.Spot]) -> bool:
    places = list(other)[:1]  # the folder itself, not what is mounted in it
    return any(device == there and mounts.within(path, at) for there, at in folder for device, path in places)


def _homes() -> set[str]:
    found = {os.environ.get("HOME", ""), str(Path.home()) if "HOME" in os.environ else ""}
    try:
        found.add(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a uid without a name
        found.discard("")
    return {home for home in found if home.startswith("/") and home != "/" and Path(home).is_dir()}


def _temporary() -> set[str]:
    """Folders for temporary files. An ordinary user's guest has that user's uid, and could open sockets there."""
    return {tempfile.gettempdir(), "/tmp"}  # noqa: S108 - tmux and ssh-agent use it whatever TMPDIR is


def keep_temporary_files_apart(state: Path, known: SharedFolders) -> None:
    """Choose another folder for this process's temporary files, and its children's, if a guest can write the usual one.

    A guest could replace even a folder with a random name that was made there. The last resort is in the state folder.
    """
    folders = known.all
    usual = tempfile.gettempdir()
    if not folders or not _writable_by_guests(usual, known):
        return
    others = (folder for folder in _TEMPORARY if Path(folder).is_dir() and not _writable_by_guests(folder, known))
    folder = next(others, None) or str(state / "tmp")
    if folder == str(state / "tmp"):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    tempfile.tempdir = os.environ["TMPDIR"] = folder


def _writable_by_guests(folder: str, known: SharedFolders) -> bool:
    return bool(_lies_in(folder, known.all) or led_by(Path(folder), known.ground()))


def besides_homes(known: SharedFolders) -> SharedFolders:
    """The guests' folders except those that hold a home folder: who has one can change what the user's shells run."""
    homes = _homes()
    return known.without(lambda folder: any(Path(home).is_relative_to(folder) for home in homes))


def refuse_guests(own: OwnFolders, known: SharedFolders) -> None:
    """Raise ConfigError if a guest can change one of the console's own places, or the path that leads to it.

    A guest that has the home folder itself, as other tools' containers often do, is no reason to refuse: it can already
    change what the user's shells run, so a refusal would only take the console away.
    """
    known = besides_homes(known)
    folders = known.all
    if not folders:
        return
    guest_folders = known.ground()
    hint = (
        "keep it where no sandbox writes: --config, SANDBOX_CONSOLE_HOME; "
        f"where that sandbox is gone: rm {own.state / shared_folders.FILE}"
    )
    for label, guarded in (*own.places, *own.read):
        if root := _lies_in(str(guarded), folders) or led_by(guarded, guest_folders):
            if (label, guarded) in own.read:
                hint = "keep the file where no sandbox writes, and unset the variable that names it"
            raise ConfigError(f"{guarded}, {label}, lies in {root}, which a sandbox can write: {_APART}", hint=hint)


def _lies_in(guarded: str, folders: Iterable[str]) -> str:
    """The first of the folders that a place is in, under any name; empty if it is in none."""
    shared = sorted({one for one in folders if one != "/"})
    if not shared:
        return ""
    known = mounts.read()
    spots = [next(mounts.spots(at, known), None) for at in (guarded, str(Path(guarded).absolute().parent))]
    for folder in shared:
        theirs = list(mounts.spots(folder, known))
        if any(
            spot and device == spot[0] and mounts.within(spot[1], path) for spot in spots for device, path in theirs
        ):
            return folder
    return ""


def without_guests_programs(path: str, folders: Iterable[str]) -> str:
    """PATH without folders that guests can write to, as programs in them could be a guest's."""
    shared = list(folders)
    return os.pathsep.join(one for one in path.split(os.pathsep) if not _lies_in(str(Path(one).absolute()), shared))
