"""``logs``: prints a sandbox's output, or that of several merged by time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context, colours
from sandbox_console.cli.formatting import moment_ns, width
from sandbox_console.cli.lookup import find_named, within
from sandbox_console.cli.spec_options import whole
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import MAYBE_ROTATED, LogGap, LogItem, LogQuery, LogRecord
from sandbox_console.model.quantities import parse_duration_s
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console

Batches = AsyncGenerator[tuple[Sandbox, Sequence[LogItem]], None]

_QUEUED = 64

_EPOCH = re.compile(r"[0-9]{10}(?:\.[0-9]+)?")
"""A number of seconds since the epoch, in the years 2001 to 2286; as a duration it would be 31 years or more."""

_JOINED_MOST = 1 << 20
"""The most bytes of a line whose pieces are joined before it is searched."""


async def logs(context: Context) -> int:
    """Print stdout and stderr both on our stdout, because they are the data. A gap in it is reported on stderr.

    With ``--json`` each line and each gap is an object that names the stream.
    """
    query = _query(context)
    pattern = _pattern(context.args.grep)
    async with context.open() as console:
        found = await find_named(context, console, context.args.names, changing=False)
        needs = [Capability.LOG_PREVIOUS] if query.previous else []
        sandboxes = [await within(context, console, one, *needs) for one in found]
        printer = _Printer(context, sandboxes, pattern)
        async with contextlib.aclosing(_batches(context, console, sandboxes, query)) as batches:
            async for sandbox, batch in batches:
                await printer.print(sandbox, batch)
        await printer.end()
        if query.follow and sandboxes:
            context.say(f"{', '.join(one.name for one in sandboxes)}: there will be no more output")
    return context.code


def _query(context: Context) -> LogQuery:
    args, now = context.args, context.now()
    try:
        tail = None if args.tail is None else whole(args.tail)
    except ValueError as error:
        raise UsageError(f"--tail: {error}") from None
    if tail is not None and tail < 0:
        raise UsageError(f"--tail: {tail} is below 0")
    since, until = (None if text is None else when(text, now) for text in (args.since, args.until))
    parsed = args.json or args.timestamps or args.grep is not None or len(args.names) > 1
    lines = bool(args.follow or parsed or context.streams.out.tty)
    return LogQuery(args.follow and not args.previous, tail, since, until, lines, args.previous)


def when(text: str, now: float) -> float:
    """Read ``10m`` (ago), seconds since the epoch as from ``date +%s``, or an ISO time, local if it names no zone.

    Returns seconds since the epoch. A bare number below a billion is a duration. Raises UsageError.
    """
    if _EPOCH.fullmatch(text):
        return float(text)
    with contextlib.suppress(ValueError):
        return now - parse_duration_s(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        hint = "write 10m, 2h, 1795000000 or 2026-11-21T04:30:00Z"
        raise UsageError(f"{text!r} is neither a duration nor a time", hint=hint) from None


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(f"--grep {text!r} is not a regular expression: {error}") from None


def _batches(context: Context, console: Console, sandboxes: Sequence[Sandbox], query: LogQuery) -> Batches:
    if len(sandboxes) == 1:
        return _of_one(console, sandboxes[0], query)
    return _as_they_come(context, console, sandboxes, query) if query.follow else _merged(console, sandboxes, query)


async def _of_one(console: Console, sandbox: Sandbox, query: LogQuery) -> Batches:
    async for batch in console.logs(sandbox.ref, query):
        yield sandbox, batch


async def _merged(console: Console, sandboxes: Sequence[Sandbox], query: LogQuery) -> Batches:
    """Merge the logs by time, with at most one batch of each sandbox in memory."""
    sources = [_items(console, sandbox, query) for sandbox in sandboxes]
    heads: list[tuple[int, int, LogItem]] = []

    async def advance(index: int) -> None:
        if (item := await anext(sources[index], None)) is not None:
            heapq.heappush(heads, (item.at_ns, index, item))

    try:
        for index in range(len(sources)):
            await advance(index)
        while heads:
            _, index, item = heapq.heappop(heads)
            yield sandboxes[index], [item]
            await advance(index)
    finally:
        for source in sources:
            await source.aclose()


async def _items(console: Console, sandbox: Sandbox, query: LogQuery) -> AsyncGenerator[LogItem, None]:
    async for batch in console.logs(sandbox.ref, query):
        for item in batch:
            yield item


async def _as_they_come(context: Context, console: Console, sandboxes: Sequence[Sandbox], query: LogQuery) -> Batches:
    """Print followed logs as they arrive. They cannot wait for each other, and a failed one does not end the rest."""
    queue: asyncio.Queue[tuple[Sandbox, Sequence[LogItem]] | None] = asyncio.Queue(_QUEUED)

    async def pump(sandbox: Sandbox) -> None:
        try:
            async for batch in console.logs(sandbox.ref, query):
                await queue.put((sandbox, batch))
        except ConsoleError as error:
            context.fail(error, sandbox.name)
        await queue.put(None)

    pumps = [asyncio.ensure_future(pump(sandbox)) for sandbox in sandboxes]
    left = len(pumps)
    try:
        while left:
            found = await queue.get()
            if found is None:
                left -= 1
            else:
                yield found
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


class _Printer:
    """Prints lines with the requested prefixes."""

    def __init__(self, context: Context, sandboxes: Sequence[Sandbox], pattern: re.Pattern[str] | None) -> None:
        self._context = context
        self._pattern = pattern
        self._sandboxes = sandboxes
        self._prefixes = _prefixes(sandboxes) if len(sandboxes) > 1 else {}
        self._open: tuple[SandboxRef, str] | None = None  # the stream whose last line has no end yet
        self._pieces: dict[tuple[SandboxRef, str], list[LogRecord]] = {}
        self._show: Callable[[bytes], bytes] = self._cleaned if context.streams.out.tty else bytes

    async def print(self, sandbox: Sandbox, batch: Sequence[LogItem]) -> None:
        """Print a batch in one write."""
        await self._write(b"".join([self._one(sandbox, item) for item in batch]))

    async def end(self) -> None:
        """Search the lines that have no end."""
        sandboxes = {sandbox.ref: sandbox for sandbox in self._sandboxes}
        pieces, self._pieces = self._pieces, {}
        await self._write(b"".join([self._matched(sandboxes[ref], pieces) for (ref, _), pieces in pieces.items()]))

    async def _write(self, out: bytes) -> None:
        if out:
            await self._context.streams.out.stream(out)

    def _one(self, sandbox: Sandbox, item: LogItem) -> bytes:
        if isinstance(item, LogGap):
            return self._gap(sandbox, item)
        if self._context.args.stream not in (None, item.stream):
            return b""
        if self._pattern is not None:
            return self._joined(sandbox, item)
        return self._shown(sandbox, item)

    def _joined(self, sandbox: Sandbox, item: LogRecord) -> bytes:
        """Join a long line, which comes in pieces (of 16 KiB from an engine), so that it is searched as a whole."""
        pieces = self._pieces.setdefault((sandbox.ref, item.stream), [])
        pieces.append(item)
        if not item.data.endswith(b"\n") and sum(len(record.data) for record in pieces) < _JOINED_MOST:
            return b""
        del self._pieces[sandbox.ref, item.stream]
        return self._matched(sandbox, pieces)

    def _matched(self, sandbox: Sandbox, pieces: Sequence[LogRecord]) -> bytes:
        line = LogRecord(pieces[0].at_ns, pieces[0].stream, b"".join([record.data for record in pieces]))
        text = line.data.decode("utf-8", "replace").rstrip("\r\n")
        return self._shown(sandbox, line) if self._pattern and self._pattern.search(text) else b""

    def _shown(self, sandbox: Sandbox, item: LogRecord) -> bytes:
        if self._context.json:
            return json_output.line(json_output.log_item(sandbox, item)).encode() + b"\n"
        return self._head(sandbox, item) + self._show(item.data)

    def _gap(self, sandbox: Sandbox, gap: LogGap) -> bytes:
        if self._context.json:
            return json_output.line(json_output.log_item(sandbox, gap)).encode() + b"\n"
        if gap.reason == MAYBE_ROTATED:
            self._context.say(f"note: {sandbox.name}: {gap.reason}")
            return b""
        lost = "some output" if gap.lines is None else f"{gap.lines} lines"
        self._context.say(f"gap: {sandbox.name}: {lost} lost: {gap.reason}")
        return b""

    def _head(self, sandbox: Sandbox, item: LogRecord) -> bytes:
        """The prefix of a line; empty if the item continues an open line."""
        if not self._prefixes and not self._context.args.timestamps:
            return b""
        who = (sandbox.ref, str(item.stream))
        before, self._open = self._open, None if item.data.endswith(b"\n") else who
        if before == who:
            return b""
        time = f"{moment_ns(item.at_ns)} " if self._context.args.timestamps else ""
        return (b"\n" if before else b"") + (self._prefixes.get(sandbox.ref, "") + time).encode()

    def _cleaned(self, line: bytes) -> bytes:
        ended = line.endswith(b"\n")
        text = line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
        shown = clean(text, keep_sgr=colours(self._context.streams.out))
        return shown.encode() + (b"\n" if ended else b"")


def _prefixes(sandboxes: Sequence[Sandbox]) -> dict[SandboxRef, str]:
    names = {sandbox.ref: clean(sandbox.name, cap=64) for sandbox in sandboxes}
    widest = max(map(width, names.values()))
    return {ref: f"{name}{' ' * (widest - width(name))} | " for ref, name in names.items()}
