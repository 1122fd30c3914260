"""Summaries of sealed segments: which blocks may contain a text. They are a cache for the filter, not evidence.

A summary can be lost at any time. It is used only if its signature by the anchors' key is valid and the segment's file
is the one that was summarised, to the nanosecond of its last change. Otherwise every row is read.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox_console.audit import rows, schema, segments, text_index
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout

BLOCK = 1024
"""Rows of a block, with 8 bytes of summary for each."""

_DOMAIN = b"sandbox-console/audit/grams/2\n"
_MAC = 32
_TICK_S = 0.02
"""Longer than a tick of the kernel's clock for file times, which is 10 ms at HZ=100."""

_ROOM = 64 * 1024 * 1024  # a disk with less space has none for a cache

SEARCHED = ("target", "body", "action")
"""The columns that a filter by text searches."""

Span = tuple[int, int]
"""The first and the last seq of rows to read."""


class _Head(Struct, frozen=True):
    """What a summary describes: the segment's rows, and its file at that time."""

    console: str
    segment: int
    first_seq: int
    last_seq: int
    last_hash: str
    file: tuple[int, ...]


def spans(layout: Layout, index: int, text: str) -> list[Span] | None:
    """The spans of a segment where the text may be, newest first; None if every row must be read."""
    wanted = text_index.wanted(text)
    found = _read(layout, index) if wanted else None
    if found is None:
        return None
    first, last, bits = found
    joined_spans: list[Span] = []
    for number, begin in enumerate(range(first, last + 1, BLOCK)):
        if text_index.may_have(bits, wanted, number * text_index.SIZE):
            joined = bool(joined_spans) and joined_spans[-1][1] == begin - 1
            joined_spans.append((joined_spans.pop()[0] if joined else begin, min(begin + BLOCK - 1, last)))
    return joined_spans[::-1]


def there(layout: Layout, index: int) -> bool:
    """Whether a segment has a valid summary."""
    return _read(layout, index) is not None


def build(layout: Layout, index: int, stop: Callable[[], bool] = lambda: False) -> bool:
    """Summarise a sealed segment, 32 MiB in half a second. Returns whether it did. ``stop`` ends it between blocks.

    No writer has to wait, as a sealed segment does not change. If two processes build one summary, one of them leaves
    it to the other. Raises OSError, sqlite3.Error.
    """
    path = layout.summary(index)
    fresh = path.with_name(path.name + ".new")
    if _room(layout) < _ROOM:
        return False
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            content = _made(layout, index, stop)
            if content is not None:
                file.truncate(0)
                file.write(content)
                file.flush()
                fresh.rename(path)
        finally:
            fresh.unlink(missing_ok=True)
    return content is not None


def _made(layout: Layout, index: int, stop: Callable[[], bool]) -> bytes | None:
    path = layout.segment(index)
    before = _file(path)
    if before is None:
        return None
    time.sleep(_TICK_S)  # two changes within one tick have the same time
    with closing(segments.connect_frozen(path)) as db:
        if not schema.sealed(db):
            return None
        begin, (last, digest) = schema.head_of(db), rows.head(db)
        head = _Head(begin.console, index, begin.first_seq, last, digest.hex(), before)
        blocks: list[bytes] = []
        db.text_factory = bytes
        for first in range(begin.first_seq, last + 1, BLOCK):
            if stop():
                return None
            blocks.append(text_index.bits(_texts(db, first)))
    if _file(path) != before:
        return None
    body = json.dumps(msgspec.to_builtins(head)).encode() + b"\n" + b"".join(blocks)
    return body + _mac(layout, body)


def _texts(db: sqlite3.Connection, first: int) -> bytes:
    sql = f"SELECT {', '.join(SEARCHED)} FROM record WHERE kind = 'attempt' AND seq BETWEEN ? AND ?"  # noqa: S608
    found = db.execute(sql, (first, first + BLOCK - 1))
    return b"\0".join([text for row in found for text in row])


def _read(layout: Layout, index: int) -> tuple[int, int, memoryview] | None:
    """The first and last row of a valid summary, and its blocks' bits."""
    try:
        content = layout.summary(index).read_bytes()
        signed = memoryview(content)[:-_MAC]  # copying would take as long as the signature
        if not hmac.compare_digest(_mac(layout, signed), content[-_MAC:]):
            return None
        end = content.index(b"\n")
        head = json.loads(content[:end])
        same = (head["segment"], tuple(head["file"])) == (index, _file(layout.segment(index)))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (head["first_seq"], head["last_seq"], signed[end + 1 :]) if same else None


def _file(path: Path) -> tuple[int, ...] | None:
    """The file's identity and state (its ctime cannot be set back); None while there is a WAL."""
    with suppress(FileNotFoundError):
        if path.with_name(path.name + "-wal").stat().st_size:
            return None
    st = path.stat()
    return (st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)


def _room(layout: Layout) -> int:
    found = os.statvfs(layout.folder)
    return found.f_bavail * found.f_frsize


def _mac(layout: Layout, content: bytes | memoryview) -> bytes:
    mac = hmac.new(Keys(layout.key).secret(), _DOMAIN, hashlib.sha256)
    mac.update(content)
    return mac.digest()
