"""Records in the audit log who came by a browser: logins, wrong ones, sessions, and shares through a relay.

A session is an attempt with its end, so one that still runs has none, and one whose server was killed is settled by the
next console. A log that cannot be written keeps nobody out: people have to look when something is wrong, and whatever
changes something is refused by the app itself.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.actor import acting_as
from sandbox_console.model.audit import Outcome
from sandbox_console.service import find_paths
from sandbox_console.service.config import load
from sandbox_console.service.gate.audit_log import AuditLog, current_actor
from sandbox_console.service.gate.description import origin

LOGIN, SESSION, SHARE = "login", "browser-session", "share"
"""The actions in the log."""


class VisitRecords:
    """The rows of one server. ``log`` is None for a server that records nothing."""

    def __init__(self, log: AuditLog | None, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._open: dict[str, tuple[Permit, int]] = {}

    async def login(self, actor: str, outcome: Outcome) -> None:
        """Record a login that was let in, or a wrong token."""
        if (log := self._log) is None:
            return
        try:
            journal = await log.journal()
            with acting_as(actor):
                if outcome is Outcome.OK:
                    await journal.finish(await journal.begin(LOGIN, "", "", {"origin": origin()}), outcome, 0, {})
                else:
                    reason = {"code": "token", "error": "the token is not valid, or was used already"}
                    await journal.refuse(LOGIN, "", "", {"origin": origin()}, outcome, reason)
        except ConsoleError as error:
            self._warn(LOGIN, error)

    async def begin(self, verb: str, key: str, actor: str, body: Mapping[str, Any]) -> None:
        """Record that a session or a share begins."""
        if (log := self._log) is None:
            return
        try:
            with acting_as(actor):
                permit = await (await log.journal()).begin(verb, "", "", {"origin": origin(), **body})
            self._open[key] = permit, time.monotonic_ns()
        except ConsoleError as error:
            self._warn(verb, error)

    async def end(self, key: str, reason: str) -> None:
        """Record that it ended, and why."""
        if self._log is None or key not in self._open:
            return
        permit, began = self._open.pop(key)
        try:
            journal = await self._log.journal()
            await journal.finish(permit, Outcome.OK, (time.monotonic_ns() - began) // 1000, {"reason": reason})
        except ConsoleError as error:
            self._warn(permit.verb, error)

    def _warn(self, verb: str, error: ConsoleError) -> None:
        self._say(f"warning: this {verb} is not in the audit log: {error.message}")


@asynccontextmanager
async def visit_records(
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
    try:
        yield VisitRecords(log, say)
    finally:
        await log.close()
