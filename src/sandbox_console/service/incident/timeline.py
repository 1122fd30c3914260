"""Collects a timeline: the backend's events, the audit log, egress and the errors in logs, merged by time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing

from msgspec import Struct, structs

from sandbox_console.errors import ConsoleError
from sandbox_console.logs.level import Level, level_of
from sandbox_console.model.audit import AuditEntry, AuditQuery
from sandbox_console.model.egress import EgressRecord, Outcome
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.log import LogGap, LogItem, LogQuery
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Stats
from sandbox_console.model.timeline import ClockDifference, Missing, Moment, Source, Timeline
from sandbox_console.service.console import Console
from sandbox_console.service.incident.cause_sections import fields_changed

EACH_MOST = 1000
"""How many moments of one source of one sandbox are kept, the newest ones."""

EACH_LEAST, ALL_MOST = 50, 20_000
"""Fewer are kept of each when there are so many sandboxes that all together would be more."""
AT_ONCE = 16
"""How many sandboxes are read at the same time."""
CLOCK_S = 3.0

Samples = Mapping[SandboxRef, Sequence[Stats]]

_TEXT_MOST = 400
_ROUNDED_S = 1e-3  # an engine's nanoseconds do not fit into a float: a little more is requested


class Span(Struct, frozen=True):
    """A span of time, in seconds since the epoch. None means that it has no beginning or no end."""

    since: float | None = None
    until: float | None = None

    def holds(self, at: float) -> bool:
        """Whether a time is in the span; ``until`` is exclusive."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


