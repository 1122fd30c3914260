"""A draft of one sandbox's egress rules, and the traffic it is tested on. Without Textual: the screen shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import ChangeEgress
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console, Deny, Traffic
from sandbox_console.service.reads.egress_draft import change_to, write_draft
from sandbox_console.tui.egress.draft_text import Trial, try_draft

HOSTS_MOST = 2000
_BREATHE = 500
"""Recorded connections read before the event loop gets to run, so that keys are handled."""


class Draft:
    """A draft. ``rules`` are the rules in force, as far as they have been read; ``text`` is the user's draft."""

    def __init__(self, console: Console, sandbox: Sandbox, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self.sandbox = sandbox
        self.rules: Sequence[EgressRule] = ()
        self.begun = ""
        self.text = ""
        self.traffic = Traffic(HOSTS_MOST)
        self.trial = Trial()
        self.refused: Mapping[int, str] = {}
        self.refusal = ""
        self._last: float | None = None

    @property
    def edited(self) -> bool:
        """Whether the draft differs from its initial text."""
        return self.text != self.begun

    async def load(self) -> None:
        """Read the rules and the recorded traffic again. Keeps edits. Raises ConsoleError."""
        edited = self.edited
        self.rules = (await self._console.egress.state(self.sandbox.ref)).rules
        self.begun = write_draft(self.rules, self._clock())
        self.text = self.text if edited else self.begun
        self.traffic, self._last = Traffic(HOSTS_MOST), None
        await self._read()

    async def follow(self, news: Callable[[], object]) -> None:
        """Add this sandbox's new traffic from now on. Calls ``news`` for each record. Raises ConsoleError."""
        with self._console.denials.news() as seen:
            await self._read()  # records that arrived since the load
            while True:
                sandbox, record = await seen.get()
                if sandbox.ref == self.sandbox.ref and self._add(record):
                    news()

    async def _read(self) -> None:
        """Add what has been recorded since the last record that was added."""
        count = 0
        async with aclosing(self._console.egress.records(self.sandbox.ref, since=self._last)) as records:  # type: ignore[type-var]
            async for record in records:
                count += self._add(record)
                if count % _BREATHE == 0:
                    await asyncio.sleep(0)

    def _add(self, record: EgressRecord) -> bool:
        """Count a record unless it was already counted. Records arrive in time order."""
        if self._last is not None and record.at <= self._last:
            return False
        self.traffic.add(record)
        self._last = record.at
        return True

    async def try_out(self, *, changes: bool) -> None:
        """Parse the text, replay the traffic on it, and check it against the policy."""
        self.trial = await asyncio.to_thread(
            try_draft, self.text, self.traffic.tallies, self.rules, self._clock(),
            allow_ip=self._console.config.policy.egress_ip, changes=changes,
        )  # fmt: skip
        await self._ask_policy(self.action)

    @property
    def action(self) -> ChangeEgress | None:
        """The action that puts the valid lines in force, or None if nothing differs."""
        return change_to(self.sandbox.ref, self.rules, self.trial.rules)

    def after(self, action: ChangeEgress) -> Sequence[EgressRule]:
        """Return the rules as they would be after an action."""
        return self._console.egress.preview(self.rules, action)

    def notes(self, action: ChangeEgress) -> Sequence[str]:
        """Return a sentence for each secret that could be sent to more hosts."""
        opened = self._console.egress.opened(self.rules, self.after(action))
        return self._console.secrets.further(self.sandbox, opened)

    async def stale(self) -> bool:
        """Return whether the rules in force have changed in the meantime. Raises ConsoleError."""
        return set((await self._console.egress.state(self.sandbox.ref)).rules) != set(self.rules)

    async def _ask_policy(self, action: ChangeEgress | None) -> None:
        """Read the policy's verdict on the whole draft, and on each line that it refuses."""
        denial = await self._denied(action) if action is not None else None
        refused: dict[int, str] = {}
        if action is not None and denial is not None and denial.rule == "policy.egress":
            for at, line in enumerate(self.trial.lines):
                if line.rule in action.add and line.rule.effect is Effect.ALLOW:
                    alone = await self._denied(ChangeEgress(action.ref, (line.rule,)))
                    refused |= {at: alone.reason} if alone else {}
        self.refused, self.refusal = refused, denial.reason if denial else ""

    async def _denied(self, action: ChangeEgress) -> Deny | None:
        try:
            decision = await self._console.decide(action, self.sandbox)
        except ConsoleError as error:
            return Deny(error.message, "request")
        return decision if isinstance(decision, Deny) else None
