"""Which folders of this machine are the guests', and which are the console's and must never become theirs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import platformdirs
from msgspec import Struct

from sandbox_console.backends.abilities import Sharing
from sandbox_console.errors import ConfigError, ConsoleError
from sandbox_console.hostfs import mounts
from sandbox_console.hostfs.places import Ground
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.reads.fleet import Fleet

ASKED_S = 1.0
"""How long a backend may take to name its guests' folders before what it last said has to do."""
_FILE = "shares.json"
_MOST_BYTES = 4 << 20

_APART = "a sandbox could change what the console does, and what it has on record"


class Own(Struct, frozen=True):
    """The console's own places: what they are called, and where. ``home`` says that a home folder may be shared."""

    state: Path
    places: tuple[tuple[str, Path], ...] = ()
    home: bool = False


class Shares:
    """Asks the backends; what they said last is kept, for when one of them does not answer."""

    def __init__(self, fleet: Fleet, own: Own) -> None:
        self._fleet, self._own = fleet, own

    async def ground(self) -> Ground:
        """The guests' ground now. Raises ConfigError where the console's own state lies in it."""
        known = await asyncio.to_thread(_kept, self._own.state)
        answers = await asyncio.gather(*(self._ask(*key) for key in self._fleet.keys))
        said = {f"{name}/{host}": found for (name, host), found in zip(self._fleet.keys, answers, strict=True)}
        fresh = known | {key: sorted(set(found)) for key, found in said.items() if found is not None}
        if fresh != known:
            await asyncio.to_thread(_keep, self._own.state, fresh)
        folders = {folder for found in fresh.values() for folder in found}
        await asyncio.to_thread(refuse_guests, self._own, folders)
        return await asyncio.to_thread(Ground.of, folders, self._own.state / "parts")

    async def _ask(self, name: str, host: str) -> Sequence[str] | None:
        """The folders of one backend's guests; None where it does not say."""
        try:
            async with asyncio.timeout(ASKED_S):
                backend = await self._fleet.use(name, host)
                if isinstance(backend, Sharing):
                    return await backend.shares()
                return [one.spec.workspace for one in await backend.list() if one.spec and one.spec.workspace]
        except (TimeoutError, ConsoleError, OSError):
            return None

    async def refresh(self, backend: str, host: str) -> None:
        """Ask one backend again, after something was made or removed; where it does not say what is known stays."""
        found = await self._ask(backend, host)
        if found is not None:
            await asyncio.to_thread(self._replace, f"{backend}/{host}", sorted(set(found)))

    def _replace(self, key: str, folders: list[str]) -> None:
        known = _kept(self._own.state)
        if known.get(key, []) != folders:
            _keep(self._own.state, known | {key: folders})

    async def remember(self, backend: str, host: str, folder: str) -> None:
        """A folder is about to become a guest's."""
        await asyncio.to_thread(self._remember, f"{backend}/{host}", folder)

    def _remember(self, key: str, folder: str) -> None:
        known = _kept(self._own.state)
        if folder not in known.get(key, []):
            _keep(self._own.state, known | {key: [*known.get(key, []), folder]})

    async def problems(self, spec: SandboxSpec) -> Mapping[str, str]:
        """Why a spec's folders cannot be a sandbox's, by field."""
        found: dict[str, str] = {}
        if spec.workspace and (why := await asyncio.to_thread(workspace_problem, spec.workspace, self._own)):
            found["workspace"] = why
        if spec.image.startswith("dir:") and (why := await self._image_problem(spec.image[4:])):
            found["image"] = why
        return found

    async def _image_problem(self, folder: str) -> str:
        """A root file system that a guest can change would lead a new sandbox anywhere, by its links."""
        ground = await self.ground()
        if root := await asyncio.to_thread(_lies_in, folder, [root.path for root in ground.roots.values()]):
            return f"{folder} lies in {root}, which a sandbox can write: copy it to a place of its own"
        return ""


def workspace_problem(folder: str, own: Own) -> str:
    """Why a folder is not for sandboxes; empty where nothing is wrong with it."""
    known = mounts.read()
    theirs = list(mounts.spots(folder, known))
    for what, place in own.places:
        if mounts.overlap(theirs, mounts.spots(str(place), known)):
            return f"{folder} is, holds or lies in {place}, {what}: {_APART}"
    if not own.home:
        for home in _homes():
            if _holds(theirs, mounts.spots(home, known)):
                return (
                    f"{folder} is or holds the home folder {home}, with keys and programs of yours: name a folder "
                    "in it, or set policy.home_workspace = true"
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


def refuse_guests(own: Own, folders: Iterable[str]) -> None:
    """Raise ConfigError where one of the console's own places lies in a guest's folder."""
    given = list(folders)
    for what, place in own.places:
        if root := _lies_in(str(place), given):
            raise ConfigError(
                f"{place}, {what}, lies in {root}, which a sandbox can write: {_APART}",
                hint="keep it where no sandbox writes: --config, SANDBOX_CONSOLE_HOME",
            )


def _lies_in(place: str, folders: Iterable[str]) -> str:
    """The first of the folders that a place lies in, by whatever name; empty where it lies in none."""
    given = sorted({one for one in folders if one != "/"})
    if not given:
        return ""
    known = mounts.read()
    spots = [next(mounts.spots(at, known), None) for at in (place, str(Path(place).absolute().parent))]
    for folder in given:
        theirs = list(mounts.spots(folder, known))
        if any(
            spot and device == spot[0] and mounts.within(spot[1], path) for spot in spots for device, path in theirs
        ):
            return folder
    return ""


def known_folders(state: Path) -> set[str]:
    """What this user's consoles have given to guests, without asking anyone."""
    found = _kept(state)
    usual: dict[str, list[str]] = {}
    with contextlib.suppress(RuntimeError):  # no home
        usual = _kept(Path(platformdirs.user_state_path("sandbox-console")))
    return {folder for folders in (*found.values(), *usual.values()) for folder in folders}


def without_guests_programs(path: str, folders: Iterable[str]) -> str:
    """PATH without folders in which guests write: a program found there could be theirs."""
    given = list(folders)
    return os.pathsep.join(one for one in path.split(os.pathsep) if not _lies_in(str(Path(one).absolute()), given))


def _kept(state: Path) -> dict[str, list[str]]:
    try:
        with (state / _FILE).open("rb") as file:
            said = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    if not isinstance(said, dict):
        return {}
    return {str(key): [str(one) for one in found] for key, found in said.items() if isinstance(found, list)}


def _keep(state: Path, found: Mapping[str, Sequence[str]]) -> None:
    fresh = state / f".{_FILE}.{os.getpid()}"
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(found, file)
        fresh.replace(state / _FILE)
    except OSError:  # a state folder that is full or read-only: the backends are asked anyway
        fresh.unlink(missing_ok=True)
