"""Reads the settings of this machine's tools, but none that a guest or another user may have written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from sandbox_console.errors import Conflict
from sandbox_console.hostfs.files import open_regular
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.hostfs.walk import find, folder_at
from sandbox_console.model import hosts

_MOST_BYTES = 1 << 20
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Machine(Struct, frozen=True):
    """Where tools look for their settings.

    ``guest_folders`` and ``workspaces`` are folders that sandboxes can write, or will be able to. ``etc`` has the
    settings of all users. ``packages`` and ``library`` are where the console's own Python has its packages and its
    standard library. ``image`` is the folder of a ``dir:`` image, which has an apt of its own.
    """

    env: Mapping[str, str]
    home: Path
    etc: Path = Path("/etc")
    programs: tuple[Path, ...] = (Path("/usr"), Path("/usr/local"))
    packages: tuple[Path, ...] = ()
    library: Path | None = None
    guest_folders: GuestFolders = NOBODYS
    workspaces: tuple[str, ...] = ()
    image: str = ""

    def text(self, path: Path) -> str:
        """What a file says. Raises OSError; Conflict, with the reason, for one that is not to be followed."""
        if not path.is_absolute():
            raise Conflict(f"{path} is not read: it is not an absolute path")
        with find(path, self.guest_folders) as found:
            real = Path(found.path)
            within = found.folder.root.path if found.folder.root else self._workspace(real)
            if within:
                raise Conflict(f"{path} is not read: it is in {within}, where a sandbox can write")
            if reason := another_hand(path):
                raise Conflict(f"{path} is not read: {reason}")
            return _read(open_regular(found.folder, found.name), path)

    def _workspace(self, real: Path) -> str:
        return next((one for one in self.workspaces if real.is_relative_to(Path(one).resolve())), "")

    def text_of_image(self, name: str) -> str:
        """What a file of the image says. No link in the image is followed. Raises OSError, Conflict."""
        with folder_at(self.image, self.guest_folders) as folder:
            if folder.root is not None:
                raise Conflict(f"{self.image} is not read: it is in {folder.root.path}, where a sandbox can write")
            return _read(folder.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), Path(name))

    def names_in_image(self, name: str) -> list[str]:
        """The names in a folder of the image. Raises OSError, Conflict."""
        with folder_at(self.image, self.guest_folders) as folder, folder.enter(name, self.guest_folders) as inner:
            return inner.names()

    def config_home(self) -> Path:
        """Where a user's settings are, by the XDG base directories."""
        named = self.env.get("XDG_CONFIG_HOME", "")
        return Path(named) if named.startswith("/") else self.home / ".config"

    def installed(self, program: str) -> Iterator[Path]:
        """Where a program that is on PATH really is, nearest first."""
        for folder in self.env.get("PATH", "").split(":"):
            path = Path(folder, program)
            if path.is_absolute() and path.is_file():
                yield path.resolve()


class Site(Struct, frozen=True):
    """Where packages come from: host patterns, and what says so. ``problem`` is why there is none."""

    hosts: tuple[str, ...] = ()
    source: str = ""
    problem: str = ""


class Learning:
    """Collects the hosts of one tool, with where each was found and what could not be used."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hosts: dict[str, None] = {}
        self._origins: dict[str, None] = {}
        self._notes: dict[str, None] = {}

    def read(self, path: Path) -> str:
        """What a file of settings says; empty if it is not there, or not to be followed, which is noted."""
        return self._text(str(path), lambda: self.machine.text(path))

    def read_image(self, name: str) -> str:
        """What a file of the image says, as ``read`` does for a file of this machine."""
        return self._text(f"/{name} of the image", lambda: self.machine.text_of_image(name))

    def _text(self, origin: str, read: Callable[[], str]) -> str:
        try:
            return read()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError as error:
            self.note(f"{origin} cannot be read: {error.strerror}")
        except Conflict as error:
            self.note(error.message)
        return ""

    def note(self, text: str) -> None:
        """Keep something that the user should know."""
        self._notes[text] = None

    def add(self, url: str, origin: str) -> str:
        """Add the host of a URL, and return its pattern. What is no URL is noted, without showing it."""
        try:
            pattern = pattern_of(url)
        except ValueError:
            self.note(f"{origin} has an address that is no URL with a host")
            return ""
        self.hosts[pattern] = None
        self._origins[origin] = None
        return pattern

    def site(self, unknown: str) -> Site:
        """What was found. ``unknown`` is the reason if there is nothing else to say."""
        notes = "; ".join(self._notes)
        if not self.hosts:
            return Site(problem=notes or unknown)
        source = f"from {', '.join(self._origins)}"
        return Site(tuple(self.hosts), f"{source}; {notes}" if notes else source)


def pattern_of(url: str) -> str:
    """The egress pattern for the host of an http URL, without its user and password. Raises ValueError."""
    parts = urlsplit(url.strip())
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("it is no http URL with a host")
    if re.search(r"[^/]@", parts.path):  # a password with a slash in it: what looks like the host is the user
        raise ValueError("it has a user with a slash")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = parts.port is None or parts.port in _DEFAULT_PORTS.values()
    pattern = name if usual else f"{name}:{parts.port}"
    hosts.parse(pattern, allow_ip=True)
    return pattern


def _read(fd: int, path: Path) -> str:
    with os.fdopen(fd, "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise Conflict(f"{path} is not read: it is longer than 1 MiB")
    return data.decode(errors="replace")
