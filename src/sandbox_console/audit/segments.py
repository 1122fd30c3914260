"""Opens and seals segments, makes the next one, and leaves a damaged one behind."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sandbox_console.audit import rows, schema
from sandbox_console.audit.anchors import Anchors, Check, sealed_text, sync_folder
from sandbox_console.audit.keys import Keys, PublicKey
from sandbox_console.audit.layout import PLANTED, Layout
from sandbox_console.audit.page_digests import content_of
from sandbox_console.audit.rows import Position
from sandbox_console.hostfs.own_files import read_own, set_aside

_BESIDE = ("-journal", "-wal", "-shm")  # https://www.sqlite.org/tempfiles.html
_NOTE_MOST = 1 << 20  # bytes of a manifest; ours have a few hundred
_SQLITE_CORRUPT, _SQLITE_NOTADB = 11, 26


def connect(path: Path) -> sqlite3.Connection:
    """A writing connection to an existing segment. Raises sqlite3.Error, AuditUnavailable."""
    db = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, check_same_thread=False)
    try:
        schema.prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A reading connection to an existing segment. Raises sqlite3.Error."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)


def connect_frozen(path: Path) -> sqlite3.Connection:
    """A reading connection that needs no other file beside the segment, for a disk that is too full for one.

    Raises sqlite3.Error if a WAL is left, because it would not see its rows.
    """
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        raise sqlite3.OperationalError("rows wait in the write-ahead log, and there is no room to read it")
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True, isolation_level=None, check_same_thread=False
    )


def make(path: Path, head: schema.Head) -> None:
    """Write a segment's whole file or nothing. A killed process's half-written file is overwritten.

    The file has a write-ahead log from the beginning, so that no segment ever has a rollback journal of ours.
    """
    fresh = path.with_name(path.name + ".new")
    for leftover in (fresh, *(fresh.with_name(fresh.name + end) for end in _BESIDE)):
        leftover.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(fresh, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        schema.create(db, head)
        db.execute("PRAGMA journal_mode = WAL")
    for end in _BESIDE:  # SQLite would take them for this segment's
        with suppress(FileNotFoundError):
            set_aside(path.with_name(path.name + end), PLANTED)
    fresh.rename(path)
    sync_folder(path.parent)


def foreign(path: Path) -> list[Path]:
    """What is beside a segment and was not made by SQLite for it.

    A rollback journal would be played into the segment when it is opened, and no console makes one. A write-ahead log
    may have rows of a killed console, and is none only if it is no file.
    """
    found = [path.with_name(path.name + end) for end in _BESIDE]
    return [one for one in found if os.path.lexists(one) and _is_foreign(one)]


def _is_foreign(path: Path) -> bool:
    try:
        return path.name.endswith("-journal") or not stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def follow_on(db: sqlite3.Connection, layout: Layout, index: int, anchors: Anchors) -> None:
    """Make the segment that follows a sealed one, and the sealed one's manifest."""
    head = schema.head_of(db)
    last, digest = rows.head(db)
    [count] = db.execute("SELECT count(*) FROM record").fetchone()
    carried = sorted(schema.open_attempts(db))
    manifest = {"segment": index, "console": head.console, "first_seq": head.first_seq, "last_seq": last, "rows": count,
            "genesis": head.genesis.hex(), "last_hash": digest.hex(), "sealed_at_ns": time.time_ns(),
            "carried": fingerprint(carried), "sha256": digest_of(db)}  # fmt: skip
    write_signed(layout.manifest(index), manifest, anchors)
    make(layout.segment(index + 1), schema.Head(head.console, index + 1, digest, last + 1, tuple(carried)))


def digest_of(db: sqlite3.Connection) -> str:
    """SHA-256 of a segment's whole file, in hex; empty if it is too large."""
    content = content_of(db)
    return "" if content is None else hashlib.sha256(content).hexdigest()


def fingerprint(carried: Sequence[Sequence[Any]]) -> str:
    """SHA-256 of the attempts that a segment took over from older ones."""
    return hashlib.sha256(json.dumps([list(one) for one in carried]).encode()).hexdigest()


