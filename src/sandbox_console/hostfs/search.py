"""Opens all files below a folder, one after another, without following links."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sandbox_console.errors import Conflict
from sandbox_console.hostfs.files import open_found, open_regular
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import DEEPEST, Folder, find

Opened = tuple[str, BinaryIO | str]
"""A path with its open file, or with the reason why it could not be opened."""


def files_below(path: str | Path, skip: Path, guest_folders: GuestFolders) -> Iterator[Opened]:
    """Yield a file, or all regular files below a folder except those below ``skip``. Close each file that you get."""
    try:
        with find(path, guest_folders) as found:
            if not found.is_folder:
                yield found.path, os.fdopen(open_found(found), "rb")
                return
            top = found.folder.enter(found.name, guest_folders)
    except (OSError, Conflict) as error:
        yield os.fspath(path), _reason(error)
        return
    yield from _Search(skip, guest_folders).below(top)


class _Search:
    """A depth-first search that keeps a descriptor for each folder on the way."""

    def __init__(self, skip: Path, guest_folders: GuestFolders) -> None:
        self._skip, self._ground = str(skip), guest_folders
        self._levels: list[tuple[Folder, Iterator[str]]] = []

    def below(self, top: Folder) -> Iterator[Opened]:
        try:
            yield from self._entered(top)
            while self._levels:
                folder, names = self._levels[-1]
                name = next(names, None)
                if name is None:
                    self._levels.pop()[0].close()
                else:
                    yield from self._entry(folder, name)
        finally:
            while self._levels:
                self._levels.pop()[0].close()

    def _entry(self, folder: Folder, name: str) -> Iterator[Opened]:
        path = folder.said(name)
        try:
            mode = folder.look(name).st_mode
            if stat.S_ISREG(mode):
                yield path, os.fdopen(open_regular(folder, name), "rb")
            elif stat.S_ISDIR(mode) and path != self._skip:
                if len(self._levels) < DEEPEST:
                    yield from self._entered(folder.enter(name, self._ground))
                else:
                    yield path, f"it lies more than {DEEPEST} folders deep"
        except FileNotFoundError:
            return
        except (OSError, Conflict) as error:
            yield path, _reason(error)

    def _entered(self, folder: Folder) -> Iterator[Opened]:
        names: list[str] = []
        try:
            names = sorted(folder.names())
        except OSError as error:
            yield folder.path, _reason(error)
        self._levels.append((folder, iter(names)))


def _reason(error: OSError | Conflict) -> str:
    return error.message if isinstance(error, Conflict) else error.strerror or type(error).__name__
