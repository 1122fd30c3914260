"""A draft of one sandbox's egress rules and the traffic it is tried on. The screen shows it; no Textual here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import ChangeEgress
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console, Deny, Traffic, change_to, write_draft
from sandbox_console.tui.egress.draft_text import Trial, try_draft

HOSTS_MOST = 2000
_BREATHE = 500
"""Records between two looks at the keyboard, while those on record are read."""


class Draft:
    """``rules`` are those in force, as far as they were read; ``text`` is what a person has written."""

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
        """Whether it is other than what it began with."""
        return self.text != self.begun

    async def load(self) -> None:
        """Read the rules and the record again; what was edited stays. Raises ConsoleError."""
        edited = self.edited
        self.rules = (await self._console.egress.state(self.sandbox.ref)).rules
        self.begun = write_draft(self.rules, self._clock())
        self.text = self.text if edited else self.begun
        self.traffic, self._last = Traffic(HOSTS_MOST), None
        await self._read()

    async def follow(self, news: Callable[[], object]) -> None:
        """Add what the feed reads of this sandbox from now on; ``news`` is called for each. Raises ConsoleError."""
        with self._console.denials.news() as seen:
            await self._read()  # what came since the load
            while True:
                sandbox, record = await seen.get()
                if sandbox.ref == self.sandbox.ref and self._add(record):
                    news()

    async def _read(self) -> None:
        """Add what is on record since the last that was added."""
        count = 0
        async with aclosing(self._console.egress.records(self.sandbox.ref, since=self._last)) as found:  # type: ignore[type-var]
            async for record in found:
                count += self._add(record)
                if count % _BREATHE == 0:
                    await asyncio.sleep(0)

    def _add(self, record: EgressRecord) -> bool:
        """Count a record, unless it was counted already: they come in the order of their times."""
        if self._last is not None and record.at <= self._last:
            return False
        self.traffic.add(record)
        self._last = record.at
        return True

    async def try_out(self, *, changes: bool) -> None:
        """Read the text, replay it, and ask the policy what it would say."""
        self.trial = await asyncio.to_thread(
            try_draft, self.text, self.traffic.tallies, self.rules, self._clock(),
            allow_ip=self._console.config.policy.egress_ip, changes=changes,
        )  # fmt: skip
        await self._ask_policy(self.action)

    @property
    def action(self) -> ChangeEgress | None:
        """What puts the good lines in force; None where nothing differs."""
        return change_to(self.sandbox.ref, self.rules, self.trial.rules)

    def after(self, action: ChangeEgress) -> Sequence[EgressRule]:
        """The rules as an action would leave them."""
        return self._console.egress.preview(self.rules, action)

    def notes(self, action: ChangeEgress) -> Sequence[str]:
        """Which secrets could go further, a sentence each."""
        opened = self._console.egress.opened(self.rules, self.after(action))
        return self._console.secrets.further(self.sandbox, opened)

    async def stale(self) -> bool:
        """Whether the rules in force are others by now. Raises ConsoleError."""
        return set((await self._console.egress.state(self.sandbox.ref)).rules) != set(self.rules)

    async def _ask_policy(self, action: ChangeEgress | None) -> None:
        """What it says to the whole, and beside each line that it refuses."""
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
