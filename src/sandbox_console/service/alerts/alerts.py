"""What faces do with alerts: list them, silence them, and try the channels."""

from __future__ import annotations

import asyncio
import platform
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from glob import escape
from typing import Any, TypeVar

from sandbox_console.errors import NotFound
from sandbox_console.model.access import access
from sandbox_console.model.alert import Alert, AlertMessage, AlertState, Delivery, Silence
from sandbox_console.service.alerts.channels.desktop import Write
from sandbox_console.service.alerts.lifecycle import is_silenced
from sandbox_console.service.alerts.outbox import send
from sandbox_console.service.alerts.store import AlertStore
from sandbox_console.service.alerts.watch import alerts_folder, runs
from sandbox_console.service.console import Console
from sandbox_console.service.gate.local_change import local_change

T = TypeVar("T")


class AlertBook:
    """The alerts in a console's state. What changes something is recorded in the audit log."""

    def __init__(self, console: Console, now: Callable[[], float] = time.time) -> None:
        self._console, self._now = console, now
        self._store = AlertStore(alerts_folder(console))

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    async def alerts(self, *, resolved: bool = False) -> Sequence[Alert]:
        """The firing alerts, and with ``resolved`` also the resolved ones; the newest first. Raises ConsoleError."""
        return await self._visible(await asyncio.to_thread(lambda: self._store.alerts(resolved=resolved)))

    async def changed_since(self, number: int) -> tuple[int, Sequence[Alert]]:
        """The newest number, and the alerts that changed after ``number``. Raises ConsoleError."""
        newest, changed = await asyncio.to_thread(self._store.changed_since, number)
        return newest, await self._visible(changed)

    async def waiting(self) -> Sequence[Delivery]:
        """Messages that have not arrived, oldest first; none for who sees only some sandboxes. Raises ConsoleError."""
        if access().labels:
            return ()
        return await asyncio.to_thread(self._store.waiting)

    async def silences(self) -> Sequence[Silence]:
        """The silences in force; none for who sees only some sandboxes. Raises ConsoleError."""
        if access().labels:
            return ()
        return await asyncio.to_thread(self._store.silences, self._now())

    async def watcher(self) -> str:
        """The id of the process that runs the rules; empty if none does."""
        return await asyncio.to_thread(runs, alerts_folder(self._console))

    async def silence(self, rule: str, sandbox: str, seconds: float, reason: str = "") -> Silence:
        """Turn off messages of matching rules and sandboxes. Raises Denied, AuditUnavailable, ConsoleError."""
        now, reason = self._now(), await self._console.sentence(reason)
        store, by = self._store, self._console.audit_log.actor

        async def act() -> Silence:
            return await asyncio.to_thread(store.silence, rule, sandbox, now + seconds, by, reason, now)

        body = {"rule": rule, "sandbox": sandbox, "seconds": seconds, "reason": reason}
        return await self._recorded("alert-silence", body, act)

    async def silence_alert(self, alert: Alert, seconds: float, reason: str = "") -> Silence:
        """Turn off the messages of an alert's rule about its subject. Raises what ``silence`` raises."""
        return await self.silence(escape(alert.rule), escape(alert.subject), seconds, reason)

    async def end_silence_of(self, alert: Alert) -> Sequence[Silence]:
        """Turn on again what ``silence_alert`` turned off. Returns the silences that still cover the alert.

        Another console may have ended it in the meantime. Raises Denied, AuditUnavailable, ConsoleError.
        """
        for silence in await self.silences():
            if (silence.rule, silence.sandbox) == (escape(alert.rule), escape(alert.subject)):
                with suppress(NotFound):
                    await self.end_silence(silence.id)
        return [silence for silence in await self.silences() if is_silenced(alert, [silence], self._now())]

    async def end_silence(self, id_: int) -> Silence:
        """Turn messages on again. Raises NotFound, Denied, AuditUnavailable, ConsoleError."""

        async def act() -> Silence:
            return await asyncio.to_thread(self._store.end_silence, id_)

        return await self._recorded("alert-unsilence", {"silence": id_}, act)

    async def test(self, channel: str, write: Write | None = None) -> None:
        """Send a message over a channel now. Raises NotFound, NotDelivered, SecretError, Denied, AuditUnavailable."""
        options = self._console.config.alerts.channels
        if channel not in options:
            there = ", ".join(options) or "none: add a table [alerts.channels.NAME]"
            raise NotFound(f"there is no channel {channel!r}", hint=f"there is {there}")
        now, id_ = self._now(), secrets.token_hex(12)
        text = f"this tests the channel {channel}; nothing is wrong"
        alert = Alert(f"alert_{id_}", "test", "info", "test", "test", AlertState.FIRING, now, text, fired_at=now)
        message = AlertMessage(f"msg_{id_}", "test", "info", "test", now, platform.node(), (alert,), now + 60)
        await self._recorded(
            "alert-test", {"channel": channel, "message": message.id},
            lambda: send(self._console, options[channel], message, write),
        )  # fmt: skip

    async def _visible(self, alerts: Sequence[Alert]) -> Sequence[Alert]:
        """The alerts about backends, and about sandboxes that whoever asks may see."""
        if not alerts or not access().labels:
            return alerts
        of_backends = {alert.id for alert in alerts if alert.subject.count("/") < 2}
        shown = {alert.id for alert in await self._console.records.of_sandboxes(alerts, lambda alert: alert.subject)}
        return [alert for alert in alerts if alert.id in shown | of_backends]

    async def _recorded(self, verb: str, body: Mapping[str, Any], act: Callable[[], Awaitable[T]]) -> T:
        """Act, with an attempt and its outcome in the audit log."""
        console = self._console
        return await local_change(console.audit_log, verb, body, act, read_only=console.read_only)
