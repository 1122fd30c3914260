"""Secrets resolved for an action, and the redactor that knows every value resolved so far."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from sandbox_console.errors import SecretError
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.secret import Inject, ResolvedSecret
from sandbox_console.secrets import sources
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.sources import SecretSource


class Vault:
    """Holds references; values only as the forms that the redactor looks for."""

    def __init__(self, table: Mapping[str, SecretSource]) -> None:
        self.table = table
        self.redactor = Redactor()
        self._known: set[str] = set()
        self._learning: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def names(self) -> list[str]:
        """The names that the config defines."""
        return sorted(self.table)

    def injects(self, capabilities: Capabilities) -> dict[str, Inject]:
        """How a backend hands each secret over."""
        return {name: source.inject_on(capabilities) for name, source in self.table.items()}

    def undefined(self, names: Iterable[str]) -> list[str]:
        """Which of the names the config does not define."""
        return [name for name in names if name not in self.table]

    async def resolve(self, names: Iterable[str]) -> list[ResolvedSecret]:
        """Read the values, off the event loop. Raises SecretError."""
        found = await sources.resolve(names, self.table)
        self.redactor.add(secret.value for secret in found)
        self._known |= {secret.name for secret in found}
        return found

    async def learn(self, names: Iterable[str], *, acting: bool = True) -> list[str]:
        """Make the redactor know the values of these; gives the names that cannot be resolved now.

        A variable or a file is read each time, so that a new value is known. A keyring or a program is asked once, and
        not at all unless ``acting``: before an action is on record, nothing of the user's is run for it.
        """
        missing: list[str] = []
        for name in names:
            async with self._learning[name]:
                missing += [] if await self._learned(name, acting=acting) else [name]
        return missing

    async def _learned(self, name: str, *, acting: bool) -> bool:
        source = self.table.get(name)
        if source is None:
            return False
        if sources.acts(source) and (not acting or name in self._known):
            return name in self._known
        try:
            await self.resolve([name])
        except SecretError:
            return False
        return True
