"""Evaluates the rules once a second, and writes what they find together with the messages about it."""

from __future__ import annotations

import asyncio
import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

import msgspec
from msgspec import structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.alert import Alert, AlertState, Silence, Status
from sandbox_console.model.audit import Outcome
from sandbox_console.service.alert_options import AlertOptions
from sandbox_console.service.alerts import lifecycle
from sandbox_console.service.alerts.findings import Findings, Unknown
from sandbox_console.service.alerts.lifecycle import Occurrence
from sandbox_console.service.alerts.store import AlertStore, Changes, Key, LastMessage, SavedAlerts
from sandbox_console.service.console import Console
from sandbox_console.service.gate.description import origin
from sandbox_console.service.incident.cause import judge

TICK_S = 1.0
"""How often the rules are evaluated."""
_JUDGED_MOST, _JUDGE_S = 20, 5.0
_FORGET_S = 3600.0
_RECORD_AGAIN_S = 5.0

Notice = Callable[[Alert], object]


class AlertEngine:
    """The rules of one state folder. Only one process runs them at a time: see ``watch.py``.

    ``notice`` is called with each alert that begins to fire or is over. ``problem`` says why nothing can be written.
    """

    def __init__(
        self, console: Console, store: AlertStore, options: AlertOptions, kept: SavedAlerts, notice: Notice,
        sent: Callable[[], object], now: Callable[[], float],
    ) -> None:  # fmt: skip
        self._console, self._store, self._options = console, store, options
        self._notice, self._sent, self._now = notice, sent, now
        self._open = {(alert.rule, alert.subject): alert for alert in kept.alerts}
        self._last_messages = dict(kept.last_message)
        self._findings = Findings(console, options.rules, kept.since, kept.hits, kept.places, now)
        self._forgot_at = 0.0
        self._record_at: float | None = 0.0
        self.problem = ""

    @classmethod
    async def open(
        cls, console: Console, store: AlertStore, options: AlertOptions, *, notice: Notice = lambda _: None,
        sent: Callable[[], object] = lambda: None, now: Callable[[], float] = time.time,
    ) -> Self:  # fmt: skip
        """Go on where an earlier process ended, and start following the sources. Raises ConsoleError."""
        digests = {name: _digest(rule) for name, rule in options.rules.items()}
        engine = cls(console, store, options, await asyncio.to_thread(store.kept, digests, now()), notice, sent, now)
        engine._findings.start()
        return engine

    async def run(self) -> None:
        """Go on until cancelled."""
        try:
            while True:
                await self.tick()
                await asyncio.sleep(TICK_S)
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop following."""
        await self._findings.close()

    async def tick(self) -> None:
        """Look once. If nothing can be written, what was found is kept and written the next time."""
        changes = Changes()
        try:
            await self._findings.collect(changes)
            ended = await self._evaluate(changes)
            if changes:
                await asyncio.to_thread(self._store.commit, changes, self._now())
                self._apply(changes)
                if changes.messages:
                    self._sent()
                for alert in ended:
                    self._notice(alert)
            self.problem = ""
        except ConsoleError as error:
            self.problem = error.message
            return
        await self._record(new=bool(ended))
        await self._forget()

    # What holds, and what follows from it

    async def _evaluate(self, changes: Changes) -> list[Alert]:
        """Put what changes into ``changes``. Returns the alerts that began to fire or are over."""
        now = self._now()
        silences = await asyncio.to_thread(self._store.silences, now)
        begun, over = list[Alert](), list[Alert]()
        for key, found in await self._looked(changes):
            before = self._open.get(key)
            after = self._after(key, before, found, now)
            if after is before:
                continue
            if after is None:
                changes.alerts |= {} if before is None else {before.id: None}
                continue
            changes.alerts[after.id] = after
            if before is None or before.state is not after.state:
                begun += [after] if after.state is AlertState.FIRING else []
                over += [after] if after.state is AlertState.RESOLVED else []
        for alert in await self._explained(begun):
            changes.alerts[alert.id] = alert
        self._write_messages(changes, silences, now)
        fired = {one.id for one in begun}
        return [*(one for one in changes.alerts.values() if one is not None and one.id in fired), *over]

    async def _looked(self, changes: Changes) -> list[tuple[Key, Occurrence | None]]:
        looked: list[tuple[Key, Occurrence | None]] = []
        for key in self._findings.to_look_at(self._open, changes):
            found = await self._findings.look(key, changes, fires=key in self._open)
            if not isinstance(found, Unknown):
                looked.append((key, found))
        return looked

    def _after(self, key: Key, before: Alert | None, found: Occurrence | None, now: float) -> Alert | None:
        name, _ = key
        rule = self._options.rules.get(name)
        if rule is None:
            over = "its rule is not in the configuration any more"
            return structs.replace(before, state=AlertState.RESOLVED, resolved_at=now, text=over) if before else None
        if before is None:
            if found is None:
                return None
            before = lifecycle.begun(name, rule, found, now)
        return lifecycle.stepped(before, rule, found, now, self._findings.why_over(key))

    async def _explained(self, alerts: Sequence[Alert]) -> list[Alert]:
        """The alerts about sandboxes that ended with the verdict on them, as far as it is known in time."""
        about = [alert for alert in alerts if self._options.rules[alert.rule].on == "state"][:_JUDGED_MOST]
        return [alert for alert in await asyncio.gather(*map(self._judged, about)) if alert is not None]

    async def _judged(self, alert: Alert) -> Alert | None:
        sandbox = self._findings.sandbox(alert.subject)
        if sandbox is None:
            return None
        with suppress(TimeoutError, ConsoleError):
            async with asyncio.timeout(_JUDGE_S):
                if (verdict := await judge(self._console, sandbox)) is not None:
                    return structs.replace(alert, text=lifecycle.cleaned(verdict.headline))
        return None

    def _write_messages(self, changes: Changes, silences: Iterable[Silence], now: float) -> None:
        """Add the messages that are due, those of one rule together."""
        firing = {key: one for key, one in self._open.items() if one.id not in changes.alerts}
        firing |= {(one.rule, one.subject): one for one in changes.alerts.values() if one is not None}
        due: dict[tuple[str, Status], list[Alert]] = {}
        for key, alert in firing.items():
            if alert.state is AlertState.PENDING or alert.rule not in self._options.rules:
                continue
            silenced = lifecycle.is_silenced(alert, silences, now)
            if silenced is not alert.silenced:
                alert = changes.alerts[alert.id] = structs.replace(alert, silenced=silenced)  # noqa: PLW2901
            before = self._last_messages.get(key)
            status, last_message = lifecycle.message_due(alert, self._options.rules[alert.rule], before, now)
            if last_message is not None:
                changes.last_message[key] = last_message
            if status is not None:
                due.setdefault((alert.rule, status), []).append(_with_kept(alert, before, status))
        for (name, status), alerts in due.items():
            rule = self._options.rules[name]
            channels = rule.to or tuple(self._options.channels)
            for message in lifecycle.messages(name, rule, alerts, status, platform.node(), now):
                if channels:
                    changes.messages.append((message, channels))

    def _apply(self, changes: Changes) -> None:
        for key in [key for key, alert in self._open.items() if alert.id in changes.alerts]:
            del self._open[key]
        for alert in changes.alerts.values():
            if alert is not None and alert.state is not AlertState.RESOLVED:
                self._open[alert.rule, alert.subject] = alert
        self._last_messages |= changes.last_message
        self._findings.applied(changes)

    # Afterwards

    async def _record(self, *, new: bool) -> None:
        """Record what fired and what is over in the audit log. What could not be recorded is tried again."""
        if not new and (self._record_at is None or self._now() < self._record_at):
            return
        try:
            for alert in await asyncio.to_thread(self._store.unrecorded):
                await record(self._console, alert, self._channels(alert))
                await asyncio.to_thread(self._store.recorded, alert)
            self._record_at = None
        except ConsoleError as error:
            self.problem = error.message
            self._record_at = self._now() + _RECORD_AGAIN_S

    def _channels(self, alert: Alert) -> Sequence[str]:
        rule = self._options.rules.get(alert.rule)
        return () if rule is None else rule.to or tuple(self._options.channels)

    async def _forget(self) -> None:
        now = self._now()
        if now - self._forgot_at > _FORGET_S:
            self._forgot_at = now
            with suppress(ConsoleError):
                await asyncio.to_thread(self._store.forget, now - self._options.keep_days * 86400)


async def record(console: Console, alert: Alert, channels: Sequence[str]) -> None:
    """Write a row of the audit log that an alert fired or is over. Raises AuditUnavailable."""
    journal = await console.audit_log.journal()
    backend = alert.subject.partition("/")[0]
    body = {
        "origin": origin(),
        "name": alert.name,
        "rule": alert.rule,
        "alert": alert.id,
        "state": str(alert.state),
        "severity": alert.severity,
        "text": alert.text,
        "silenced": alert.silenced,
        "to": list(channels),
    }
    permit = await journal.begin("alert", backend, alert.subject, body)
    await journal.finish(permit, Outcome.OK, 0, {})


def _with_kept(alert: Alert, last_message: LastMessage | None, status: Status) -> Alert:
    if status != "firing" or last_message is None or not last_message.kept:
        return alert
    return structs.replace(
        alert, text=lifecycle.cleaned(f"{alert.text} (and {last_message.kept} times since the last message)")
    )


def _digest(rule: object) -> str:
    return hashlib.sha256(msgspec.json.encode(rule)).hexdigest()
