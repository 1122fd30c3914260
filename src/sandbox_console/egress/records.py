"""A gateway's decisions as JSON lines of bounded size: the gateway appends, the console reads and follows.

``records.jsonl`` is the newest file, ``records.1.jsonl`` the one before it and so on.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncGenerator, Iterator
from dataclasses import asdict, fields
from pathlib import Path

from sandbox_console.model.egress import ASKED, EgressRecord

FILE = "records.jsonl"
SIZE = 4 << 20
KEEP = 4
LOOK_S = 0.25
"""Seconds between two looks of the console at the files that it follows."""
_LINE_MOST = 4096
_TIME_MOST = 1e11  # seconds, later than any date that can be shown

_HEAD = 32  # bytes, including the first record's time: a new file may reuse a removed one's inode
_Identity = tuple[int, bytes]
_FIELDS = {item.name for item in fields(EgressRecord)}
_DEFAULTS = {item.name: item.default for item in fields(EgressRecord)}


class Recorder:
    """Appends to the newest file; the folder never holds more than about ``size * keep`` bytes."""

    def __init__(self, folder: Path, size: int = SIZE, keep: int = KEEP) -> None:
        self._folder, self._size, self._keep = folder, size, keep
        self._fd = -1
        self._used = 0
        self.lost = 0

    def write(self, record: EgressRecord) -> None:
        """Append one record. A full disk loses the record, never the connection; ``lost`` counts lost records."""
        line = (json.dumps({k: v for k, v in asdict(record).items() if v != _DEFAULTS[k]}) + "\n").encode()
        try:
            if self._fd < 0 or self._used + len(line) > self._size:
                self._next()
            self._used += os.write(self._fd, line)
        except OSError:
            self.lost += 1

    def _next(self) -> None:
        newest = self._folder / FILE
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            for number in range(self._keep - 1, 0, -1):
                older = path_of(self._folder, number - 1)
                if older.exists():
                    older.replace(path_of(self._folder, number))
        self._fd = os.open(newest, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._used = os.fstat(self._fd).st_size
        if self._used and not _ends_whole(newest):
            self._used += os.write(self._fd, b"\n")  # the writer was killed in the middle of a line

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def path_of(folder: Path, number: int) -> Path:
    """The path of the file that is ``number`` rotations old."""
    return folder / (f"records.{number}.jsonl" if number else FILE)


def read(folder: Path, since: float | None = None) -> Iterator[EgressRecord]:
    """All stored records from ``since`` on (seconds since the epoch), oldest first."""
    return iter(Follower(folder).poll(since))


class Follower:
    """Reads the stored records, then those that have been added since. A rotation in between loses none of them."""

    def __init__(self, folder: Path, keep: int = KEEP) -> None:
        self._folder, self._keep = folder, keep
        self._last: _Identity = (0, b"")
        self._at = 0
        self.more = False
        """Whether the last poll left something unread because it reached ``most``."""

    def poll(self, since: float | None = None, most: int | None = None) -> list[EgressRecord]:
        """Records since the last poll, oldest first. This blocks on small files, so call it in a thread.

        ``most`` is how many bytes of a file are read at a time.
        """
        records: list[EgressRecord] = []
        self.more = False
        for fd, identity in self._files():
            try:
                if not self.more:
                    records += self._rest(fd, identity, most)
            finally:
                os.close(fd)
        return [record for record in records if since is None or record.at >= since]

    def _files(self) -> list[tuple[int, _Identity]]:
        """Open the files that were not read to their end, oldest first.

        All are opened before any is read, so that a rotation cannot move one away.
        """
        found: list[tuple[int, _Identity]] = []
        for number in range(self._keep + 1):
            try:
                fd = os.open(path_of(self._folder, number), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                if number:
                    break
                continue
            what = os.fstat(fd)
            if not stat.S_ISREG(what.st_mode):  # a compromised gateway may put anything here
                os.close(fd)
                continue
            identity = what.st_ino, os.pread(fd, _HEAD, 0)
            if any(identity == other for _, other in found):  # it was rotated in the meantime
                os.close(fd)
                continue
            found.insert(0, (fd, identity))
            if identity == self._last:
                break
        return found

    def _rest(self, fd: int, identity: _Identity, limit: int | None) -> list[EgressRecord]:
        if identity != self._last:
            self._last, self._at = identity, 0
        os.lseek(fd, self._at, os.SEEK_SET)
        data = b""
        while part := os.read(fd, 1 << 20 if limit is None else limit - len(data)):
            data += part
        self.more = len(data) == limit
        whole = data.rfind(b"\n") + 1 or (len(data) if self.more else 0)  # no record is longer than this
        self._at += whole
        return [record for line in data[:whole].splitlines() if (record := parse_record(line)) is not None]


def parse_record(line: bytes) -> EgressRecord | None:
    """One line as a record; None if it is none, such as half a line whose writer was killed."""
    if len(line) > _LINE_MOST:
        return None
    try:
        data = json.loads(line)
        known = {key: value for key, value in data.items() if key in _FIELDS}
        ok = all(_fits(known[key], _DEFAULTS[key], key) for key in known) and known.get("reason") != ASKED
        return EgressRecord(**known) if ok else None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _fits(value: object, default: object, name: str) -> bool:
    if name in ("at", "duration_s"):
        return type(value) in (int, float) and 0 <= value < _TIME_MOST  # type: ignore[operator]
    if name in ("sandbox", "host"):
        return type(value) is str
    if name in ("port", "allowed"):
        return type(value) is (bool if name == "allowed" else int)
    return type(value) is type(default)


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


async def follow(folder: Path, since: float | None, following: bool) -> AsyncGenerator[EgressRecord, None]:
    """The records of a folder, oldest first. With ``following`` it goes on until the folder is removed."""
    reader = Follower(folder)
    while True:
        there = folder.is_dir()
        for record in await asyncio.to_thread(reader.poll, since):
            yield record
        if not following or not there:
            return
        await asyncio.sleep(LOOK_S)
