"""Finds out why a sandbox ended: a verdict with its evidence."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct, structs, to_builtins

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Update
from sandbox_console.model.audit import AuditEntry, AuditQuery
from sandbox_console.model.egress import EgressRecord, Outcome
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import clean
from sandbox_console.model.verdict import Verdict, verdict
from sandbox_console.service.console import Console
from sandbox_console.service.incident.kernel_log import oom_kills
from sandbox_console.service.reads.egress import TEMPLATE

LAST_LINES = 10
"""How many lines of stderr, or else of stdout, are shown."""

DENIED_S = 60.0
"""Denials in this many seconds before the end are shown."""

_NEAR_S = 5.0
_ROWS, _DENIED_MOST, _TAIL = 200, 20, 200
_WELL = ("running", "exited 0")
_REPLACED_MOST = 8
"""How many of the sandboxes that it replaced, one after the other, are looked up."""
_CHANGES = ("create", "restore", "fork", "update", "rename", "egress", "egress-deny")


class Cause(Struct, frozen=True):
    """Why a sandbox is in its state. ``verdict`` is None while it is running or if it never ran.

    ``last_words`` are lines as the guest wrote them, with known secrets masked. ``denied`` are connections that were
    refused right before the end. ``changed`` are the rows of the audit log that changed it, or those that it replaced,
    newest first. ``worked_at`` is when it last ended well, in seconds since the epoch, as far as its backend remembers.
    ``beside`` names a healthy sandbox of the same template or image, and ``differs`` says how the specs, the images
    behind the same name, and the hosts differ. ``missing`` is what could not be read and might have explained more.
    """

    sandbox: Sandbox
    verdict: Verdict | None = None
    last_words: tuple[str, ...] = ()
    denied: tuple[EgressRecord, ...] = ()
    changed: tuple[AuditEntry, ...] = ()
    beside: str = ""
    differs: tuple[tuple[str, str, str], ...] = ()
    missing: tuple[str, ...] = ()
    worked_at: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        judged, one = self.verdict, self.sandbox
        return {
            "name": one.name, "ref": str(one.ref), "status": str(one.status),
            "exit": to_builtins(one.exit), "ended": one.finished_at,
            "why": judged.headline if judged else None, "sure": judged.sure if judged else None,
            "evidence": list(judged.evidence) if judged else [],
            "last_words": list(self.last_words),
            "denied": [
                {"at": one.at, "host": one.host, "port": one.port, "outcome": str(one.outcome), "reason": one.reason}
                for one in self.denied
            ],
            "changed": [
                {"seq": each.attempt.seq, "at": each.attempt.at_ns / 1e9, "action": each.attempt.action,
                 "actor": each.attempt.actor, "outcome": each.outcome}
                for each in self.changed
            ],
            "worked_at": self.worked_at,
            "beside": self.beside or None,
            "differs": [{"field": field, "here": here, "there": there} for field, here, there in self.differs],
            "missing": list(self.missing),
        }  # fmt: skip


async def judge(console: Console, sandbox: Sandbox) -> Verdict | None:
    """Only the verdict, from the audit log, the backend's events and its last output; None if nothing has ended."""
    if sandbox.status is not Status.CREATED and verdict(sandbox, ()) is None:
        return None
    sandbox = await _inspected(console, sandbox)
    missing: list[str] = []
    rows, guest_events, words = await asyncio.gather(
        _rows(console, sandbox, missing),
        _guest_events(console, sandbox, missing),
        _last_words(console, sandbox, missing),
    )
    return await _by_the_kernel(sandbox, verdict(sandbox, rows, guest_events, "\n".join(words)))


