"""Anchors: signed heads of the chain, kept outside the database so that a cut or rewritten log is noticed.

Each line of the file is a JSON object whose ``mac`` is an HMAC-SHA256, by a key in a 0600 file, over the object's
other fields; ``before`` is the mac of the line before it. Most have a ``sig`` as well, with which a machine without
the key can check them. A copy goes to journald if it runs: anybody who can read the key can forge the file, but only
root can change the journal.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.audit.keys import Keys, PublicKey

_JOURNAL = Path("/run/systemd/journal/socket")
_TAIL = 4096  # more than a line: about 500 bytes
_MOST_TORN = 1024  # bytes that a crash can leave of a line
_DIGITS, _HEX, _WORD = re.compile(rb"[0-9]{1,20}"), re.compile(rb"[0-9a-f]{1,128}"), re.compile(rb"[a-z]{1,20}")

Check = Keys | PublicKey
"""What checks signatures: the key, or on other machines the public key."""


class Anchor(Struct, frozen=True):
    """The log's head at a time: row ``seq`` of ``segment`` has ``hash`` (hex). ``why`` is the reason for writing it.

    ``sig`` is Ed25519 over everything except ``mac`` and itself; empty in the old form, and if one was made just now.
    """

    at_ns: int
    console: str
    segment: int
    seq: int
    hash: str
    why: str
    before: str = ""
    mac: str = ""
    sig: str = ""


class Anchors:
    """The file of anchors. Writers hold the log's lock."""

    def __init__(self, path: Path, key: Path, journal: Path = _JOURNAL) -> None:
        self._path = path
        self.keys = Keys(key)
        self._journal = journal
        self.torn = False  # whether `read` met a part of a line at the end

    def add(self, console: str, segment: int, seq: int, digest: bytes, reason: str, *, sign: bool = False) -> Anchor:
        """Append an anchor, on disk when this returns; ``sign`` gives it a signature as well. Raises OSError."""
        last = self.last()
        anchor = Anchor(time.time_ns(), console, segment, seq, digest.hex(), reason, last.mac if last else "")
        self.keys.make()
        if sign:
            anchor = msgspec.structs.replace(anchor, sig=self.keys.sign(_text(anchor, "mac", "sig")))
        anchor = msgspec.structs.replace(anchor, mac=self.keys.mac(_text(anchor, "mac")))
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            end = _end_of_lines(fd)
            line = _line(anchor) + b"\n"
            os.ftruncate(fd, end)  # a power cut or a full disk may have left a part of a line
            if os.pwrite(fd, line, end) != len(line):
                os.ftruncate(fd, end)
                raise OSError("the anchor was written in part")
            os.fsync(fd)
        finally:
            os.close(fd)
        self._tell_journal(anchor)
        return anchor

    def prepare(self) -> None:
        """Make the key and the file, so that a missing one is known to have been removed. Raises OSError."""
        self.keys.make()
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if (
                os.fstat(fd).st_size == 0
            ):  # both survive a power cut before the first row comes, so that none is reported missing in error
                os.fsync(fd)
                sync_folder(self._path.parent)
        finally:
            os.close(fd)

    def last(self) -> Anchor | None:
        """The newest readable anchor."""
        return next(iter(self._newest()), None)

    def signed_at_ns(self) -> int:
        """When the newest of the signatures near the file's end was made; 0 if there is none."""
        return next((anchor.at_ns for anchor in self._newest() if anchor.sig), 0)

    def read(self, by: Check | None = None) -> tuple[list[Anchor], str]:
        """All valid anchors, and the first problem: a line that was changed, removed or inserted, or is not an anchor.

        With a public key, anchors without a signature are left out, because the key proves nothing about them.
        """
        by = by or self.keys
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return [], ""
        try:
            if isinstance(by, Keys):
                by.load()
        except FileNotFoundError:
            return [], "the anchors' key is missing: they cannot be checked"
        except (OSError, ValueError) as error:
            return [], f"the anchors cannot be checked: {error}"
        anchors: list[Anchor] = []
        before = ""
        *lines, rest = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            anchor = _parsed(line)
            if anchor is None or _line(anchor) != line or not _holds(anchor, by):
                return anchors, f"anchor {number} was changed: its signature is not valid"
            if anchor.before != before:
                return anchors, f"anchor {number} does not follow the one before it: one was taken out or put in"
            before = anchor.mac
            if anchor.sig or isinstance(by, Keys):
                anchors.append(anchor)
        self.torn = self._is_torn(rest, _parsed(lines[-1]) if lines else None, by)
        if rest and not self.torn:
            return anchors, f"{len(rest)} bytes that are no part of an anchor follow the last one"
        return anchors, ""

    def foreign(self) -> int:
        """The number of bytes after the last line that no writer left. Raises OSError, KeyRefused, ValueError."""
        with self._path.open("rb") as file:
            end = _end_of_lines(file.fileno())
            begin = max(0, end - _TAIL)
            lines = os.pread(file.fileno(), end - begin, begin).splitlines()
            rest = os.pread(file.fileno(), _MOST_TORN + 1, end)
            size = os.fstat(file.fileno()).st_size - end
        last = _parsed(lines[-1]) if lines else None
        return size if rest and not self._is_torn(rest, last, self.keys) else 0

    def cut_foreign(self) -> None:
        """Remove what follows the last line. Raises OSError."""
        with self._path.open("r+b") as file:
            file.truncate(_end_of_lines(file.fileno()))

    def _is_torn(self, rest: bytes, last: Anchor | None, by: Check) -> bool:
        """Whether these bytes are what a crash leaves of the line after ``last``: its beginning, then perhaps NULs."""
        begun = rest.rstrip(b"\0")
        if not rest or len(rest) > _MOST_TORN:
            return False
        if not begun.endswith(b"}"):
            return _begins_line(begun, last)
        whole = _parsed(begun)  # only its line feed is missing
        follows = whole is not None and whole.before == (last.mac if last else "")
        return whole is not None and follows and _line(whole) == begun and _holds(whole, by)

    def _newest(self) -> list[Anchor]:
        """The anchors near the file's end, newest first."""
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().split(b"\n")[:-1]  # a line without an end is overwritten
            return [anchor for line in reversed(lines) if (anchor := _parsed(line))]
        return []

    def _tell_journal(self, anchor: Anchor) -> None:
        """Send a copy by journald's native protocol: a datagram of KEY=value lines."""
        fields = {"SYSLOG_IDENTIFIER": "sandbox-console", "PRIORITY": "6", "SANDBOX_CONSOLE_ANCHOR": anchor.mac}
        fields["MESSAGE"] = f"audit anchor: log {anchor.console} row {anchor.seq} hash {anchor.hash}"
        text = "".join(f"{name}={value}\n" for name, value in fields.items()).encode()
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)  # a stuck journal must not delay an action
            sock.sendto(text, str(self._journal))


