"""What is stored about each sandbox, in a folder of its own below the state directory.

``spec.json`` is the console's: the request, its time, and the user id that the sandbox runs as. ``status.json`` is the
supervisor's, always replaced as a whole. ``lock`` is held by the supervisor for as long as it lives, so if the status
says "running" while the lock is free, the sandbox is lost. Nothing here holds a secret's value.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from sandbox_console.backends.bubblewrap.supervise import tree
from sandbox_console.errors import BackendError, InvalidSpec, NotFound
from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec

_MOST_BYTES = 16 << 20  # of a spec or a status: a command may have megabytes of arguments
_BROKEN = (ValueError, LookupError, TypeError, AttributeError, RecursionError)  # what parsing a damaged file raises
_NONE = type(None)
_KINDS = {
    "started_at": (int, float, _NONE), "finished_at": (int, float, _NONE), "exit": (dict, _NONE),
    "pid": (int, _NONE), "supervisor": (int, _NONE), "starts": (int, _NONE), "cgroups": (dict, _NONE),
}  # fmt: skip
"""The types of the fields of a status that the console relies on."""

_LOST_STATES = (Status.STARTING, Status.RUNNING, Status.PAUSED, Status.STOPPING)


def boot_id() -> str:
    """The kernel's id for this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Record(Struct, frozen=True):
    """One sandbox as its folder describes it. ``status`` is its real state, not just what was last written."""

    id: str
    folder: Path
    spec: SandboxSpec
    created_at: float | None  # None if its spec.json is damaged
    uid: int | None
    status: Status = Status.CREATED
    detail: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)


class Damaged(BackendError):
    """A sandbox with damaged or missing files. ``record`` is what is still known."""

    def __init__(self, record: Record, name: str, reason: str) -> None:
        super().__init__(
            f"damaged: {record.folder / name} {reason}",
            hint=f"sandbox-console rm --force {record.id} removes what is left",
        )
        self.record = replace(record, status=Status.LOST, detail=self.message)


