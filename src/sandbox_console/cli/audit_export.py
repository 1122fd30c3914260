"""``audit export``, ``audit stats`` and ``audit ship``: pass the log on to other programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import BinaryIO

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import moment
from sandbox_console.cli.logs import when
from sandbox_console.cli.spec_options import whole
from sandbox_console.errors import Conflict, ConsoleError, UsageError
from sandbox_console.hostfs.files import NewFile
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.audit import AuditSelection
from sandbox_console.service import Console


def moment_of(context: Context, text: str | None) -> float | None:
    """A time of the command line as seconds since the epoch. Raises UsageError."""
    return None if text is None else when(text, context.now())


async def export(context: Context) -> int:
    """Write the log, oldest row first. An existing file is never overwritten, and a partial one is never left."""
    args = context.args
    try:
        after = whole(args.after)
    except ValueError as error:
        raise UsageError(f"--after: {error}") from None
    if after < 0:
        raise UsageError(f"--after: {after} is below 0")
    select = AuditSelection(after, moment_of(context, args.since), moment_of(context, args.until))
    async with context.open() as console, aclosing(console.audit_log.export(args.format, select)) as blocks:
        await write_out(context, console, blocks)
    return 0


async def write_out(context: Context, console: Console, blocks: AsyncIterator[bytes]) -> None:
    """Write to the new file that ``--output`` names and report the size, or write to stdout without it."""
    path = context.args.output
    if path is None:
        async for block in blocks:
            await context.streams.out.stream(block)
        return
    written = await _to_file(path, blocks, await console.ground())
    context.say(f"{written:,} bytes in {path}")


async def _to_file(path: str, blocks: AsyncIterator[bytes], guest_folders: GuestFolders) -> int:
    """Write a new file of mode 0600, whole or not at all. Returns its size in bytes. Raises Conflict, ConsoleError."""
    try:
        new_file = await asyncio.to_thread(NewFile, path, guest_folders)
    except FileExistsError:
        raise Conflict(f"{path} exists already", hint="name a new file") from None
    except OSError as error:
        raise ConsoleError(f"{path} cannot be written: {error.strerror}") from None
    try:
        written = await _write_all(new_file.file, blocks)
        new_file.keep()
    except BaseException as error:
        new_file.drop()
        if isinstance(error, OSError):
            raise ConsoleError(f"{path} cannot be written: {error.strerror}") from None
        raise
    return written


async def _write_all(file: BinaryIO, blocks: AsyncIterator[bytes]) -> int:
    async for block in blocks:
        await asyncio.to_thread(file.write, block)
    await asyncio.to_thread(file.flush)
    return file.tell()


async def stats(context: Context) -> int:
    """Counts over the whole log."""
    async with context.open() as console:
        audit_stats = await console.audit_log.stats()
    counted = {
        "actions": audit_stats.actions,
        "outcomes": audit_stats.outcomes,
        "actors": audit_stats.actors,
        "backends": audit_stats.backends,
    }
    if context.json:
        data = {
            "rows": audit_stats.rows, "segments": audit_stats.segments, "bytes": audit_stats.bytes,
            "first_at": audit_stats.first_at, "last_at": audit_stats.last_at,
        }  # fmt: skip
        context.record(data | {name: dict(counter.most_common()) for name, counter in counted.items()})
        return 0
    span = (
        f", {moment(audit_stats.first_at)} to {moment(audit_stats.last_at)}"
        if audit_stats.first_at and audit_stats.last_at
        else ""
    )
    segments = f"{audit_stats.segments} segment" + "s" * (audit_stats.segments != 1)
    context.text(f"{audit_stats.rows:,} rows in {segments}, {audit_stats.bytes:,} bytes{span}")
    for name, counter in counted.items():
        context.text(f"{name:<9} " + ", ".join(f"{word or '-'} {count:,}" for word, count in counter.most_common(12)))
    return 0


async def ship(context: Context) -> int:
    """Send new rows to the configured server, with ``--follow`` until Ctrl+C. A server that is away is tried again."""
    async with context.open() as console:
        init = context.args.init
        while True:
            try:
                sent = await console.audit_log.ship(init=init)
                init = False
                context.say(f"{sent:,} rows sent") if sent or not context.args.follow else None
            except ConsoleError as error:
                if not context.args.follow or error.code in ("config", "unsupported", "secret"):
                    raise
                context.say(f"warning: {error.message}; trying again")
            if not context.args.follow:
                return 0
            await asyncio.sleep(console.config.audit.ship.interval_s)
