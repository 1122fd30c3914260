"""The names on each host as it last listed them, kept on disk.

A host that does not answer may hold a name. What it held when it did answer, and what was made there since, decides.
One file a host, in the state directory. Where it cannot be read or written, nothing is known, and no verb fails.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from sandbox_console.model.sandbox import Sandbox

Key = tuple[str, str]

ID_PREFIX = 6
"""An id may be given by so many of its first characters, or more."""

_FILE_NAME_MOST = 200


class Named(Struct, frozen=True, array_like=True):
    """A name and its id (empty where it was only asked for), and when that was seen, in seconds since the epoch."""

    name: str
    id: str = ""
    at: float = 0.0

    def fits(self, word: str) -> bool:
        """Whether a word of the command line means it."""
        return self.name == word or (len(word) >= ID_PREFIX and self.id.startswith(word))


class Known(Struct, frozen=True):
    """What is known of one host.

    ``answered_at``: when it last gave its list, 0 for never. ``silent``: it did not answer the last time.
    ``told``: a person was told that it is not there.
    """

    answered_at: float = 0.0
    silent: bool = False
    told: bool = False
    names: tuple[Named, ...] = ()

    def holds(self, word: str) -> bool:
        """Whether it held what the word means, or was asked to make it since."""
        return any(one.fits(word) for one in self.names)

    def excludes(self, word: str) -> bool:
        """Whether it is known not to hold it."""
        return bool(self.answered_at) and not self.holds(word)


class Names:
    """What is known of every host. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._read: dict[Key, Known] = {}

    def of(self, key: Key) -> Known:
        """What is known of a host, as it was on disk when first asked for."""
        if key not in self._read:
            self._read[key] = self._load(key)
        return self._read[key]

    def every(self) -> set[str]:
        """All names of all hosts as they were last seen."""
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.json") if self._folder is not None else ():
                backend, _, host = unquote(path.stem).partition("/")
                self.of((backend, host))
        return {one.name for known in self._read.values() for one in known.names}

    def listed(self, key: Key, sandboxes: Iterable[Sandbox], began: float) -> None:
        """Keep a host's list. What was asked for since the list ``began`` (seconds since the epoch) stays."""
        found = {(one.name, one.ref.id) for one in sandboxes}

        def newer(known: Known) -> Known:
            since = tuple(one for one in known.names if one.at >= began and (one.name, one.id) not in found)
            now = {(one.name, one.id) for one in known.names}
            if known.answered_at and not known.silent and now == found | {(one.name, one.id) for one in since}:
                return known  # a list that tells nothing new is not written again
            names = tuple(Named(*one) for one in sorted(found))
            return Known(began, silent=False, told=known.told, names=names + since)

        self._change(key, newer)

    def asked(self, key: Key, name: str) -> None:
        """Note that a host is asked to make a sandbox of this name, before it is."""
        one = Named(name, "", time.time())
        self._change(key, lambda known: msgspec.structs.replace(known, names=(*known.names, one)))

    def gone(self, key: Key, id: str) -> None:
        """Note that a host has a sandbox no longer, or not by the name it had."""

        def without(known: Known) -> Known:
            names = tuple(one for one in known.names if one.id != id)
            return known if len(names) == len(known.names) else msgspec.structs.replace(known, names=names)

        self._change(key, without)

    def fell_silent(self, key: Key) -> None:
        """Note that a host did not answer."""
        self._change(key, lambda known: known if known.silent else msgspec.structs.replace(known, silent=True))

    def tell_once(self, key: Key) -> bool:
        """Whether a person has yet to be told that a host is not there; from now on they were."""
        first = not self.of(key).told
        if first:
            self._change(key, lambda known: msgspec.structs.replace(known, told=True))
        return first

    def _change(self, key: Key, change: Callable[[Known], Known]) -> None:
        with contextlib.suppress(OSError), self._locked():
            before = self._load(key)
            self._read[key] = after = change(before)
            if after is not before:
                self._save(key, after)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Other consoles of this user change these files too."""
        if self._folder is None:
            yield
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _load(self, key: Key) -> Known:
        if self._folder is None:
            return self._read.get(key, Known())
        try:
            return msgspec.json.decode(self._path(self._folder, key).read_bytes(), type=Known)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return Known()

    def _save(self, key: Key, known: Known) -> None:
        if self._folder is None:
            return
        path = self._path(self._folder, key)
        part = path.with_name(path.name + ".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(known))
        part.replace(path)

    @staticmethod
    def _path(folder: Path, key: Key) -> Path:
        return folder / f"{quote('/'.join(key), safe='')[:_FILE_NAME_MOST]}.json"
