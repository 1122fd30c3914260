"""Unpacks a sandbox's tar on this machine. Even a hostile tar writes nothing outside of its target.

The rules are those of Python's ``tarfile.data_filter`` (PEP 706), which early 3.11 lacks: no absolute path, no way up,
no link out, no device, no setuid, no owner. Everything is created below an open folder and never through a link, so
changes meanwhile cannot redirect it. A file is written elsewhere and moved to its place when it is complete.
"""

from __future__ import annotations

import asyncio
import errno
import tarfile
from collections.abc import Callable
from pathlib import PurePosixPath

from sandbox_console.errors import BackendError, Conflict, ConsoleError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.tar_notes import LEFT_OUT, left_out
from sandbox_console.hostfs.tar_source import TarSource
from sandbox_console.hostfs.tree import Tree
from sandbox_console.hostfs.walk import Location

Target = Callable[[tarfile.TarInfo], Location]
"""Decides where the first member goes, by what the sandbox says it is."""


class Unpacker:
    """Takes the chunks of a tar, which a thread unpacks. ``skipped`` is called for each member that is left out.

    ``origin`` is the path in the guest, so that an absolute link that stays inside is recognised and made relative.
    """

    def __init__(
        self, target: Target, skipped: Callable[[str], None], guest_folders: GuestFolders, origin: str = ""
    ) -> None:
        self._target, self._skipped, self._ground = target, skipped, guest_folders
        self._origin = PurePosixPath(origin) if origin else None
        self._source = TarSource()
        self._task = asyncio.ensure_future(asyncio.to_thread(self._unpack))
        self._top: tuple[str, ...] = ()
        self.files = 0

    async def give(self, chunk: bytes) -> None:
        """Pass bytes on. Raises the error of the unpacking thread."""
        if not await self._source.give(chunk):
            await self._task
            raise ConsoleError("the copy ended early")

    async def finish(self) -> None:
        """End a complete tar. Raises the error of the unpacking thread, and removes an incomplete copy."""
        self._source.end()
        await self._task

    async def abandon(self) -> None:
        """End an incomplete tar and remove the partial copy."""
        self._source.end()
        await asyncio.gather(self._task, return_exceptions=True)

    def _unpack(self) -> None:
        try:
            self._unpack_all()
        except tarfile.TarError as error:
            raise BackendError(f"the copy is incomplete: {error}") from error
        except OSError as error:
            raise ConsoleError(f"{error.filename or 'the copy'} cannot be written: {error.strerror}") from error
        finally:
            self._source.leave()

    def _unpack_all(self) -> None:
        with tarfile.open(fileobj=self._source, mode="r:", errorlevel=1) as tar:  # type: ignore[call-overload]
            first = tar.next()
            if first is None:
                raise BackendError("the copy is empty")
            self._top = _parts(first.name)
            with self._target(first) as target:
                if first.isdir():
                    self._folder(tar, first, target)
                else:
                    self._single(first, target)
                    self._source.need_end()

    def _single(self, first: tarfile.TarInfo, target: Location) -> None:
        if not first.isreg() or first.issparse():
            self._skipped(f"{first.name!r} is a link out of the copy, or not a file")
            return
        with Tree(target.folder, self._ground, fresh=False) as tree:
            tree.file(first, self._source, target.name)
        self.files += 1

    def _folder(self, tar: tarfile.TarFile, first: tarfile.TarInfo, target: Location) -> None:
        """Unpack a folder. A new one appears when it is complete; an existing one is added to."""
        if target.is_folder:
            inner = target.folder.again() if target.name == "." else target.folder.enter(target.name, self._ground)
            with inner, Tree(inner, self._ground, fresh=False) as tree:
                self._members(tar, tree)
                self._source.need_end()
            return
        if target.what is not None:
            raise Conflict(
                f"{target.path} is not a folder, and a folder was to be put there", hint="name another place"
            )
        with Tree.new(target.folder, self._ground) as tree:
            self._members(tar, tree)
            self._source.need_end()
            tree.keep(target.name, first.mode)

    def _members(self, tar: tarfile.TarFile, tree: Tree) -> None:
        for member in tar:
            tar.members.clear()  # type: ignore[attr-defined] # it would keep every member, however many there are
            parts = _parts(member.name, of_root=not self._top)
            below = parts[len(self._top) :]
            if parts[: len(self._top)] != self._top or ".." in parts or not (below or member.isdir()):
                self._skipped(f"{member.name!r} is not below what was asked for")
            elif below:  # otherwise it is the folder itself, which comes first, and last if something was left out
                self._take(member, below, tree)
            else:
                for why in left_out(member.pax_headers.get(LEFT_OUT, "[]")):
                    self._skipped(why)

    def _take(self, member: tarfile.TarInfo, below: tuple[str, ...], tree: Tree) -> None:
        """Unpack one member if it is allowed."""
        name = "/".join(below)
        why = ""
        try:
            if member.isdir():
                tree.folder(name, member.mode)
            elif member.issym():
                target = self._link_target(member.linkname, below)
                why = f"is a link that leads out, to {member.linkname!r}" if target is None else ""
                if target is not None:
                    tree.link(name, target)
            elif member.islnk():
                why = self._hard_link(member, name, tree)
            elif member.isreg() and not member.issparse():
                tree.file(member, self._source, name)
            else:
                why = "is neither a file, a folder nor a link"
        except OSError as error:
            why = _of_place(error)
        except Conflict as error:
            why = f"would be written through what a sandbox planted: {error.message}"
        if why:
            self._skipped(f"{member.name!r} {why}")
        else:
            self.files += 1

    def _hard_link(self, member: tarfile.TarInfo, name: str, tree: Tree) -> str:
        target = _parts(member.linkname, of_root=not self._top)
        inside = target[len(self._top) :]
        if target[: len(self._top)] != self._top or ".." in inside or not inside:
            return f"is a hard link to what is not in the copy, {member.linkname!r}"
        missing = tree.hard_link(name, "/".join(inside))
        return f"is a hard link to what is not in the copy, {member.linkname!r}" if missing else ""

    def _link_target(self, target: str, below: tuple[str, ...]) -> str | None:
        """A link's target if it stays inside: first up, but not above the top, then only down. Otherwise None.

        Down and then up again could lead out, because a folder on the way may be a link, or become one.
        """
        parts = PurePosixPath(target).parts
        if target.startswith("/"):
            inside = self._inside(target)
            return None if inside is None else "/".join([*[".."] * (len(below) - 1), *inside]) or "."
        ups = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
        if ".." in parts[ups:] or ups >= len(below):
            return None
        return target

    def _inside(self, target: str) -> tuple[str, ...] | None:
        """The parts of a guest's absolute path below the top; None if it is not below it."""
        parts, top = PurePosixPath(target).parts, self._origin.parts if self._origin else ("",)
        return parts[len(top) :] if parts[: len(top)] == top and ".." not in parts else None


def _parts(name: str, *, of_root: bool = False) -> tuple[str, ...]:
    """A member's name in parts. If the guest's root is copied (``.`` or ``/``), it may be ``/bin`` or ``bin``."""
    parts = PurePosixPath(name).parts
    return parts[1:] if parts[:1] == ("/",) and (of_root or len(parts) == 1) else parts


_PLACES = {
    errno.ENOENT: "has no folder to be in",
    errno.ENOTDIR: "has no folder to be in",
    errno.ELOOP: "would be written outside, by a link that is there",
    errno.EXDEV: "would be written outside, by a link or a mount that is there",
    errno.EISDIR: "is a file, and a folder is there",
    errno.ENAMETOOLONG: "has a name that is too long here",
}


def _of_place(error: OSError) -> str:
    """Why a member is left out. Raises the error again if the member is not its cause."""
    if error.errno not in _PLACES:
        raise error
    return _PLACES[error.errno]
