"""Urgent rows that could not wait for the log's lock, in a file of the session that wrote them.

A console that is stopped (SIGSTOP) while it has the lock writes its row when it goes on, so nobody else may add to the
chain before. What takes something from a sandbox cannot wait for that. It is recorded here, and gets its place in the
chain from whoever has the lock next: this process, or once it has ended, another one.
"""

from __future__ import annotations

import hmac
import os
import threading
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from sandbox_console.audit.anchors import sync_folder
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.rows import Draft
from sandbox_console.hostfs.own_files import read_own

SUFFIX = ".urgent"
FIRST = -1
"""The number of a session's first row."""

_DOMAIN = b"sandbox-console/audit/urgent/1\n"
_MOST_BYTES = 64 << 20
_NOTE_MOST = 256
_NUMBER_MOST = 1 << 24


class Claim:
    """Which of two threads writes something: each may take it, and only the first one gets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take it. Returns whether nobody else had."""
        return self._lock.acquire(blocking=False)

    def taken(self) -> bool:
        """Whether somebody has taken it."""
        return self._lock.locked()


class _Line(Struct, frozen=True):
    number: int
    draft: msgspec.Raw
    mac: str


class UrgentRows:
    """The file of one session. Its rows are numbered -1, -2, ... until they have places in the chain."""

    def __init__(self, path: Path, keys: Keys, noted: range = range(0)) -> None:
        """``noted`` are the numbers of rows that a process which is gone left in the file."""
        self.path = path
        self._keys = keys
        self._guard = threading.Lock()  # rows are put while the journal's own thread waits for the lock
        self._put = 0
        self._places: dict[int, int] = {}
        self._unplaced = noted  # the numbers of rows that have no place yet

    @property
    def waiting(self) -> bool:
        """Whether rows that were put have no place yet."""
        return bool(self._unplaced)

    def missing(self, found: Container[int] = ()) -> int:
        """How many of these rows are not among those that were found."""
        return sum(number not in found for number in self._unplaced)

    def put(self, drafts: Sequence[Draft]) -> list[int]:
        """Write rows, on disk when this returns, and return their numbers. Raises OSError, ValueError."""
        with self._guard:
            numbers = [-self._put - at for at in range(1, len(drafts) + 1)]
            # The second of two belongs to the first, as in `rows.chained`.
            known = [self.placed(draft).ref for draft in drafts]  # the row that it belongs to may have its place
            refs = [ref or (numbers[at - 1] if at else None) for at, ref in enumerate(known)]
            made = [
                structs.replace(draft, ref=ref, at_ns=time.time_ns()) for draft, ref in zip(drafts, refs, strict=True)
            ]
            self._write(b"".join(map(self._line, numbers, made)))
            self._unplaced = range(self._unplaced[0] if self._unplaced else numbers[0], numbers[-1] - 1, -1)
            self._put += len(drafts)
            self._note_unplaced()
            return numbers

    def placed(self, draft: Draft) -> Draft:
        """The draft. If the row that it belongs to had only a number, it now has its place."""
        return structs.replace(draft, ref=self._places.get(draft.ref, draft.ref)) if draft.ref is not None else draft

    @contextmanager
    def taken(self) -> Iterator[tuple[dict[int, Draft], int]]:
        """The rows by their numbers, oldest first, and how many lines no console wrote. None is put meanwhile.

        The file is removed afterwards, unless the block raises. Raises OSError, ValueError.
        """
        with self._guard:
            yield self._read()
            self._unplaced = range(0)
            self._note_unplaced()
            self.path.unlink(missing_ok=True)

    def rows(self) -> dict[int, Draft]:
        """The rows by their numbers, oldest first. They stay. Raises OSError, ValueError."""
        return self._read()[0]

    def note(self, places: Mapping[int, int]) -> None:
        """Note the places that rows got, by their numbers."""
        self._places |= places

    def _note_unplaced(self) -> None:
        """Note in the session's lock which rows are here, so that a file that is removed is missed."""
        text = f" {self._unplaced[0]} {self._unplaced[-1]}" if self._unplaced else ""
        with suppress(OSError):  # it is gone, or the disk is full: this process knows it anyway
            fd = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            with os.fdopen(fd, "r+b") as file:
                pid = file.readline(_NOTE_MOST).strip()
                file.seek(0)
                file.write(pid + b"\n" + text.encode())
                file.truncate()

    def _write(self, lines: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        try:
            size = os.fstat(fd).st_size
            if os.write(fd, lines) != len(lines):
                os.ftruncate(fd, size)
                raise OSError("the row was written in part")
            os.fsync(fd)
            sync_folder(self.path.parent)
        finally:
            os.close(fd)

    def _line(self, number: int, draft: Draft) -> bytes:
        told = msgspec.json.encode(draft)
        return msgspec.json.encode(_Line(number, msgspec.Raw(told), self._mac(number, told))) + b"\n"

    def _mac(self, number: int, row: bytes) -> str:
        return self._keys.mac(_DOMAIN + b"%d\n" % number + row)

    def _read(self) -> tuple[dict[int, Draft], int]:
        try:
            data = read_own(self.path, _MOST_BYTES)
        except FileNotFoundError:
            return {}, 0
        lines = data.split(b"\n")[:-1]  # nobody was told that a last line without an end is on disk
        found: dict[int, Draft] = {}
        for row in filter(None, map(self._parsed, lines)):
            found.setdefault(*row)  # a number is given once, so what comes later was copied here
        return found, len(lines) - len(found)

    def _parsed(self, line: bytes) -> tuple[int, Draft] | None:
        try:
            told = msgspec.json.decode(line, type=_Line)
            if not hmac.compare_digest(told.mac, self._mac(told.number, bytes(told.draft))):
                return None
            draft = msgspec.json.decode(told.draft, type=Draft)
            return (told.number, draft) if self.path.name == draft.session + SUFFIX else None
        except (msgspec.MsgspecError, UnicodeDecodeError, TypeError):
            return None


def noted_in(lock: Path) -> range:
    """The numbers of the rows that a session noted in its lock."""
    try:
        first, last = map(int, read_own(lock, _NOTE_MOST).split()[1:])
    except (OSError, ValueError):
        return range(0)
    return range(first, last - 1, -1) if -_NUMBER_MOST < last <= first < 0 else range(0)


def waiting_in(sessions: Path) -> tuple[int, list[str], list[str]]:
    """How many rows wait in the files of all sessions, which files cannot be read, and where rows are missing."""
    found, unread, missing = 0, list[str](), list[str]()
    files = {path.stem for suffix in (SUFFIX, ".lock") for path in sessions.glob(f"*{suffix}")}
    for path in sorted(sessions / f"{name}{SUFFIX}" for name in files):
        noted = noted_in(path.with_suffix(".lock"))
        try:
            there = read_own(path, _MOST_BYTES).count(b"\n")
        except FileNotFoundError:
            there = 0
        except OSError as error:
            unread.append(f"urgent rows cannot be read in {sessions.name}/{path.name}: {error.strerror}")
            continue
        found += there
        if there < len(noted) and noted_in(path.with_suffix(".lock")) == noted:  # else it has just been moved
            missing.append(
                f"urgent rows are missing in {sessions.name}/{path.name}: {len(noted) - there} of {len(noted)}"
            )
    return found, unread, missing
