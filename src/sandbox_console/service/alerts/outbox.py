"""Delivers messages: one task for each channel, which tries again until a message has arrived or is too old."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import structs

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs.guest_writable import AROUND
from sandbox_console.model.alert import AlertMessage, Delivery
from sandbox_console.model.audit import Outcome
from sandbox_console.service.alert_options import AlertChannel, AlertOptions
from sandbox_console.service.alerts.channels.channel import NotDelivered, Reveal
from sandbox_console.service.alerts.channels.desktop import Write
from sandbox_console.service.alerts.store import AlertStore
from sandbox_console.service.console import Console
from sandbox_console.service.gate.description import origin

FIRST_S, MOST_S = 1.0, 300.0
"""The wait after a first failure, and the longest; it doubles each time, and a fifth of it is random."""
_LOOK_S = 1.0
_UNTIL_IDLE_S = 60.0


class Outbox:
    """Sends what the store holds. ``write`` writes to this process's terminal, if it has one."""

    def __init__(
        self, console: Console, store: AlertStore, options: AlertOptions, *, write: Write | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._console, self._store, self._options = console, store, options
        self._write, self._now = write, now
        self._news = {name: asyncio.Event() for name in options.channels}
        self._silent_until: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    def wake(self) -> None:
        """Look for new messages now."""
        for news in self._news.values():
            news.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        await self._give_up_unknown()
        async with asyncio.TaskGroup() as group:
            for name in self._options.channels:
                group.create_task(self._channel(name))

    async def _channel(self, name: str) -> None:
        while True:
            self._news[name].clear()
            wait = _LOOK_S
            with suppress(ConsoleError):  # the store cannot be read now: the rules report that
                await self.deliver(name)
                wait = await self._until_next(name)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news[name].wait()

    async def _until_next(self, name: str) -> float:
        """Seconds until a message for a channel is due. Looks now and then, because the clock may be set."""
        due = await asyncio.to_thread(self._store.next_due, name)
        if due is None:
            return _UNTIL_IDLE_S
        return min(max(max(due, self._silent_until.get(name, 0.0)) - self._now(), 0.05), _UNTIL_IDLE_S)

    async def deliver(self, name: str) -> None:
        """Send the messages for a channel that are due, oldest first. A receiver that is away ends the round."""
        while self._now() >= self._silent_until.get(name, 0.0):
            due = await asyncio.to_thread(self._store.due, name, self._now())
            if not due:
                return
            for delivery in due:
                if not await self._try(delivery):
                    break

    async def _try(self, delivery: Delivery) -> bool:
        """Send one. Returns whether the channel can take another one."""
        channel = self._options.channels[delivery.channel]
        try:
            await send(self._console, channel, delivery.message, self._write)
        except ConsoleError as error:
            return await self._failed(delivery, error)
        self._failures.pop(delivery.channel, None)
        await asyncio.to_thread(self._store.delivered, delivery)
        await self._record(delivery, Outcome.OK, "")
        return True

    async def _failed(self, delivery: Delivery, error: ConsoleError) -> bool:
        now = self._now()
        attempts = delivery.attempts + 1
        if now - delivery.message.at > self._options.keep_days * 86400:
            await asyncio.to_thread(self._store.delivered, delivery)
            await self._record(delivery, Outcome.FAILED, error.message)
            return True
        asked = error.again_s if isinstance(error, NotDelivered) else None
        later = now + max(_backoff(attempts), asked or 0.0)
        failed = structs.replace(delivery, attempts=attempts, next_at=later, error=error.message)
        await asyncio.to_thread(self._store.failed, failed)
        count = self._failures[delivery.channel] = self._failures.get(delivery.channel, 0) + 1
        self._silent_until[delivery.channel] = now + max(_backoff(count), asked or 0.0)
        return False

    async def _record(self, delivery: Delivery, outcome: Outcome, error: str) -> None:
        """Record that a message has arrived, or was given up. Without the audit log it is delivered all the same."""
        message = delivery.message
        body = {"origin": origin(), "name": message.alerts[0].name, "channel": delivery.channel, "message": message.id,
                "rule": message.rule, "status": message.status, "alerts": [alert.id for alert in message.alerts],
                "attempts": delivery.attempts + 1}  # fmt: skip
        subject = message.alerts[0].subject
        with suppress(ConsoleError):
            journal = await self._console.audit_log.journal()
            permit = await journal.begin("alert-delivery", subject.partition("/")[0], subject, body)
            await journal.finish(permit, outcome, 0, {"error": error} if error else {})

    async def _give_up_unknown(self) -> None:
        """Remove messages for channels that the configuration does not have any more."""
        with suppress(ConsoleError):
            for delivery in await asyncio.to_thread(self._store.waiting):
                if delivery.channel not in self._options.channels:
                    await asyncio.to_thread(self._store.delivered, delivery)
                    await self._record(delivery, Outcome.FAILED, "the configuration has no such channel any more")


def _backoff(attempts: int) -> float:
    return min(FIRST_S * 2.0 ** min(attempts - 1, 30), MOST_S) * random.uniform(0.8, 1.0)  # noqa: S311 - no secret


async def send(console: Console, channel: AlertChannel, message: AlertMessage, write: Write | None = None) -> None:
    """Send a message over a channel once. Raises NotDelivered, SecretError."""
    reveal: Reveal = console.channel_secret
    match channel.kind:
        case "webhook":
            from sandbox_console.service.alerts.channels import webhook

            await webhook.send(channel, message, reveal)
        case "email":
            from sandbox_console.service.alerts.channels import email

            await email.send(channel, message, reveal)
        case "command":
            from sandbox_console.service.alerts.channels import command

            AROUND.set(await console.ground())
            await command.send(channel, message, reveal)
        case "desktop":
            from sandbox_console.service.alerts.channels import desktop

            await desktop.send(channel, message, write)
