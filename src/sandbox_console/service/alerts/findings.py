"""Collects what the rules are about: states, samples, denials, log lines, actions, and the backends' health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, cast

from msgspec import convert, to_builtins

from sandbox_console.errors import ConsoleError
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.event import Changed, Denied, Event, HealthChanged, Listed, Removed, Sampled
from sandbox_console.model.sandbox import HealthState, Sandbox, SandboxRef, Stats, Status
from sandbox_console.model.sandbox_filter import fits, parse_filter
from sandbox_console.model.verdict import ended_by
from sandbox_console.service.alert_options import ERROR, OOM, AlertRule
from sandbox_console.service.alerts import conditions
from sandbox_console.service.alerts.audit_watch import AuditWatch, Followed
from sandbox_console.service.alerts.counted import Happened, Restarts, denials
from sandbox_console.service.alerts.lifecycle import Occurrence
from sandbox_console.service.alerts.log_watch import LogWatch, Match, Read, log_rules
from sandbox_console.service.alerts.store import Changes, Hits, Key
from sandbox_console.service.console import Console
from sandbox_console.service.reads.hub import Subscription

_ENDS_KEPT = 10_000


class Unknown(Enum):
    """What is found where nothing is known yet: an alert stays as it is."""

    YET = "yet"


class Findings:
    """What is known now, and what has happened since the last tick.

    ``since`` is when each rule began to be watched: what ended before does not concern it. ``hits`` and ``places`` are
    what an earlier process left.
    """

    def __init__(
        self, console: Console, rules: Mapping[str, AlertRule], since: Mapping[str, float],
        hits: dict[Key, Hits], places: dict[Key, Any], now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._console, self._rules, self._since, self._now = console, rules, since, now
        self._tests = {name: parse_filter(rule.filter) for name, rule in rules.items()}
        self._hits, self._places = hits, places
        self._stats: dict[SandboxRef, Stats] = {}
        self._listed: set[tuple[str, str]] = set()
        self._known: dict[str, SandboxRef] = {}
        self._dirty: set[str] = set()
        self._taken: set[str] = set()
        self._dirty_places: set[str] = set()
        self._taken_places: set[str] = set()
        self._happened: list[Happened] = []
        self._given: list[Happened] = []
        self._new_positions: dict[Key, Any] = {}
        self._given_places: dict[Key, Any] = {}
        self._ours: dict[tuple[SandboxRef, float | None], bool] = {}
        self._restarts = Restarts(rules, self._tests, self._since)
        self._denied: dict[SandboxRef, int] = {}
        self._logs = LogWatch(console, log_rules(rules, since), self._read_to, self._take_lines)
        position = places.get(("audit", ""))
        self._audit = AuditWatch(
            console, convert(position, Followed) if position else None, min(since.values(), default=0.0)
        )
        self._on = {rule.on for rule in rules.values()}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Follow the fleet, from what the console knows of it already."""
        self._tasks = [asyncio.create_task(self._follow(self._console.watch()))]
        self._listed |= self._console.hub.listed
        for sandbox in self._console.hub.sandboxes.values():
            self._see(sandbox)
        if "metric" in self._on:
            self._console.sample_all()

    async def close(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._logs.close()

    def sandbox(self, subject: str) -> Sandbox | None:
        """The sandbox that a subject names, if it is there."""
        ref = self._known.get(subject)
        return None if ref is None else self._console.hub.sandboxes.get(ref)

    # One tick

    async def collect(self, changes: Changes) -> None:
        """Put what has happened since the last tick into ``changes``, with the places up to which it was read.

        It stays here until `applied`, so nothing is lost if it cannot be written. Raises ConsoleError.
        """
        for task in self._tasks:
            if task.done():
                task.result()  # a bug: nothing would be watched any more
        if "audit" in self._on:
            await self._read_audit()
        self._given, self._happened = [*self._given, *self._happened], []
        self._given_places |= self._new_positions
        self._new_positions = {}
        self._taken, self._dirty = self._taken | self._dirty, set()
        self._taken_places, self._dirty_places = self._taken_places | self._dirty_places, set()
        for one in self._given:
            key = (one.rule, one.subject)
            hits = changes.hits.get(key) or self._hits.get(key) or Hits()
            for at in one.times:
                hits = conditions.counted(hits, self._rules[one.rule], at, self._now(), one.name, one.text, one.often)
            changes.hits[key] = hits
        changes.places |= self._given_places

    def applied(self, changes: Changes) -> None:
        """Note that what was collected is written."""
        for key, hits in changes.hits.items():
            if hits is None:
                self._hits.pop(key, None)
            else:
                self._hits[key] = hits
        self._places |= changes.places
        self._given, self._given_places, self._taken, self._taken_places = [], {}, set(), set()

    def to_look_at(self, alerts: Iterable[Key], changes: Changes) -> list[Key]:
        """The rules and subjects that may have changed: those of open alerts, of counts, and whatever is new."""
        found = dict.fromkeys(alerts)
        found |= dict.fromkeys(key for key in (*self._hits, *changes.hits) if key[0] in self._rules)
        for name, rule in self._rules.items():
            if not rule.counted:
                subjects = self._taken_places if rule.on == "backend" else self._taken
                found |= dict.fromkeys((name, subject) for subject in subjects)
        return list(found)

    async def look(self, key: Key, changes: Changes, *, fires: bool) -> Occurrence | Unknown | None:
        """What holds for a rule and a subject now; None if nothing does."""
        name, subject = key
        rule = self._rules.get(name)
        if rule is None:
            return None
        if rule.counted:
            return self._look_at_hits(key, rule, changes)
        if rule.on == "backend":
            return self._look_at_backend(subject, rule)
        sandbox = self.sandbox(subject)
        if sandbox is None:
            return None if self._is_listed(subject) else Unknown.YET
        if not fits(sandbox, self._tests[name]):
            return None
        text = (
            self._metric(rule, sandbox) if rule.on == "metric" else await self._state(name, rule, sandbox, fires=fires)
        )
        return Unknown.YET if text is None else Occurrence(subject, sandbox.name, text) if text else None

    def why_over(self, key: Key) -> str:
        """Why the alert about a subject is over, where that is not plain."""
        rule = self._rules[key[0]]
        gone = rule.on in ("state", "metric") and self.sandbox(key[1]) is None
        return "it was removed" if gone else ""

    # Its parts

    def _look_at_hits(self, key: Key, rule: AlertRule, changes: Changes) -> Occurrence | None:
        hits = changes.hits.get(key, self._hits.get(key))
        if hits is None:
            return None
        if conditions.over(hits, rule, self._now()):
            changes.hits[key] = None
            return None
        text = conditions.hits_text(hits, rule, self._now())
        return Occurrence(key[1], hits.name, text, len(hits.times)) if text else None

    def _look_at_backend(self, subject: str, rule: AlertRule) -> Occurrence | Unknown | None:
        for health in self._console.hub.health.values():
            if f"{health.backend}/{health.host}" == subject:
                if health.state is HealthState.CONNECTING:
                    return Unknown.YET
                text = conditions.backend_text(rule, health)
                return Occurrence(subject, subject, text) if text else None
        return None

    def _metric(self, rule: AlertRule, sandbox: Sandbox) -> str | None:
        if sandbox.status is not Status.RUNNING:
            return ""
        stats = self._stats.get(sandbox.ref)
        return None if stats is None else conditions.metric_text(rule, stats)

    async def _state(self, name: str, rule: AlertRule, sandbox: Sandbox, *, fires: bool) -> str:
        text = conditions.state_text(rule, sandbox)
        if not text or fires:
            return text
        end = sandbox.finished_at
        if not sandbox.status.live and end is not None and end < self._since[name]:
            return ""
        of_oom = sandbox.exit is not None and sandbox.exit.oom and OOM in rule.states
        by_state = str(sandbox.status) in rule.states
        if conditions.failed(sandbox) and ERROR in rule.states and not (of_oom or by_state):
            return "" if await self._is_ours(sandbox) else text
        return text

    async def _is_ours(self, sandbox: Sandbox) -> bool:
        """Whether a person ended it with a console, which is no error of the sandbox."""
        run = (sandbox.ref, sandbox.finished_at)
        if run not in self._ours:
            if len(self._ours) >= _ENDS_KEPT:
                self._ours.clear()
            query = AuditQuery(limit=20, target=str(sandbox.ref))
            try:
                if sandbox.finished_at is None:  # a list may lack it
                    sandbox = await self._console.inspect(sandbox.ref)
                self._ours[run] = ended_by(sandbox, await self._console.history(query)) is not None
            except ConsoleError:
                return False
        return self._ours[run]

    def _is_listed(self, subject: str) -> bool:
        return any(subject.startswith(f"{backend}/{host}/") for backend, host in self._listed)

    # The sources

    async def _follow(self, watching: Subscription) -> None:
        try:
            async for event in watching:
                await self._take(event)
        finally:
            watching.close()

    async def _take(self, event: Event) -> None:
        match event:
            case Sampled(ref, stats):
                self._stats[ref] = stats
                self._dirty.add(str(ref))
            case Changed(sandbox):
                self._see(sandbox)
            case Listed(backend, host, sandboxes):
                self._listed.add((backend, host))
                there = {one.ref for one in sandboxes}
                gone = [ref for ref in self._known.values() if (ref.backend, ref.host) == (backend, host)]
                for ref in set(gone) - there:
                    self._drop(ref)
                for sandbox in sandboxes:
                    self._see(sandbox)
            case Removed(ref):
                self._drop(ref)
            case HealthChanged(health):
                self._dirty_places.add(f"{health.backend}/{health.host}")
            case Denied(ref):
                await self._take_denials(ref, event)
            case _:
                pass

    def _see(self, sandbox: Sandbox) -> None:
        subject = str(sandbox.ref)
        self._known[subject] = sandbox.ref
        self._dirty.add(subject)
        if "log" in self._on:
            self._logs.see(sandbox)
        if "restarts" in self._on:
            key = ("restarts", subject)
            happened, now = self._restarts.see(sandbox, self._new_positions.get(key, self._position(key)), self._now())
            self._happened += happened
            if now is not None:
                self._new_positions[key] = now

    def _drop(self, ref: SandboxRef) -> None:
        subject = str(ref)
        self._known.pop(subject, None)
        self._stats.pop(ref, None)
        self._denied.pop(ref, None)
        self._dirty.add(subject)
        self._logs.drop(ref)
        for source in ("log", "restarts", "denied"):
            if self._position((source, subject)) is not None:
                self._new_positions[source, subject] = None

    def _position(self, key: Key) -> Any:
        return self._given_places.get(key, self._places.get(key))

    def _read_to(self, ref: SandboxRef) -> Read | None:
        key = ("log", str(ref))
        position = self._new_positions.get(key, self._position(key))
        return convert(position, Read) if position is not None else None

    def _take_lines(self, sandbox: Sandbox, matches: Sequence[Match], read: Read) -> None:
        subject = str(sandbox.ref)
        self._happened += [Happened(one.rule, subject, sandbox.name, one.times, one.text) for one in matches]
        self._new_positions["log", subject] = to_builtins(read)

    async def _take_denials(self, ref: SandboxRef, event: Denied) -> None:
        sandbox = self._console.hub.sandboxes.get(ref)
        rules = [name for name, rule in self._rules.items() if rule.on == "denied"]
        if sandbox is None or not (rules := [name for name in rules if fits(sandbox, self._tests[name])]):
            return
        key = ("denied", str(ref))
        before = self._denied.get(ref)
        if before is None:
            position = cast("float | None", self._new_positions.get(key, self._position(key)))
            found = await denials(
                self._console, ref, min(self._since[one] for one in rules) if position is None else position
            )
        else:
            found = [(event.at, event.host)] * min(event.count - before, max(self._rules[one].count for one in rules))
        self._denied[ref] = event.count
        for name in rules if found else ():
            times = tuple(at for at, _ in found if at >= self._since[name])
            text = f"was refused {found[-1][1]}"
            self._happened += [Happened(name, str(ref), sandbox.name, times, text)] if times else []
        if found:
            self._new_positions[key] = found[-1][0]

    async def _read_audit(self) -> None:
        rules = [(name, rule) for name, rule in self._rules.items() if rule.on == "audit"]
        async for entry in self._audit.ended():
            at = (entry.end or entry.attempt).at_ns / 1e9
            name_of = str(entry.attempt.body.get("name") or entry.attempt.target or "the console")
            for name, rule in rules:
                if at >= self._since[name] and (text := conditions.audit_text(rule, entry)):
                    self._happened.append(Happened(name, entry.attempt.target or "audit", name_of, (at,), text))
        self._new_positions["audit", ""] = to_builtins(self._audit.position)
