"""What rules count: restarts, and connections that were refused while nobody watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from sandbox_console.errors import ConsoleError
from sandbox_console.model.egress import Outcome
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.sandbox_filter import FieldTest, fits
from sandbox_console.service.alert_options import AlertRule
from sandbox_console.service.console import Console


class Happened(Struct, frozen=True):
    """Something that a rule counts. ``name`` and ``text`` may come from a guest; each time counts ``often``."""

    rule: str
    subject: str
    name: str
    times: tuple[float, ...]
    text: str
    often: int = 1


class Restarts:
    """Finds restarts by comparing each state of a sandbox with the one before, which may be an earlier process's."""

    def __init__(
        self, rules: Mapping[str, AlertRule], tests: Mapping[str, Sequence[FieldTest]], since: Mapping[str, float]
    ) -> None:
        self._rules = {name: rule for name, rule in rules.items() if rule.on == "restarts"}
        self._tests, self._since = tests, since

    def see(self, sandbox: Sandbox, before: Any, now: float) -> tuple[list[Happened], Any]:
        """The restarts since ``before``, and what to remember of this state; None if that did not change."""
        state = [sandbox.restarts or 0, sandbox.started_at]
        if state == before:
            return [], None
        times = self._times(sandbox, before, now)
        at = sandbox.started_at or now
        found = [
            Happened(name, str(sandbox.ref), sandbox.name, (at,), "it restarted", times)
            for name in self._rules
            if times and at >= self._since[name] and fits(sandbox, self._tests[name])
        ]
        return found, state

    def _times(self, sandbox: Sandbox, before: Any, now: float) -> int:
        restarts = sandbox.restarts or 0
        if before is None:  # of one that is older than the rules, how often it restarted since is not known
            oldest = min(self._since.values(), default=now)
            return restarts if sandbox.created_at is not None and sandbox.created_at >= oldest else 0
        count: int = before[0]
        started: float | None = before[1]
        again = started is not None and sandbox.started_at is not None and sandbox.started_at > started
        return max(restarts - count, int(again))


async def denials(console: Console, ref: SandboxRef, since: float) -> list[tuple[float, str]]:
    """The times and hosts of the connections that a sandbox was refused after a time; none if that cannot be read."""
    try:
        records = [record async for record in console.egress.records(ref, since=since)]
    except ConsoleError:
        return []
    return [(record.at, record.host) for record in records if record.outcome is Outcome.DENIED and record.at > since]
