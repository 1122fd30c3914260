"""Anchors: signed heads of the chain outside the database, so that a cut tail or a rewritten log is seen.

Each line of the file is a JSON object whose ``mac`` is an HMAC-SHA256, by a key in a 0600 file, over the object's
other fields; ``before`` is the mac of the line before it. A copy goes to journald where it runs: whoever can read
the key can forge the file, and only root can change the journal.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

_JOURNAL = Path("/run/systemd/journal/socket")
_TAIL = 4096  # more than a line: about 350 bytes


class Anchor(Struct, frozen=True):
    """The log's head at a time: row ``seq`` of ``segment`` has ``hash`` (hex). ``why`` is what made it be written."""

    at_ns: int
    console: str
    segment: int
    seq: int
    hash: str
    why: str
    before: str = ""
    mac: str = ""


class Anchors:
    """The anchors' file. Writers hold the log's lock."""

    def __init__(self, path: Path, key: Path, journal: Path = _JOURNAL) -> None:
        self._path = path
        self._key_path = key
        self._journal = journal

    def add(self, console: str, segment: int, seq: int, digest: bytes, why: str) -> Anchor:
        """Sign and append an anchor, on disk when this returns. Raises OSError."""
        last = self.last()
        bare = Anchor(time.time_ns(), console, segment, seq, digest.hex(), why, last.mac if last else "")
        made = _signed(bare, self._key(make=True))
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            end = _end_of_lines(fd)
            line = json.dumps(msgspec.to_builtins(made), separators=(",", ":")).encode() + b"\n"
            os.ftruncate(fd, end)  # a power cut or a full disk may have left a part of a line
            if os.pwrite(fd, line, end) != len(line):
                os.ftruncate(fd, end)
                raise OSError("the anchor was written in part")
            os.fsync(fd)
        finally:
            os.close(fd)
        self._tell_journal(made)
        return made

    def prepare(self) -> None:
        """Make the key and the file, so that a missing one is known to have been taken. Raises OSError."""
        self._key(make=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size == 0:  # no row comes before both survive a power cut: none is missed in error
                os.fsync(fd)
                sync_folder(self._path.parent)
        finally:
            os.close(fd)

    def key(self) -> bytes:
        """The key that is there. Raises OSError, ValueError for one that is none."""
        return self._key(make=False)

    def last(self) -> Anchor | None:
        """The newest anchor that can be read."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            for line in reversed(file.read().splitlines()):
                if found := _parsed(line):
                    return found
        return None

    def read(self) -> tuple[list[Anchor], str]:
        """All anchors that hold, and the first problem: a line that was changed, taken out or put in."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return [], ""
        try:
            key = self._key(make=False)
        except FileNotFoundError:
            return [], "the anchors' key is missing: they cannot be checked"
        held: list[Anchor] = []
        lines = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            if number == len(lines):
                break  # nothing, or what was being written when its writer died
            found = _parsed(line)
            if found is None or not hmac.compare_digest(_signed(found, key).mac, found.mac):
                return held, f"anchor {number} was changed: its signature does not hold"
            if found.before != (held[-1].mac if held else ""):
                return held, f"anchor {number} does not follow the one before it: one was taken out or put in"
            held.append(found)
        return held, ""

    def _key(self, *, make: bool) -> bytes:
        if make:
            with suppress(FileExistsError):
                fd = os.open(self._key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(fd, "w") as file:
                    file.write(secrets.token_hex(32))
                    file.flush()
                    os.fsync(file.fileno())
        return bytes.fromhex(self._key_path.read_text())

    def _tell_journal(self, made: Anchor) -> None:
        """By journald's native protocol: a datagram of KEY=value lines."""
        fields = {"SYSLOG_IDENTIFIER": "sandbox-console", "PRIORITY": "6", "SANDBOX_CONSOLE_ANCHOR": made.mac}
        fields["MESSAGE"] = f"audit anchor: log {made.console} row {made.seq} hash {made.hash}"
        text = "".join(f"{name}={value}\n" for name, value in fields.items()).encode()
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)  # a stuck journal must not hold an action up
            sock.sendto(text, str(self._journal))


def _signed(anchor: Anchor, key: bytes) -> Anchor:
    fields = msgspec.to_builtins(anchor)
    del fields["mac"]
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    return Anchor(**fields, mac=hmac.new(key, text, hashlib.sha256).hexdigest())


def sign(fields: dict[str, Any], anchors: Anchors, *, make: bool = False) -> str:
    """A signature by the anchors' key over other data: a manifest. ``make``: a key where there is none.

    Raises OSError.
    """
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()
    return hmac.new(anchors._key(make=make), text, hashlib.sha256).hexdigest()  # noqa: SLF001 - the same module's key


def sync_folder(folder: Path) -> None:
    """Have a rename or a new name survive a power cut. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _end_of_lines(fd: int) -> int:
    """Where the last whole line ends."""
    size = os.fstat(fd).st_size
    begin = max(0, size - _TAIL)
    return begin + os.pread(fd, _TAIL, begin).rfind(b"\n") + 1


def _parsed(line: bytes) -> Anchor | None:
    try:
        return Anchor(**json.loads(line))
    except (ValueError, TypeError):
        return None
