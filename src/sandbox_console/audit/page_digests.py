"""A digest of each page of the newest segment, with which changes in bytes that no row uses are noticed, too.

SQLite's files have such bytes: free pages, the space between the rows of a page, counters in the header. Neither the
chain nor `PRAGMA integrity_check` covers them. A console writes the digests when it moves the write-ahead log into the
file. They describe the pages as readers see them after the row that they name, wherever SQLite keeps a page then, so
a later row makes them out of date, and a checkpoint does not. A sealed segment has one digest in its manifest instead.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from sandbox_console.audit import rows, schema
from sandbox_console.audit.anchors import Check, sealed_text
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.rows import Position

HEAD = 1024
"""Bytes before the digests: the head as JSON, spaces, and a line feed."""

SIZE = 32
"""Bytes of a digest, SHA-256."""

MOST = 1 << 30
"""Bytes of the largest segment that is compared, because SQLite hands out its pages in one piece of memory."""

_UNUSED = "whether bytes of {} that no row uses were changed: "
_SECTOR = 512  # bytes that a power cut leaves or takes as a whole

File = tuple[int, int, int]
"""A file's inode, size and time of its last change (ns)."""


class Head(Struct, frozen=True):
    """The digests are those of ``pages`` pages of ``segment`` after row ``seq``, whose hash is ``hash``.

    ``digests`` is SHA-256 of all of them, and ``statistics`` of what `ANALYZE` left in the file, which may change
    without a row. ``file`` is the file at that time: while it is the same, nobody has written to it since.
    """

    console: str
    segment: int
    seq: int
    hash: str
    page_bytes: int
    pages: int
    digests: str
    statistics: str
    file: File
    mac: str = ""

    @property
    def position(self) -> Position:
        """The last row."""
        return self.seq, bytes.fromhex(self.hash)


class Digests(Struct, frozen=True):
    """What the file of digests contains."""

    head: Head
    each: bytes

    def differing(self, content: bytes) -> list[int]:
        """The numbers of the pages that are different in this content of a segment; the first page is 1."""
        there = of_pages(content, self.head.page_bytes)
        count = max(len(there), len(self.each)) // SIZE
        return [
            page + 1
            for page in range(count)
            if there[page * SIZE : (page + 1) * SIZE] != self.each[page * SIZE : (page + 1) * SIZE]
        ]


def file_when_written(path: Path) -> File | None:
    """The segment's file when its digests were written, according to their file, whose MAC is not checked."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError), path.open("rb") as file:
        return msgspec.json.decode(file.read(HEAD), type=Head, strict=True).file
    return None


def read(path: Path, by: Check) -> tuple[Digests | None, str]:
    """The digests, or what is wrong with them; neither if there are none, or only a part as after a power cut.

    With a public key, the MAC is not checked.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror}"
    if len(content) < HEAD or _has_hole(content):
        return None, ""
    changed = f"{path.name} was changed: its signature is not valid"
    try:
        head = msgspec.json.decode(content[:HEAD], type=Head, strict=True)
        if isinstance(by, Keys) and not hmac.compare_digest(head.mac.encode(), by.mac(text_of(head)).encode()):
            return None, changed
    except FileNotFoundError:
        return None, f"{path.name} cannot be checked: the anchors' key is missing"
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError, ValueError):
        return None, changed
    each = content[HEAD:]
    if content[:HEAD] != block(head) or len(each) > head.pages * SIZE:
        return None, changed
    if len(each) < head.pages * SIZE:
        return None, ""
    return (Digests(head, each), "") if hashlib.sha256(each).hexdigest() == head.digests else (None, changed)


def lost(digests: Digests | None, problem: str, digested: int, name: str) -> str:
    """What is wrong with digests as they were read, if the head says that some were written after row ``digested``."""
    if problem or not digested:
        return problem
    if digests is None:
        return f"{name} is gone or cut short: digests were written after row {digested}"
    if digests.head.seq < digested:
        return f"{name} was set back: it is from row {digests.head.seq}, and digests were written after row {digested}"
    return ""


