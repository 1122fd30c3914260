"""Stores the names on each host as it last listed them.

A host that does not answer may have a name if it had it when it last answered, or if it was created there since. There
is one file for each host in the state folder. If it cannot be used, nothing is known, but no verb fails.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec
from msgspec import Struct

from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.file_lock import LockTimeout
from sandbox_console.hostfs.own_files import load_own, write_own
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import MADE_BY

Key = tuple[str, str]

ID_PREFIX = 6
"""The fewest characters by which an id may be abbreviated."""

_FILE_NAME_MOST = 200
_MOST_BYTES = 64 << 20
"""Of a host's file: a name takes about 100 bytes."""


LOCK_S = 1.0
"""How long to wait for another console that is changing what is known. After that, the change is not stored."""


class Named(Struct, frozen=True, array_like=True, order=True):
    """A name and its id (empty if it was only requested), and when that was seen, in seconds since the epoch.

    ``file`` is the value of its label if ``up`` made it. Lists stored by earlier versions have no ``image``.
    """

    name: str
    id: str = ""
    at: float = 0.0
    file: str = ""
    image: str = ""
    managed: bool = True

    def fits(self, word: str) -> bool:
        """Whether a word of the command line refers to it."""
        return self.name == word or (len(word) >= ID_PREFIX and self.id.startswith(word))


class Known(Struct, frozen=True):
    """What is known about one host.

    ``answered_at`` is when it last returned a list that differed, 0 for never. ``silent`` means that it did not answer
    last time, and ``silent_since`` when that, or that it refused, was first noticed, in seconds since the epoch.
    ``reported`` means that it has been reported that the host does not exist. ``files`` means that the names have their
    files, which lists stored by earlier versions have not.
    """

    answered_at: float = 0.0
    silent: bool = False
    reported: bool = False
    names: tuple[Named, ...] = ()
    files: bool = False
    silent_since: float = 0.0

    def holds(self, word: str) -> bool:
        """Whether it had what the word refers to, or its creation was requested since."""
        return any(one.fits(word) for one in self.names)

    def excludes(self, word: str) -> bool:
        """Whether it is known not to have it."""
        return bool(self.answered_at) and not self.holds(word)

    def made_by(self, file: str) -> list[str]:
        """The names of the sandboxes that ``up`` made of a file, of which it had some or was asked for."""
        return [one.name for one in self.names if one.file == file]

    def sandboxes(self, place: SandboxRef) -> list[Sandbox]:
        """What it listed the last time that it answered, as sandboxes in an unknown state. ``place`` has its names."""
        detail = time.strftime("silent since %Y-%m-%dT%H:%M:%SZ", time.gmtime(self.silent_since))
        return [
            Sandbox(msgspec.structs.replace(place, id=one.id), one.name, Status.UNKNOWN, one.image, managed=one.managed,
                    detail=detail)
            for one in self.names if one.id
        ]  # fmt: skip

    def excludes_file(self, file: str) -> bool:
        """Whether it is known to have no sandbox that ``up`` made of a file."""
        return bool(self.answered_at) and self.files and not self.made_by(file)


class KnownNames:
    """What is known about every host. Without a folder nothing is stored."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._read: dict[Key, Known] = {}

    def of(self, key: Key) -> Known:
        """What is known about a host, as it was on disk at the first read."""
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
        """Store a host's list. Names requested since the list ``began`` (seconds since the epoch) stay."""
        names = tuple(sorted({_named(one) for one in sandboxes}))
        found = {(one.name, one.id) for one in names}

        def newer(known: Known) -> Known:
            since = tuple(one for one in known.names if one.at >= began and (one.name, one.id) not in found)
            fresh = Known(began, reported=known.reported, names=names + since, files=True)
            same = {_key(one) for one in known.names} == {_key(one) for one in fresh.names}
            if same and known.answered_at and known.files and not (known.silent or known.silent_since):
                return known  # a list without anything new is not written again
            return fresh

        self._change(key, newer)

    def asked(self, key: Key, name: str, file: str = "") -> None:
        """Note that a sandbox of this name, made by ``up`` of a file or not, is about to be requested from a host."""
        one = Named(name, "", time.time(), file)
        self._change(key, lambda known: msgspec.structs.replace(known, names=(*known.names, one)))

    def gone(self, key: Key, id: str) -> None:
        """Note that a host no longer has a sandbox, or no longer under this name."""

        def without(known: Known) -> Known:
            names = tuple(one for one in known.names if one.id != id)
            return known if len(names) == len(known.names) else msgspec.structs.replace(known, names=names)

        self._change(key, without)

    def fell_silent(self, key: Key) -> None:
        """Note that a host did not answer."""

        def silent(known: Known) -> Known:
            return known if known.silent else msgspec.structs.replace(known, silent=True, silent_since=time.time())

        self._change(key, silent)

    def went_away(self, key: Key) -> None:
        """Note that a host which had a list refuses, as its engine has ended."""

        def away(known: Known) -> Known:
            noted = known.silent_since or not known.answered_at
            return known if noted else msgspec.structs.replace(known, silent_since=time.time())

        if self.of(key).answered_at:
            self._change(key, away)

    def answers(self, key: Key) -> None:
        """Note that a host answered again, though not with its list."""
        if self.of(key).silent:
            self._change(key, lambda known: msgspec.structs.replace(known, silent=False, silent_since=0.0))

    def tell_once(self, key: Key) -> bool:
        """Whether it has yet to be reported that a host does not exist. From now on it counts as reported."""
        first = not self.of(key).reported
        if first:
            self._change(key, lambda known: msgspec.structs.replace(known, reported=True))
        return first

    def _change(self, key: Key, change: Callable[[Known], Known]) -> None:
        with contextlib.suppress(OSError, LockTimeout), self._locked():
            before = self._load(key)
            self._read[key] = after = change(before)
            if after is not before:
                self._save(key, after)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock, as other consoles of this user change these files too.

        Raises OSError; LockTimeout if one keeps it for LOCK_S, as a console that was stopped (SIGSTOP) does.
        """
        if self._folder is None:
            yield
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / "lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            file_lock.take(fd, path, LOCK_S)
            yield
        finally:
            os.close(fd)

    def _load(self, key: Key) -> Known:
        if self._folder is None:
            return self._read.get(key, Known())
        decode = msgspec.json.Decoder(Known).decode
        return load_own(self._path(self._folder, key), _MOST_BYTES, decode) or Known()

    def _save(self, key: Key, known: Known) -> None:
        if self._folder is None:
            return
        write_own(self._path(self._folder, key), msgspec.json.encode(known))

    @staticmethod
    def _path(folder: Path, key: Key) -> Path:
        return folder / f"{quote('/'.join(key), safe='')[:_FILE_NAME_MOST]}.json"


def _named(sandbox: Sandbox) -> Named:
    file = sandbox.labels.get(MADE_BY, "") if sandbox.managed else ""
    return Named(sandbox.name, sandbox.ref.id, file=file, image=sandbox.image, managed=sandbox.managed)


def _key(one: Named) -> tuple[str, str, str]:
    return one.name, one.id, one.file
