"""``audit``: shows and verifies the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_console.cli import json_output
from sandbox_console.cli.audit_export import export, moment_of, ship, stats
from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import moment, moment_ns
from sandbox_console.cli.spec_options import whole
from sandbox_console.errors import Conflict, UsageError
from sandbox_console.hostfs.files import read_small
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.hostfs.walk import folder_at
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditRow, Outcome, Verification

_PEM_MOST = 4096  # the most bytes read of a public key's file; a key has 113
_HEAD = ("ID", "TIME", "ACTOR", "ACTION", "SANDBOX", "OUTCOME", "ERROR")


async def audit(context: Context) -> int:
    """``ls``, ``show``, ``verify``, ``public-key``, ``export``, ``stats`` or ``ship``."""
    verbs = {"ls": _ls, "show": _show, "verify": _verify, "public-key": _public_key, "export": export, "stats": stats,
             "ship": ship}  # fmt: skip
    return await verbs[context.args.what](context)


async def _ls(context: Context) -> int:
    args = context.args
    query = AuditQuery(
        limit=_count(args.limit, "--limit"),
        target=args.target,
        action=args.action,
        outcome=_outcomes(args.outcome),
        actor=args.actor,
        backend=_backend(context),
        text=args.text,
        since=moment_of(context, args.since),
        until=moment_of(context, args.until),
        before_seq=_count(args.before, "--before") if args.before else None,
    )
    async with context.open() as console:
        entries = await console.history(query)
    context.listing(_HEAD, entries, json_output.entry, _row)
    if waiting := sum(not entry.attempt.placed for entry in entries):
        context.say(
            f"note: {waiting} action{'s' * (waiting > 1)} not placed in the log yet: another console keeps its lock"
        )
    return 0


def _backend(context: Context) -> str:
    name, host = context.backend
    if host:
        hint = f"--backend {name} --text {name}/{host}/ finds the actions on that host's sandboxes"
        raise UsageError(f"--backend {name}/{host}: records name the backend, and not its host", hint=hint)
    return name


def _outcomes(text: str) -> str:
    for word in text.split(",") if text else ():
        if word not in set(Outcome):
            raise UsageError(f"--outcome: {word!r} is not one of {', '.join(Outcome)}")
    return text


def _count(text: str, option: str) -> int:
    try:
        number = whole(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if number < 1:
        raise UsageError(f"{option}: {number} is not above 0")
    return number


def _seq(text: str) -> int:
    """An id; negative for a row that waits for its place in the log."""
    return -_count(text[1:], "ID") if text.startswith("-") else _count(text, "ID")


def _row(entry: AuditEntry) -> tuple[str, ...]:
    row = json_output.entry(entry)
    return (
        str(row["id"]),
        moment(row["at_ns"] / 1e9),
        row["actor"],
        row["action"],
        row["name"],
        (row["outcome"] or "in flight") + ("" if row["placed"] else " (not placed)"),
        row["error"],
    )


async def _show(context: Context) -> int:
    async with context.open() as console:
        entry = await console.audit_entry(_seq(context.args.id))
    rows = [entry.attempt, *([entry.end] if entry.end else []), *entry.notes]
    if context.json:
        end = entry.end.as_dict() if entry.end else None
        notes = [note.as_dict() for note in entry.notes]
        context.record({"attempt": entry.attempt.as_dict(), "end": end, "notes": notes})
        return 0
    for row in rows:
        _print_row(context, row)
    return 0


def _print_row(context: Context, row: AuditRow) -> None:
    context.text(f"{row.kind} {row.seq}  {moment_ns(row.at_ns)}  {row.actor}  {row.action}  {row.outcome}".rstrip())
    took = [] if row.dur_us is None else [("took", f"{row.dur_us / 1e6:.3f} s")]
    for key, value in [
        ("target", row.target),
        *took,
        *_flat(row.body),
        ("session", row.session),
        ("hash", row.hash or "not placed in the log yet"),
    ]:
        context.text(f"  {key:<16}  {value}")


def _flat(body: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in body.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            found.append((prefix + key, str(value)))
    return found


async def _public_key(context: Context) -> int:
    async with context.open() as console:
        pem = console.audit_log.public_key()
    if context.json:
        context.record({"public_key": pem.decode()})
    else:
        context.streams.out.write(pem)
    return 0


async def _pem(name: str | None, guest_folders: GuestFolders) -> bytes | None:
    try:
        return await asyncio.to_thread(read_small, name, guest_folders, _PEM_MOST) if name else None
    except OSError as error:
        raise UsageError(f"--public-key: {name} cannot be read: {error.strerror}") from None


def _refuse_guests(option: str, folder: Path, guest_folders: GuestFolders) -> None:
    """Refuse to open a database that a sandbox can change. Raises Conflict."""
    try:
        with folder_at(str(folder), guest_folders) as found:
            root = found.root
    except OSError:  # the walk over the log reports it
        return
    if root is not None:
        raise Conflict(
            f"{option}: {folder} lies in {root.path}, which a sandbox can write",
            hint="copy it to a folder that only you can write",
        )


async def _verify(context: Context) -> int:
    folder, archive = (Path(one) if one else None for one in (context.args.folder, context.args.archive))
    async with context.open() as console:
        guest_folders = await console.ground() if folder or archive or context.args.public_key else NOBODYS
        pem = await _pem(context.args.public_key, guest_folders)
        for option, path in (("--folder", folder), ("--archive", archive)):
            if path:
                await asyncio.to_thread(_refuse_guests, option, path, guest_folders)
        result = await console.audit_log.verify(folder, pem, archive)
    if context.json:
        context.record(verification(result))
    elif result.ok:
        context.text(f"ok: {result.rows} rows, head {result.head or '-'}")
        context.text(f"in flight {result.open_attempts}, unknown {result.unknown}")
        signed = f", the last at {moment(result.anchored_at)}" if result.anchored_at else ""
        context.text(f"segments {result.segments}, anchors {result.anchors}{signed}")
        context.text(f"every byte compared in {result.compared} of {result.segments} segments")
    else:
        where = "" if result.first_bad is None else f" at row {result.first_bad}"
        context.text(f"BROKEN{where}: {result.problem}")
    for limit in result.limits:
        context.say(f"it cannot know: {limit}")
    return 0 if result.ok else 1


def verification(result: Verification) -> dict[str, Any]:
    """The result of a walk over the chain."""
    return {
        "ok": result.ok,
        "rows": result.rows,
        "head": result.head,
        "first_bad": result.first_bad,
        "problem": result.problem,
        "open_attempts": result.open_attempts,
        "unknown": result.unknown,
        "segments": result.segments,
        "segments_compared": result.compared,
        "anchors": result.anchors,
        "anchored_at": result.anchored_at,
        "cannot_know": list(result.limits),
    }
