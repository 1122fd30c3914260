"""Stores which sandboxes are in quarantine: a file for each in the state folder, for all consoles that use it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from sandbox_console.errors import Conflict, ConsoleError
from sandbox_console.hostfs.own_files import DAMAGED, NOT_OURS, read_own, set_aside, write_own
from sandbox_console.model.quarantine import Hold
from sandbox_console.model.sandbox import Sandbox, SandboxRef

REFUSED = frozenset({
    "start", "restart", "resume", "remove", "update", "rename", "exec", "shell", "attach", "forward", "upload", "fork",
    "egress",
})  # fmt: skip
"""Verbs that are denied while a sandbox is held, because they enter it, change it, or remove the evidence."""

_MOST = 1 << 20
_SETTLED_NS = 100_000_000
"""A folder that was changed less than 0.1 s ago may change again without getting another time."""

Stamp = tuple[int, ...]
"""What a file is: every change of a hold gives another one."""


class Holds:
    """The holds in one state folder. What is at a hold's place holds its sandbox, whatever it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with suppress(OSError):  # now, because on a full disk it could not be made
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._seen: tuple[int, int] = (0, 0)
        self._known: dict[str, Hold] = {}

    def get(self, ref: SandboxRef) -> Hold | None:
        """The hold of a sandbox; None if it is not held. Raises ConsoleError if that cannot be known."""
        return self._read(self._path(str(ref)), str(ref))

    def stamp(self, ref: SandboxRef) -> Stamp:
        """What the file of a hold is now; empty if there is none."""
        return _stamp(self._path(str(ref)))

    def put(self, hold: Hold) -> None:
        """Hold a sandbox, on disk when this returns. Raises ConsoleError.

        A damaged hold is kept beside it. On a full disk an empty file holds the sandbox, and the error says so.
        """
        path = self._path(hold.ref)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._keep_damaged(path, hold.ref)
            write_own(path, msgspec.json.encode(hold), sync=True)
            self._sync()
        except OSError as error:
            held = error.errno in (errno.ENOSPC, errno.EDQUOT) and _made_empty(path)
            told = "; the sandbox is held, but its record is empty" if held else ""
            raise ConsoleError(f"the quarantine cannot be kept in {self._folder}: {error.strerror}{told}") from error

    def _keep_damaged(self, path: Path, ref: str) -> None:
        """Give a damaged hold a second name, because a rename would release the sandbox for a moment."""
        hold = self._read(path, ref)
        if hold is not None and hold.damaged:
            for number in range(1, 100):
                with suppress(FileExistsError):
                    os.link(path, path.with_name(f"{path.name}.{DAMAGED}-{number}"), follow_symlinks=False)
                    return

    def drop(self, ref: SandboxRef, stamp: Stamp) -> None:
        """Release a sandbox from the hold with this stamp. Raises ConsoleError; Conflict if it was held again since.

        The caller has the sandbox's lock. A damaged hold is kept under another name.
        """
        path = self._path(str(ref))
        hold = self._read(path, str(ref))
        if _stamp(path) != stamp:
            raise Conflict("it was put into quarantine again meanwhile", hint="try again")
        try:
            if hold is not None and hold.damaged:
                set_aside(path, DAMAGED)
            else:
                path.unlink(missing_ok=True)
            path.with_suffix(".lock").unlink(missing_ok=True)
        except OSError as error:
            raise ConsoleError(f"the quarantine in {self._folder} cannot be ended: {error.strerror}") from error

    def lock(self, ref: SandboxRef) -> int | None:
        """The lock of a sandbox's quarantine, to be closed by the caller; None while another console has it.

        Raises OSError.
        """
        path = self._path(str(ref)).with_suffix(".lock")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), path.lstat()):  # a release has not removed it meanwhile
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def all(self) -> dict[str, Hold]:
        """Every hold by the name of its file. The folder is read only if it has changed."""
        try:
            st = self._folder.stat()
            if (now := (st.st_mtime_ns, st.st_ino)) != self._seen:
                holds = {path.stem: self._read(path, "") for path in sorted(self._folder.glob("*.json"))}
                self._known = {stem: hold for stem, hold in holds.items() if hold is not None}
                self._seen = now if time.time_ns() - st.st_mtime_ns > _SETTLED_NS else (0, 0)
        except (OSError, ConsoleError):  # verbs are refused then; lists are not
            return self._known
        return self._known

    def holding(self, ref: SandboxRef) -> bool:
        """Whether a sandbox is held, as of the last change of the folder."""
        return self._path(str(ref)).stem in self.all()

    def marked(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox with its quarantine, for lists."""
        hold = self.all().get(self._path(str(sandbox.ref)).stem)
        if hold is None:
            return sandbox if not sandbox.quarantine else structs.replace(sandbox, quarantine="")
        return structs.replace(sandbox, quarantine=hold.label)

    def _path(self, ref: str) -> Path:
        return self._folder / f"{hashlib.sha256(ref.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"

    def _sync(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _read(self, path: Path, ref: str) -> Hold | None:
        try:
            hold = msgspec.json.decode(read_own(path, _MOST), type=Hold)
            if self._path(hold.ref) == path:
                return hold
        except FileNotFoundError:
            return None
        except (OSError, *NOT_OURS) as error:
            if isinstance(error, NotADirectoryError) or not os.access(self._folder, os.X_OK):
                hint = f"nothing is changed until it is your folder or gone; see: ls -ld {self._folder}"
                raise ConsoleError(f"the quarantines in {self._folder} cannot be read", hint=hint) from error
        return Hold(ref, "", "unknown", f"{path} is damaged", damaged=True)


def _stamp(path: Path) -> Stamp:
    try:
        st = path.lstat()
    except FileNotFoundError:
        return ()
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def _made_empty(path: Path) -> bool:
    """Whether there is a file now. An empty one needs no block of the disk."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return os.path.lexists(path)