async def cause(console: Console, sandbox: Sandbox) -> Cause:
    """Judge one sandbox by all records. Lists in ``missing`` what cannot be read, and raises nothing."""
    sandbox = await _inspected(console, sandbox)
    missing: list[str] = []
    rows, guest_events, words, denied = await asyncio.gather(
        _rows(console, sandbox, missing),
        _guest_events(console, sandbox, missing),
        _last_words(console, sandbox, missing),
        _denied(console, sandbox, missing),
    )
    found = await _by_the_kernel(sandbox, verdict(sandbox, rows, guest_events, "\n".join(words)))
    if found is not None and not found.sure:
        missing.append("the host's kernel log (dmesg) would show an out-of-memory kill")
        reported = any(event.what == "die" and "signal" in event.attributes for event in guest_events)
        if found.headline.startswith("killed by SIGKILL") and not reported:
            missing.append("a main process that exits with 137 by itself looks the same to this backend")
    beside = await _healthy(console, sandbox) if found is not None and _failed(sandbox) else None
    return Cause(
        sandbox, found, tuple(words), tuple(denied), tuple(row for row in rows if row.attempt.action in _CHANGES),
        beside.name if beside else "", _differs(sandbox, beside) if beside else (), tuple(missing),
        _worked_at(sandbox, rows, guest_events),
    )  # fmt: skip


async def _inspected(console: Console, sandbox: Sandbox) -> Sandbox:
    """Everything that its backend knows of it: a list may lack the time of its end, and whether memory ran out."""
    with suppress(ConsoleError):
        return await console.inspect(sandbox.ref)
    return sandbox


def _worked_at(sandbox: Sandbox, entries: Sequence[AuditEntry], guest_events: Sequence[GuestEvent]) -> float | None:
    """When it last ran well: a run before the last one ended with exit 0, or an update found it running or so ended."""
    last = sandbox.started_at or sandbox.finished_at or float("inf")
    ends = [one.at for one in guest_events if one.what == "die" and one.attributes.get("exitCode") == "0"]
    updates = [one.attempt.at_ns / 1e9 for one in entries if one.end and one.end.body.get("state") in _WELL]
    return max((at for at in (*ends, *updates) if at < last), default=None)


def _replaced(rows: Sequence[AuditEntry]) -> Iterator[str]:
    """The references of the sandboxes that updates replaced, newest first."""
    ends = (row.end for row in rows if row.end is not None and row.attempt.action == Update.verb)
    return (was for end in ends if isinstance(was := end.body.get("was"), str))


async def _by_the_kernel(sandbox: Sandbox, verdict: Verdict | None) -> Verdict | None:
    """Settle an end by a SIGKILL that nobody is known to have sent, if the kernel log of this machine has it."""
    if verdict is None or verdict.sure or sandbox.exit is None or sandbox.exit.signal != signal.SIGKILL:
        return verdict
    since = (sandbox.started_at or sandbox.created_at or 0.0) - 1
    kills = await asyncio.to_thread(oom_kills, sandbox.ref.id, since)
    near = [one for one in kills if sandbox.finished_at is None or abs(one.at - sandbox.finished_at) < _NEAR_S]
    if not near:
        return verdict
    whose = "its limit" if near[-1].limit else "the end of this machine's memory"
    seen = f"the kernel log: process {near[-1].pid} was killed for lack of memory"
    return Verdict(f"out of memory: the kernel killed it at {whose}", (*verdict.evidence, seen))


def _failed(sandbox: Sandbox) -> bool:
    return sandbox.status is not Status.EXITED or sandbox.exit is None or sandbox.exit.code != 0


async def _rows(console: Console, sandbox: Sandbox, missing: list[str]) -> Sequence[AuditEntry]:
    """The actions on it, newest first, and on the sandboxes that it replaced when it was recreated."""
    found: dict[int, AuditEntry] = {}
    target = str(sandbox.ref)
    for _ in range(_REPLACED_MOST):
        try:
            entries = await console.history(AuditQuery(limit=_ROWS, target=target))
        except ConsoleError as error:
            missing.append(f"the audit log: {error.message}")
            break
        found |= {entry.attempt.seq: entry for entry in entries}
        here = [entry for entry in entries if entry.end is not None and entry.end.target == target]
        target = next((was for was in _replaced(here) if was != target), "")
        if not target:
            break
    return sorted(found.values(), key=lambda entry: (entry.attempt.placed, -abs(entry.attempt.seq)))


async def _guest_events(console: Console, sandbox: Sandbox, missing: list[str]) -> Sequence[GuestEvent]:
    try:
        return [event async for event in console.inside.guest_events(sandbox.ref)]
    except ConsoleError as error:
        missing.append(f"events: {error.message}")
        return ()