def sealed_text(fields: dict[str, Any], *without: str) -> bytes:
    """The text of a JSON object that is signed: its other fields, sorted, without spaces."""
    kept = {name: value for name, value in fields.items() if name not in without}
    return json.dumps(kept, separators=(",", ":"), sort_keys=True).encode()


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that a renamed or new entry survives a power cut. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _fields(anchor: Anchor) -> dict[str, Any]:
    """The fields as the line has them: a console of the old form does not know ``sig`` and would refuse the line."""
    fields: dict[str, Any] = msgspec.to_builtins(anchor)
    if not fields["sig"]:
        del fields["sig"]
    return fields


def _text(anchor: Anchor, *without: str) -> bytes:
    return sealed_text(_fields(anchor), *without)


def _line(anchor: Anchor) -> bytes:
    return json.dumps(_fields(anchor), separators=(",", ":")).encode()


def _holds(anchor: Anchor, by: Check) -> bool:
    if isinstance(by, Keys):
        return hmac.compare_digest(by.mac(_text(anchor, "mac")).encode(), anchor.mac.encode())
    return not anchor.sig or by.holds(anchor.sig, _text(anchor, "mac", "sig"))


def _begins_line(text: bytes, last: Anchor | None) -> bool:
    """Whether ``text`` is the beginning of a line that follows ``last``."""
    console = json.dumps(last.console).encode() if last else b'"'
    mac = last.mac.encode() if last else b""
    identity: list[bytes | re.Pattern[bytes]] = [] if last else [_HEX, b'"']
    parts = [
        b'{"at_ns":', _DIGITS, b',"console":' + console, *identity, b',"segment":', _DIGITS,
        b',"seq":', _DIGITS, b',"hash":"', _HEX, b'","why":"', _WORD, b'","before":"' + mac + b'","mac":"', _HEX,
        b'","sig":"', _HEX, b'"',
    ]  # fmt: skip
    for part in parts:
        if not text:
            break
        if isinstance(part, bytes):
            size = len(part) if text.startswith(part) else len(text) if part.startswith(text) else 0
        else:
            match = part.match(text)
            size = match.end() if match else 0
        if not size:
            return False
        text = text[size:]
    return not text


def _end_of_lines(fd: int) -> int:
    """The offset at which the last complete line ends."""
    end = os.fstat(fd).st_size
    while end:
        begin = max(0, end - _TAIL)
        at = os.pread(fd, end - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _parsed(line: bytes) -> Anchor | None:
    try:
        return msgspec.json.decode(line, type=Anchor, strict=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