def leave_damaged(layout: Layout, index: int, problem: str, anchors: Anchors) -> None:
    """Leave a damaged segment where it is, and begin the next one at the last anchor or after its last readable row."""
    anchor = anchors.last()
    readable = _readable_place(layout.segment(index))
    last = max(readable[0] if readable else 0, anchor.seq if anchor else 0)
    link = bytes.fromhex(anchor.hash) if anchor else b""
    console = anchor.console if anchor else schema.new_log().console
    note = {"segment": index, "problem": problem, "at_ns": time.time_ns(), "last_seq": last, "link": link.hex(),
            "anchored_seq": anchor.seq if anchor else 0, "console": console}  # fmt: skip
    write_signed(layout.quarantine(index), note, anchors)
    make(layout.segment(index + 1), schema.Head(console, index + 1, link, last + 1))


def is_damage(error: Exception) -> bool:
    """Whether SQLite says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return isinstance(error, UnicodeDecodeError) or code in (_SQLITE_CORRUPT, _SQLITE_NOTADB)


def garbage(db: sqlite3.Connection, path: Path) -> str:
    """The bytes after the last page of a segment's file; empty if there are none.

    With a write-ahead log the file may be shorter than what readers see, but never longer: pages are moved into it from
    the first one, which says how many there are.
    """
    [pages], [page] = db.execute("PRAGMA page_count").fetchone(), db.execute("PRAGMA page_size").fetchone()
    more = path.stat().st_size - pages * page
    return f"{more} bytes that do not belong to it follow its end" if more > 0 else ""


def damage(db: sqlite3.Connection, *, indexes: bool = False) -> str:
    """What SQLite finds wrong with the file; empty if it is sound.

    With ``indexes``, check also that each row is in each of its indexes, which takes 33 to 75 % longer.
    """
    try:
        [found] = db.execute(f"PRAGMA {'integrity' if indexes else 'quick'}_check(1)").fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return str(error)
    return "" if found == "ok" else str(found)


def write_signed(path: Path, manifest: dict[str, Any], anchors: Anchors) -> None:
    """Write a manifest, signed with the anchors' key, as a whole or not at all. Raises OSError."""
    anchors.keys.make()
    manifest = manifest | {"sig": anchors.keys.sign(sealed_text(manifest))}
    text = _rendered(manifest | {"mac": anchors.keys.mac(sealed_text(manifest))})
    fresh = path.with_name(path.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    sync_folder(path.parent)


def read_signed(path: Path, by: Check, *, unsigned: bool = False) -> tuple[dict[str, Any] | None, str]:
    """A manifest, and what is wrong with it; None if there is none.

    ``unsigned`` accepts one of the old form, which has a MAC but no signature, if only the public key is available.
    """
    try:
        text = read_own(path, _NOTE_MOST, follow=True).decode()
        manifest = json.loads(text)
        same = text == _rendered(manifest)
        mac, sig = manifest.pop("mac", ""), manifest.get("sig", "")
        made = by.mac(sealed_text(manifest)) if isinstance(by, Keys) else ""
        manifest.pop("sig", None)
    except FileNotFoundError:
        return None, f"{path.name} cannot be checked: the anchors' key is missing" if path.exists() else ""
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None, f"{path.name} cannot be read"
    holds = made == mac if isinstance(by, Keys) else _by_public_key(manifest, sig, by, unsigned=unsigned)
    if not (same and holds):
        return None, f"{path.name} was changed: its signature is not valid"
    return manifest, ""


def _by_public_key(manifest: dict[str, Any], sig: object, by: PublicKey, *, unsigned: bool) -> bool:
    if not sig:  # anybody may have written it, but it has the right form
        return unsigned and {"rows", "last_seq", "last_hash"} <= manifest.keys() and type(manifest["last_seq"]) is int
    return isinstance(sig, str) and by.holds(sig, sealed_text(manifest))


def _rendered(manifest: dict[str, Any]) -> str:
    return json.dumps(manifest, indent=1) + "\n"


def _readable_place(path: Path) -> Position | None:
    with suppress(sqlite3.Error), closing(connect_to_read(path)) as db:
        return rows.head(db)
    return None
