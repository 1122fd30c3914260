"""Records in the audit log who came by a browser: logins, wrong ones, sessions, and shares through a relay.

A session is an attempt with its end, so one that still runs has none, and one whose server was killed is settled by the
next console. A log that cannot be written keeps nobody out: people have to look when something is wrong, and whatever
changes something is refused by the app itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.actor import acting_as
from sandbox_console.model.audit import Outcome
from sandbox_console.service import find_paths
from sandbox_console.service.config import load
from sandbox_console.service.gate.audit_log import AuditLog, current_actor
from sandbox_console.service.gate.description import origin

T = TypeVar("T")

WRONG = {
    "token": "the token is not valid, or was used already",
    "password": "the name or the password is wrong",
    "proxy": "the proxy names nobody who is a user here",
    "oidc": "the provider's answer is not valid, or its claims give no role",
}
"""Why a login was refused, by how it was tried."""

LOGIN, LOGOUT, SESSION, SHARE = "login", "logout", "browser-session", "share"
"""The actions in the log."""


WAIT_S = 2.0
"""Seconds that a visitor waits for a row. While a stopped console has the log, each takes 40, one after the other."""


class VisitRecords:
    """The rows of one server. ``log`` is None for a server that records nothing."""

    def __init__(self, log: AuditLog | None, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._open: dict[str, tuple[asyncio.Task[Permit | None], int]] = {}
        self._writing: set[asyncio.Task[Any]] = set()

    async def login(self, actor: str, outcome: Outcome, *, by: str = "token", user: str = "") -> None:
        """Record a login that was let in, or a wrong one. ``by`` is how; ``user`` is whose password was guessed."""
        if self._log is not None:
            await self._wait(self._start(LOGIN, self._login(self._log, actor, outcome, by, user)))

    async def logout(self, actor: str) -> None:
        """Record that somebody has logged out."""
        if self._log is not None:
            await self._wait(self._start(LOGOUT, self._logout(self._log, actor)))

    async def begin(self, verb: str, key: str, actor: str, body: Mapping[str, Any]) -> None:
        """Record that a session or a share begins."""
        if self._log is not None:
            task = self._start(verb, self._begin(self._log, verb, actor, body))
            self._open[key] = task, time.monotonic_ns()
            await self._wait(task)

    async def end(self, key: str, reason: str) -> None:
        """Record that it ended, and why."""
        if self._log is not None and key in self._open:
            began, at = self._open.pop(key)
            dur_us = (time.monotonic_ns() - at) // 1000
            await self._wait(self._start("end", self._end(self._log, began, dur_us, reason)))

    async def finish(self) -> None:
        """Wait for the rows that are still being written."""
        await asyncio.gather(*self._writing)

    def _start(self, verb: str, row: Coroutine[Any, Any, T]) -> asyncio.Task[T | None]:
        """Write a row. It is written, or reported as missing, also if nobody waits for it."""

        async def write() -> T | None:
            try:
                return await row
            except ConsoleError as error:
                self._warn(verb, error)
                return None

        task = asyncio.create_task(write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        await asyncio.wait({task}, timeout=WAIT_S)
        if task.done():
            task.result()

    async def _login(self, log: AuditLog, actor: str, outcome: Outcome, by: str, user: str) -> None:
        journal = await log.journal()
        body = {"origin": origin(), "by": by} | ({"user": user} if user else {})
        with acting_as(actor):
            if outcome is Outcome.OK:
                await journal.finish(await journal.begin(LOGIN, "", "", body), outcome, 0, {})
            else:
                await journal.refuse(LOGIN, "", "", body, outcome, {"code": by, "error": WRONG[by]})

    async def _logout(self, log: AuditLog, actor: str) -> None:
        journal = await log.journal()
        with acting_as(actor):
            await journal.finish(await journal.begin(LOGOUT, "", "", {"origin": origin()}), Outcome.OK, 0, {})

    async def _begin(self, log: AuditLog, verb: str, actor: str, body: Mapping[str, Any]) -> Permit:
        with acting_as(actor):
            return await (await log.journal()).begin(verb, "", "", {"origin": origin(), **body})

    async def _end(self, log: AuditLog, began: asyncio.Task[Permit | None], dur_us: int, reason: str) -> None:
        if (permit := await began) is not None:
            await (await log.journal()).finish(permit, Outcome.OK, dur_us, {"reason": reason})

    def _warn(self, verb: str, error: ConsoleError) -> None:
        self._say(f"warning: this {verb} is not in the audit log: {error.message}")


@asynccontextmanager
async def login_records(
    config: Path | None, say: Callable[[str], None], *, on: bool = True
) -> AsyncIterator[VisitRecords]:
    """The records of a server, for as long as it runs. Raises ConfigError."""
    if not on:
        yield VisitRecords(None, say)
        return
    paths = find_paths(config)
    paths.make_private()
    options = load(paths, required=config is not None).audit
    log = AuditLog(paths.audit_db, current_actor(), lambda _: None, options)
    records = VisitRecords(log, say)
    try:
        yield records
    finally:
        await records.finish()
        await log.close()