def against_digests(db: sqlite3.Connection, path: Path, noted: Sequence[tuple[Digests | None, str]]) -> tuple[str, str]:
    """Compare the newest segment with its digests, which were read before and after the connection began to read.

    Returns what was changed, or else why it cannot be known; both are empty if no byte was changed. Raises
    sqlite3.Error.
    """
    name = path.name
    digests, problem = noted[-1]
    if problem:
        return problem, ""
    position = rows.head(db)
    same = [one for one, _ in noted if one is not None and one.head.position == position]
    if not same:
        return "", _UNUSED.format(name) + _why_older(digests, position)
    if same[-1].head.statistics != schema.statistics(db):
        return "", _UNUSED.format(name) + "somebody ran ANALYZE after its digests were made"
    content = content_of(db)
    if content is None:
        return "", _UNUSED.format(name) + f"it has more than {MOST >> 20} MiB"
    if pages := same[-1].differing(content):
        more = f" and {len(pages) - 1} more" if len(pages) > 1 else ""
        return f"page {pages[0]} of {name}{more} was changed where it has no row", ""
    return "", _behind_wal(path)


def _behind_wal(path: Path) -> str:
    """Why not every byte was compared, although every page is as it was: readers do not see what a WAL replaces."""
    wal = path.with_name(path.name + "-wal")
    with suppress(OSError):
        if wal.stat().st_size:
            return (
                f"whether bytes that no row uses were changed in {wal.name}, or in the pages of {path.name} that it "
                "replaces; all other pages were compared"
            )
    return ""


def _why_older(digests: Digests | None, position: Position) -> str:
    if digests is None:
        return "there are no digests of its pages; the next console makes them when it closes the log"
    if digests.head.seq >= position[0]:
        return f"the digests of its pages are from row {digests.head.seq}, which it does not have"
    return (
        f"the digests of its pages are from row {digests.head.seq}, and rows up to {position[0]} were added by a "
        "console that is still open, was killed or is older"
    )


def against_manifest(name: str, noted: object, digest: str) -> tuple[str, str]:
    """What a sealed segment's SHA-256 in its manifest (``noted``) and its present one show: a problem, and a note."""
    if noted is None:
        return "", _UNUSED.format(name) + "an older console sealed it, without a digest of the file"
    if not noted or not digest:
        return "", _UNUSED.format(name) + f"it has more than {MOST >> 20} MiB"
    return (f"{name} was changed where it has no row" if noted != digest else ""), ""


def content_of(db: sqlite3.Connection) -> bytes | None:
    """All pages as the connection sees them; None if they are too large.

    Opening the file beside SQLite would take away the locks that this process has on it (fcntl(2)): another console
    could then remove the write-ahead log as the last one.
    """
    [count], [size] = (db.execute(f"PRAGMA page_{name}").fetchone() for name in ("count", "size"))
    return db.serialize() if count * size <= MOST else None


def of_pages(content: bytes, page_bytes: int) -> bytes:
    """The digests of all pages: 35 ms for 32 MiB."""
    view = memoryview(content)
    return b"".join(hashlib.sha256(view[at : at + page_bytes]).digest() for at in range(0, len(content), page_bytes))


def _has_hole(content: bytes) -> bool:
    """Whether a sector was never written, as after a power cut. No flipped bit makes one."""
    return any(not content[at : at + _SECTOR].strip(b"\0") for at in range(0, len(content), _SECTOR))


def text_of(head: Head) -> bytes:
    """What the MAC covers."""
    return sealed_text(msgspec.to_builtins(head), "mac")


def block(head: Head) -> bytes:
    """The head as the file has it."""
    return msgspec.json.encode(head).ljust(HEAD - 1) + b"\n"