async def _last_words(console: Console, sandbox: Sandbox, missing: list[str]) -> Sequence[str]:
    """The last lines of stderr, or of stdout if stderr has none. Of a long line in pieces, only the first piece."""
    kept: dict[Stream, deque[bytes]] = {stream: deque(maxlen=LAST_LINES) for stream in Stream}
    inside: set[Stream] = set()
    try:
        async for batch in console.logs(sandbox.ref, LogQuery(tail=_TAIL)):
            for item in batch:
                if not isinstance(item, LogRecord):
                    inside.clear()
                    continue
                if item.stream not in inside and item.data.strip():
                    kept[item.stream].append(item.data)
                (inside.discard if item.data.endswith(b"\n") else inside.add)(item.stream)
    except ConsoleError as error:
        missing.append(f"logs: {error.message}")
    lines = kept[Stream.STDERR] or kept[Stream.STDOUT] or kept[Stream.TTY]
    return [clean(line.decode("utf-8", "replace").rstrip("\r\n"), cap=400) for line in lines]


async def _denied(console: Console, sandbox: Sandbox, missing: list[str]) -> Sequence[EgressRecord]:
    """What was denied, did not resolve or failed in the minute before the end, or before now if it is running."""
    if sandbox.spec is None or not sandbox.spec.egress:
        return ()
    records: deque[EgressRecord] = deque(maxlen=_DENIED_MOST)
    end = sandbox.finished_at
    try:
        async for record in console.egress.records(sandbox.ref, since=end - DENIED_S if end else None):
            if record.outcome is not Outcome.ALLOWED and (end is None or record.at <= end + 1):
                records.append(record)
    except ConsoleError as error:
        missing.append(f"egress: {error.message}")
    return records


async def _healthy(console: Console, sandbox: Sandbox) -> Sandbox | None:
    """A sandbox of the same template, or else of the same image and backend, that is running or finished well."""
    with suppress(ConsoleError):
        others = [one for one in (await console.list(sandbox.ref.backend))[0] if _sibling(sandbox, one)]
        best = max(others, key=lambda one: (one.status is Status.RUNNING, one.started_at or 0.0), default=None)
        return best and await console.inspect(best.ref)
    return None


def _sibling(sandbox: Sandbox, other: Sandbox) -> bool:
    if other.ref == sandbox.ref or other.spec is None or not (other.status is Status.RUNNING or not _failed(other)):
        return False
    mark = sandbox.labels.get(TEMPLATE)
    if mark is not None:
        return other.labels.get(TEMPLATE) == mark
    same = sandbox.spec is not None and other.spec.command == sandbox.spec.command
    return same and other.image == sandbox.image and other.ref.host == sandbox.ref.host


def _differs(sandbox: Sandbox, beside: Sandbox) -> tuple[tuple[str, str, str], ...]:
    """What differs, except the names: (field, here, there). Of variables, only the names."""
    mine, other = sandbox.spec, beside.spec
    if mine is None or other is None:
        return ()
    here, there = structs.asdict(mine), structs.asdict(other)
    names = [name for name in {**here["env"], **there["env"]} if here["env"].get(name) != there["env"].get(name)]
    for one in (here, there):
        one["env"] = tuple(sorted(name for name in names if name in one["env"]))
    fields = [
        (field, _shown(here[field]), _shown(there[field]))
        for field in here
        if field not in ("name", "workspace") and here[field] != there[field]
    ]
    return (*fields, *_placed_otherwise(sandbox, beside))


def _placed_otherwise(sandbox: Sandbox, beside: Sandbox) -> Iterator[tuple[str, str, str]]:
    """The images behind one name, and the hosts, where they differ."""
    images = [next((fact.note for fact in one.effective if fact.field == "image"), "") for one in (sandbox, beside)]
    if sandbox.image == beside.image and images[0] != images[1]:
        yield "image id", _shown(images[0]), _shown(images[1])
    if sandbox.ref.host != beside.ref.host:
        yield "host", sandbox.ref.host, beside.ref.host


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        value = " ".join(map(str, value))
    return "-" if value in (None, "", {}) else str(value)
