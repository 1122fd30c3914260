"""The head: a copy of the last row and the newest anchor, written next to the database after each append.

It needs no sync: after a power cut it may be older than the database, but never newer. So a log that ends before its
head has been cut, and so have anchors that end before the one that the head names. Digests of the pages that are older
than the head says were set back. It contains a MAC made with the log's key.
"""

from __future__ import annotations

import hmac
import json
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox_console.audit.anchors import sync_folder
from sandbox_console.audit.keys import Keys

SIZE = 512
"""Bytes: one sector, so that a power cut leaves either the older head or this one."""


class Head(Struct, frozen=True, omit_defaults=True):
    """Row ``seq`` of ``segment`` is the last one and has ``hash`` (hex); ``anchored`` is the newest anchor's row.

    ``digested`` is the row after which the digests of the pages were written; 0 if they never were.
    """

    console: str
    segment: int
    seq: int
    hash: str
    anchored: int
    mac: str = ""
    digested: int = 0


class HeadFile:
    """The head's file. Writers hold the log's lock. ``last`` is what this process last read or wrote."""

    def __init__(self, path: Path, keys: Keys) -> None:
        self.path = path
        self._keys = keys
        self._raw = b""

    def prepare(self) -> None:
        """Create the file if it is missing, on disk when this returns. Raises OSError."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(fd).st_size == 0:
                os.pwrite(fd, _block(self._signed(Head("", 0, 0, "", 0))), 0)
                os.fsync(fd)
                sync_folder(self.path.parent)
        finally:
            os.close(fd)

    def write(self, head: Head) -> None:
        """Write the head in place, with its MAC. Raises OSError if the file is gone."""
        raw = _block(self._signed(head))
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.pwrite(fd, raw, 0)
        finally:
            os.close(fd)
        self._raw = raw

    def changed(self) -> bool:
        """Whether another console or somebody else has written the file since this process did."""
        return self._content() != self._raw

    def read(self) -> tuple[Head | None, str]:
        """The head, or what is wrong with it; None and an empty text if there is no head."""
        raw = self._content()
        if not raw and not self.path.exists():
            return None, ""
        try:
            head = msgspec.json.decode(raw, type=Head, strict=True)
            self._keys.load()
        except FileNotFoundError:
            return None, f"{self.path.name} cannot be checked: the anchors' key is missing"
        except (msgspec.MsgspecError, UnicodeDecodeError, OSError, ValueError) as error:
            return None, f"{self.path.name} cannot be read: {error}"
        if not hmac.compare_digest(raw, _block(self._signed(head))):
            return None, f"{self.path.name} was changed: its signature is not valid"
        self._raw = raw
        return head, ""

    def _content(self) -> bytes:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return b""
        try:
            return os.pread(fd, SIZE + 1, 0)
        finally:
            os.close(fd)

    def _signed(self, head: Head) -> Head:
        values: list[object] = [head.console, head.segment, head.seq, head.hash, head.anchored]
        values += [head.digested] if head.digested else []  # a head that an older console wrote has none
        text = json.dumps(values, separators=(",", ":"))
        return msgspec.structs.replace(head, mac=self._keys.of_head(text.encode()))


def _block(head: Head) -> bytes:
    return msgspec.json.encode(head).ljust(SIZE - 1) + b"\n"
