"""``recordings``: list, play, search and export recorded shells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from sandbox_console.cli.audit_export import write_out
from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration, moment, size
from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.errors import UsageError
from sandbox_console.hostfs.own_files import open_own
from sandbox_console.model.recording import Recording
from sandbox_console.model.text import clean
from sandbox_console.service import Console

_BLOCK = 1 << 20
_HEAD = ("ID", "SANDBOX", "BEGAN", "LASTED", "SIZE", "ACTOR", "AUDIT", "CHECK")


async def recordings(context: Context) -> int:
    """``ls``, ``play``, ``search`` or ``export``."""
    return await {"ls": _ls, "play": _play, "search": _search, "export": _export}[context.args.what](context)


async def _ls(context: Context) -> int:
    async with context.open() as console:
        recordings = await console.recordings.list()
    context.listing(_HEAD, recordings, _data, _row)
    return 0


async def _play(context: Context) -> int:
    """Play a recording on a terminal. Its codes pass the same filter as those of a live shell."""
    args, out = context.args, context.streams.out
    if not out.tty:
        raise UsageError("playing needs a terminal", hint=f"recordings export {args.id} --format text")
    speed, longest = _above(args.speed, "--speed"), _above(args.idle, "--idle")
    screen = ScreenFilter()
    async with context.open() as console:
        before = 0.0
        try:
            async for at, kind, text in console.recordings.events(args.id):
                if kind == "o":
                    await asyncio.sleep(min(max(0.0, at - before), longest) / speed)
                    before = at
                    await out.stream(screen.feed(text.encode("utf-8", "replace")))
        finally:
            out.write(screen.restore())
    return 0


async def _search(context: Context) -> int:
    if not context.args.text:
        raise UsageError("there is nothing to look for")
    count = 0
    async with context.open() as console:
        async for found in console.recordings.search(context.args.text):
            count += 1
            if context.json:
                data = {"id": found.recording.id, "name": found.recording.name, "at_s": found.at_s, "line": found.line}
                context.record(data)
            else:
                context.text(f"{found.recording.id}  {found.recording.name}  {found.at_s:8.1f} s  {found.line}")
    return 0 if count else 1


async def _export(context: Context) -> int:
    args = context.args
    if args.format not in ("cast", "text"):
        raise UsageError(f"no format is called {args.format!r}", hint="there is: cast, text")
    async with context.open() as console:
        blocks = _file(console.recordings.path(args.id)) if args.format == "cast" else _lines(console, args.id)
        await write_out(context, console, blocks)
    return 0


async def _file(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(open_own, path) as file:
        while block := await asyncio.to_thread(file.read, _BLOCK):
            yield block


async def _lines(console: Console, id_: str) -> AsyncIterator[bytes]:
    async for line in console.recordings.text(id_):
        yield clean(line.text).encode("utf-8", "replace") + b"\n"


def _above(text: str, option: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is not a number") from None
    if not 0 < found < float("inf"):
        raise UsageError(f"{option}: {text} is not above 0")
    return found


def _data(recording: Recording) -> dict[str, object]:
    return {
        "id": recording.id, "name": recording.name, "ref": str(recording.ref) if recording.ref else "",
        "actor": recording.actor, "at": recording.at, "duration_s": recording.duration_s,
        "bytes": recording.size_bytes, "audit_id": recording.audit_id, "check": str(recording.check),
        "problem": recording.problem, "kind": recording.kind, "command": recording.command, "exit": recording.exit,
    }  # fmt: skip


def _row(recording: Recording) -> tuple[str, ...]:
    if recording.problem:
        return (recording.id, "", "", "", "", "", "", f"unreadable: {recording.problem}")
    return (
        recording.id, recording.name, moment(recording.at), duration(recording.duration_s), size(recording.size_bytes),
        recording.actor, str(recording.audit_id), str(recording.check),
    )  # fmt: skip