class Store:
    """The folders of all sandboxes of one state directory. Its methods block: call them in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Create the state directory, for its owner only. Raises BackendError."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder.stat().st_mode & 0o777 != 0o700:  # a read-only one with the right mode can still be read
                self.folder.chmod(0o700)
        except OSError as error:
            hint = "make it writable, or set SANDBOX_CONSOLE_HOME to a folder of your own"
            raise BackendError(f"the state folder {self.folder} cannot be made: {error.strerror}", hint=hint) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock out other consoles: names and user ids are assigned while this is held. Raises LockTimeout."""
        self.prepare()
        fd = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            file_lock.take(fd, self.folder / ".lock")
            yield
        finally:
            os.close(fd)

    def ids(self) -> list[str]:
        """The ids that exist."""
        try:
            return sorted(path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        except FileNotFoundError:
            return []

    def all(self) -> list[Record]:
        """Every sandbox, except one that is being removed at this moment."""
        found = []
        for identity in self.ids():
            try:
                found.append(self.get(identity))
            except NotFound:
                continue
            except Damaged as error:  # it is shown with what is left, at least its id, and does not hide others
                found.append(error.record)
        return found

    def workspaces(self) -> list[str]:
        """The folder of each sandbox that has one, whatever its state."""
        found = []
        for identity in self.ids():
            with suppress(OSError, ValueError, LookupError, TypeError):
                made = json.loads(read_own(self.folder / identity / "spec.json", _MOST_BYTES))
                found.append(made["spec"].get("workspace"))
        return [one for one in found if isinstance(one, str)]

    def get(self, identity: str) -> Record:
        """One sandbox. Raises NotFound; Damaged if its files cannot be read."""
        folder = self.folder / identity
        if not identity.isalnum():
            raise NotFound(f"no sandbox has the id {identity!r}")
        try:
            made = json.loads(read_own(folder / "spec.json", _MOST_BYTES))
            spec = SandboxSpec.from_dict(made["spec"])
            record = Record(identity, folder, spec, float(made["created_at"]), _uid(made["uid"]))
        except (FileNotFoundError, NotADirectoryError) as error:
            if (folder / "lock").exists():  # every folder has one from the start, and a removal deletes it first
                raise _damaged(folder, "spec.json", "is missing") from error
            raise NotFound(f"no sandbox of bubblewrap has the id {identity!r}") from error
        except (*_BROKEN, InvalidSpec, OSError) as error:
            raise _damaged(folder, "spec.json", _why(error)) from error
        try:
            return _with_status(record)
        except (*_BROKEN, OSError) as error:
            raise Damaged(record, "status.json", _why(error)) from error

    def add(self, spec: SandboxSpec, created_at: float, uid: int | None) -> str:
        """Write a new folder: it appears completely or not at all."""
        identity = secrets.token_hex(6)
        fresh = self.folder / f".new-{identity}"
        try:
            fresh.mkdir(mode=0o700)
            (fresh / "lock").touch(mode=0o600)
            (fresh / "logs").mkdir(mode=0o700)
            self._write(fresh, {"spec": spec.to_dict(), "created_at": created_at, "uid": uid})
            fresh.rename(self.folder / identity)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        return identity

    def change(self, record: Record, spec: SandboxSpec) -> None:
        """Replace a sandbox's spec."""
        self._write(record.folder, {"spec": spec.to_dict(), "created_at": record.created_at, "uid": record.uid})

    @staticmethod
    def _write(folder: Path, made: dict[str, Any]) -> None:
        fresh = folder / "spec.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(made, file)
        fresh.rename(folder / "spec.json")

    def remove(self, record: Record) -> None:
        """Remove a folder: it leaves the list at once, then its files are removed."""
        gone = self.folder / f".gone-{record.id}"
        try:
            record.folder.rename(gone)
        except FileNotFoundError as error:
            raise NotFound(f"{record.spec.name} was already removed") from error
        shutil.rmtree(gone, ignore_errors=True)


def is_supervised(folder: Path) -> bool:
    """Whether a supervisor holds the sandbox's lock."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _raw(folder: Path) -> dict[str, Any]:
    try:
        raw: dict[str, Any] = json.loads(read_own(folder / "status.json", _MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    for name, kinds in _KINDS.items():
        if not isinstance(raw.get(name), kinds):
            raise ValueError(f"{name} is {raw[name]!r}")  # noqa: TRY004 - the file is wrong, not a type here
    return raw


def _uid(value: object) -> int | None:
    if value is None and os.geteuid() != 0:
        return None
    if type(value) is int and value > 0:
        return value
    raise ValueError(f"uid is {value!r}")  # a guest must never be the host's root


def _damaged(folder: Path, name: str, reason: str) -> Damaged:
    """The record of a sandbox whose spec is lost: its status may still name its supervisor and its cgroups."""
    try:
        raw = _raw(folder)
    except (*_BROKEN, OSError):
        raw = {}
    return Damaged(Record(folder.name, folder, SandboxSpec(folder.name), None, None, raw=raw), name, reason)


def _why(error: Exception) -> str:
    return f"cannot be read: {type(error).__name__}: {error}"


def _with_status(record: Record) -> Record:
    raw = _raw(record.folder)
    status = Status(raw.get("status", Status.CREATED))
    detail = raw.get("detail", "")
    if status in _LOST_STATES:
        reason = _lost(record.folder, raw)
        if reason and (again := _raw(record.folder)) != raw:  # it ended between the two checks
            return _with_status(record) if again else record
        status, detail = (Status.LOST, reason) if reason else (status, detail)
    return replace(record, status=status, detail=detail, raw=raw)


def _lost(folder: Path, raw: Mapping[str, Any]) -> str:
    if raw.get("boot_id") != boot_id():
        return "the machine was restarted while it ran"
    if not is_supervised(folder) or tree.started(raw.get("supervisor", 0)) != raw.get("supervisor_start"):
        return f"its supervisor (pid {raw.get('supervisor')}) is gone"
    return ""