async def timeline(
    console: Console, sandboxes: Sequence[Sandbox], span: Span = Span(), samples: Samples | None = None  # noqa: B008 - frozen
) -> Timeline:  # fmt: skip
    """What happened to these sandboxes. A source that cannot be read is listed and does not stop the others.

    ``samples`` are what the caller measured. Of many sandboxes, fewer moments of each are kept.
    """
    limit = max(EACH_LEAST, min(EACH_MOST, ALL_MOST // max(1, len(sandboxes))))
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(sandbox: Sandbox) -> Timeline:
        async with at_once:
            return await _of_one(console, sandbox, span, limit, (samples or {}).get(sandbox.ref, ()))

    timelines, clocks = await asyncio.gather(asyncio.gather(*map(one, sandboxes)), _clocks(console, sandboxes))
    moments = sorted((moment for one in timelines for moment in one.moments), key=lambda one: (one.at, one.ref))
    return Timeline(tuple(_counted(moments)), tuple(gap for one in timelines for gap in one.missing), clocks)


async def _clocks(console: Console, sandboxes: Sequence[Sandbox]) -> tuple[ClockDifference, ...]:
    places = sorted({(sandbox.ref.backend, sandbox.ref.host) for sandbox in sandboxes})

    async def difference(host_key: tuple[str, str]) -> float:
        try:
            async with asyncio.timeout(CLOCK_S):
                return await console.inside.clock_difference(*host_key)
        except (ConsoleError, TimeoutError):  # the other sources of this host say that it does not answer
            return 0.0

    found = zip(places, await asyncio.gather(*map(difference, places)), strict=True)
    return tuple(ClockDifference(*host_key, seconds) for host_key, seconds in found if seconds)


async def _of_one(
    console: Console, sandbox: Sandbox, span: Span, limit: int, samples: Sequence[Stats]
) -> Timeline:  # fmt: skip
    sources = {
        Source.BACKEND: _events(console, sandbox, span),
        Source.AUDIT: _actions(console, sandbox, span, limit),
        Source.EGRESS: _egress(console, sandbox, span),
        Source.LOG: _errors(console, sandbox, span),
    }
    parts = await asyncio.gather(
        *(_newest(sandbox, source, moments_of, span, limit) for source, moments_of in sources.items())
    )
    moments = [moment for part in parts for moment in part.moments]
    if not any(moment.source is Source.BACKEND for moment in moments):
        moments += [moment for moment in _states(sandbox) if span.holds(moment.at)]
    moments += [_sample(sandbox, stats) for stats in samples if span.holds(stats.at)]
    return Timeline(tuple(moments), tuple(gap for part in parts for gap in part.missing))


def _sample(sandbox: Sandbox, stats: Stats) -> Moment:
    values = (
        ("cpu", "" if stats.cpu_percent is None else f"{stats.cpu_percent:.0f}%"),
        ("memory", _bytes(stats.memory_bytes)),
        ("net", _bytes(_both(stats.net_rx, stats.net_tx), "/s")), ("log", _bytes(stats.log_rate, "/s")),
        ("disk", _bytes(_both(stats.block_read, stats.block_write), "/s")),
    )  # fmt: skip
    text = "  ".join(f"{name} {value}" for name, value in values if value)
    return Moment(stats.at, sandbox.ref, sandbox.name, Source.SAMPLE, "use", text)


def _both(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else (one or 0.0) + (other or 0.0)


def _bytes(count: float | None, per: str = "") -> str:
    if count is None:
        return ""
    return f"{count / 2**20:.1f} MiB{per}" if count >= 2**20 else f"{count / 2**10:.1f} KiB{per}"


async def _newest(
    sandbox: Sandbox, source: Source, moments_of: AsyncIterator[Moment], span: Span, limit: int
) -> Timeline:  # fmt: skip
    """The newest moments of a source; memory is bounded whatever a guest writes."""
    kept: deque[Moment] = deque(maxlen=limit)
    seen, problem = 0, ""
    try:
        async with aclosing(moments_of) as moments:  # type: ignore[type-var]
            async for moment in moments:
                if span.holds(moment.at):
                    seen += 1
                    kept.append(moment)
    except ConsoleError as error:
        problem = error.message
    if seen > len(kept):
        problem = f"only the last {limit} of {seen} are shown"
    gaps = (Missing(sandbox.ref, sandbox.name, source, problem),) if problem else ()
    return Timeline(tuple(kept), gaps)


async def _events(console: Console, sandbox: Sandbox, span: Span) -> AsyncIterator[Moment]:
    since = None if span.since is None else span.since - _ROUNDED_S
    async for event in console.inside.guest_events(sandbox.ref, since=since):
        yield Moment(event.at, sandbox.ref, sandbox.name, Source.BACKEND, event.what, _happened(event))


def _happened(event: GuestEvent) -> str:
    moments_of = [event.detail, *(f"{key}={value}" for key, value in sorted(event.attributes.items()) if value)]
    return " ".join(filter(None, moments_of))[:_TEXT_MOST]


async def _actions(console: Console, sandbox: Sandbox, span: Span, limit: int) -> AsyncIterator[Moment]:
    """The actions on the sandbox, oldest first, including its creation, whose outcome names it."""
    query = AuditQuery(limit=limit, target=str(sandbox.ref), since=span.since, until=span.until)
    for entry in reversed(await console.history(query)):
        yield _action(sandbox, entry)


def _action(sandbox: Sandbox, entry: AuditEntry) -> Moment:
    row, end = entry.attempt, entry.end
    took = f" after {end.dur_us / 1e6:.1f} s" if end and end.dur_us else ""
    text = f"by {row.actor}: {entry.outcome or 'in flight'}{took}{_detail(entry)}"
    return Moment(row.at_ns / 1e9, sandbox.ref, sandbox.name, Source.AUDIT, row.action, text, row.seq)


def _detail(entry: AuditEntry) -> str:
    """What an action was about: its command, the changed fields, or a path; or why it failed."""
    body = entry.attempt.body
    if entry.end is not None and (error := entry.end.body.get("error")):
        text = str(error)
    elif isinstance(argv := body.get("argv"), list):
        text = " ".join(map(str, argv))
    elif changed := fields_changed(body):
        text = ", ".join(changed)
    else:
        text = " ".join(str(body[key]) for key in ("path", "signal", "image", "reason") if body.get(key))
    return f": {text[:_TEXT_MOST]}" if text else ""


async def _egress(console: Console, sandbox: Sandbox, span: Span) -> AsyncIterator[Moment]:
    if sandbox.spec is None or not sandbox.spec.egress:
        return
    async for record in console.egress.records(sandbox.ref, since=span.since):
        if record.outcome is not Outcome.ALLOWED or not record.ended:
            yield Moment(record.at, sandbox.ref, sandbox.name, Source.EGRESS, record.outcome, _asked(record))


def _asked(record: EgressRecord) -> str:
    return f"{record.host}:{record.port}" + (f" ({record.reason})" if record.reason else "")


async def _errors(console: Console, sandbox: Sandbox, span: Span) -> AsyncIterator[Moment]:
    async for batch in console.logs(sandbox.ref, LogQuery(since=span.since, until=span.until)):
        for moment in await asyncio.to_thread(_errors_of, sandbox, batch):
            yield moment


def _errors_of(sandbox: Sandbox, batch: Sequence[LogItem]) -> list[Moment]:
    moments = []
    for item in batch:
        if isinstance(item, LogGap):
            lost = "some output" if item.lines is None else f"{item.lines} lines"
            moments.append(_line(sandbox, item.at_ns, "gap", f"{lost} lost: {item.reason}"))
            continue
        text = item.data[: _TEXT_MOST * 4].decode("utf-8", "replace").rstrip("\r\n")
        if (level := level_of(text)) >= Level.ERROR:
            moments.append(_line(sandbox, item.at_ns, level.name.lower(), text[:_TEXT_MOST]))
    return moments


def _line(sandbox: Sandbox, at_ns: int, event: str, text: str) -> Moment:
    return Moment(at_ns / 1e9, sandbox.ref, sandbox.name, Source.LOG, event, text)


def _states(sandbox: Sandbox) -> Iterable[Moment]:
    """The times that a list reports, for a backend that stores no events."""
    ended = f"exit {sandbox.exit.code}" if sandbox.exit and sandbox.exit.code is not None else ""
    for at, event, text in (
        (sandbox.created_at, "created", ""),
        (sandbox.started_at, "started", ""),
        (sandbox.finished_at, "ended", ended),
    ):
        if at is not None:
            yield Moment(at, sandbox.ref, sandbox.name, Source.STATE, event, text)


def _counted(moments: Iterable[Moment]) -> Iterable[Moment]:
    """Combine repetitions of a moment into one with a count."""
    open_: Moment | None = None
    for moment in moments:
        if open_ is not None and _alike(open_, moment):
            open_ = structs.replace(open_, count=open_.count + 1, last_at=moment.at)
            continue
        if open_ is not None:
            yield open_
        open_ = moment
    if open_ is not None:
        yield open_


def _alike(moment: Moment, other: Moment) -> bool:
    return (moment.ref, moment.source, moment.what, moment.text, moment.seq) == (
        other.ref, other.source, other.what, other.text, other.seq,
    )  # fmt: skip
