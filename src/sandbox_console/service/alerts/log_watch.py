"""Follows the logs of sandboxes for rules with a pattern, and remembers how far each one was read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.logs.pattern import Pattern, compile_pattern
from sandbox_console.model.log import LogItem, LogQuery, LogRecord
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.sandbox_filter import FieldTest, fits, parse_filter
from sandbox_console.service.alert_options import AlertRule
from sandbox_console.service.console import Console

LINE_MOST = 64 << 10
"""Bytes of a line that are searched. RE2 takes time linear in them, whatever the pattern."""
ENDED_AT_ONCE = 8
"""How many logs of sandboxes that have ended are read at a time."""
_AGAIN_S = (1.0, 60.0)
_UNORDERED_S = 2
"""Lines of two streams may come in another order than that of their times, by less than this."""
_ROUNDED_S = 1e-3  # an engine's nanoseconds do not fit into a float: a little more is requested


class Match(Struct, frozen=True):
    """Lines of a log that a rule's pattern matched: the times of the newest ones, and the last line."""

    rule: str
    times: tuple[float, ...]
    text: str


class Read(Struct, frozen=True):
    """How far a log was read: the lines seen from a second on. They have no strict order in time."""

    second: int
    lines: int


class LogRule(Struct, frozen=True):
    """A rule about logs. ``since`` is when it began to be watched, in seconds since the epoch."""

    name: str
    pattern: Pattern
    tests: tuple[FieldTest, ...]
    since: float
    most: int


def log_rules(rules: Mapping[str, AlertRule], since: Mapping[str, float]) -> list[LogRule]:
    """The rules about logs."""
    return [
        LogRule(name, compile_pattern(rule.pattern), parse_filter(rule.filter), since[name], rule.count)
        for name, rule in rules.items()
        if rule.on == "log"
    ]


Take = Callable[[Sandbox, Sequence[Match], Read], object]


class LogWatch:
    """One task for each sandbox that a rule is about. ``take`` gets what matched, and the place to remember."""

    def __init__(
        self, console: Console, rules: Sequence[LogRule], read: Callable[[SandboxRef], Any], take: Take
    ) -> None:
        self._console, self._rules, self._read_position, self._take = console, rules, read, take
        self._tasks: dict[SandboxRef, asyncio.Task[None]] = {}
        self._runs: dict[SandboxRef, tuple[float | None, bool]] = {}
        self._ended = asyncio.Semaphore(ENDED_AT_ONCE)

    def see(self, sandbox: Sandbox) -> None:
        """Read the log of a sandbox, and follow it while it runs."""
        wanted = [rule for rule in self._rules if fits(sandbox, rule.tests)]
        live, end = sandbox.status.live, sandbox.finished_at
        if (
            not wanted
            or sandbox.started_at is None
            or (not live and end is not None and end < min(one.since for one in wanted))
        ):
            return
        run = (sandbox.started_at, live)
        task = self._tasks.get(sandbox.ref)
        if run == self._runs.get(sandbox.ref) or (task is not None and not task.done()):
            return
        self._runs[sandbox.ref] = run
        self._tasks[sandbox.ref] = asyncio.create_task(self._follow(sandbox, wanted))

    def drop(self, ref: SandboxRef) -> None:
        """Stop reading the log of a sandbox."""
        self._runs.pop(ref, None)
        if (task := self._tasks.pop(ref, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop."""
        tasks = list(self._tasks.values())
        for ref in list(self._tasks):
            self.drop(ref)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, sandbox: Sandbox, rules: Sequence[LogRule]) -> None:
        wait = _AGAIN_S[0]
        while True:
            try:
                await self._once(sandbox, rules)
                sandbox = await self._console.inspect(sandbox.ref)
                if not sandbox.status.live:
                    self._runs[sandbox.ref] = (sandbox.started_at, False)
                    return
                wait = _AGAIN_S[0]
            except NotFound:
                return
            except ConsoleError:
                wait = min(2 * wait, _AGAIN_S[1])
            await asyncio.sleep(wait)

    async def _once(self, sandbox: Sandbox, rules: Sequence[LogRule]) -> None:
        if sandbox.status.live:
            await self._read(sandbox, rules)
        else:
            async with self._ended:
                await self._read(sandbox, rules)

    async def _read(self, sandbox: Sandbox, rules: Sequence[LogRule]) -> None:
        read = self._read_position(sandbox.ref)
        since = min(rule.since for rule in rules) if read is None else read.second - _ROUNDED_S
        query = LogQuery(follow=sandbox.status.live, since=since)
        counter = _Counter(read)
        async with aclosing(self._console.logs(sandbox.ref, query)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                if fresh := counter.unseen(batch):
                    matches = await asyncio.to_thread(_matches, fresh, rules)
                    self._take(sandbox, matches, counter.read)


class _Counter:
    """Counts the lines of each second, so that a later reader knows how many of them to skip."""

    def __init__(self, read: Read | None) -> None:
        self._from = read
        self._skip = read.lines if read is not None else 0
        self._seconds: dict[int, int] = {}

    def unseen(self, batch: Sequence[LogItem]) -> list[LogRecord]:
        """The lines of a batch that were not read before."""
        fresh: list[LogRecord] = []
        for item in batch:
            if not isinstance(item, LogRecord):
                continue
            second = item.at_ns // 1_000_000_000
            before = self._from is not None and second < self._from.second
            if before and self._skip:
                continue
            self._seconds[second] = self._seconds.get(second, 0) + 1
            if self._skip:
                self._skip -= 1
            else:
                fresh.append(item)
        return fresh

    @property
    def read(self) -> Read:
        """The place to remember."""
        first = max(self._seconds) - _UNORDERED_S
        self._seconds = {second: lines for second, lines in self._seconds.items() if second >= first}
        return Read(first, sum(self._seconds.values()))


def _matches(records: Sequence[LogRecord], rules: Sequence[LogRule]) -> list[Match]:
    """What the rules' patterns match. A batch without a match costs one search for each rule."""
    lines = [record.data[:LINE_MOST] for record in records]
    whole = b"\n".join(lines)
    found = []
    for rule in rules:
        if not rule.pattern.inverse and not rule.pattern.is_in(whole):
            continue
        at = [number for number, line in enumerate(lines) if rule.pattern.matches(line)]
        at = [number for number in at if records[number].at_ns / 1e9 >= rule.since][-rule.most :]
        if at:
            text = lines[at[-1]][:4096].decode("utf-8", "replace").strip()
            found.append(Match(rule.name, tuple(records[number].at_ns / 1e9 for number in at), text))
    return found
