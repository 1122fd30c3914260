"""Secrets resolved for an action, and the redactor that knows every value resolved so far."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from sandbox_console.errors import SecretError
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets import sources
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.sources import SecretSource


class Vault:
    """Holds references; values only as the forms that the redactor looks for."""

    def __init__(self, table: Mapping[str, SecretSource]) -> None:
        self._table = table
        self.redactor = Redactor()
        self.injects: dict[str, str] = {name: source.inject for name, source in table.items()}

    @property
    def names(self) -> list[str]:
        """The names that the config defines."""
        return sorted(self._table)

    def undefined(self, names: Iterable[str]) -> list[str]:
        """Which of the names the config does not define."""
        return [name for name in names if name not in self._table]

    async def resolve(self, names: Iterable[str]) -> list[ResolvedSecret]:
        """Read the values, off the event loop. Raises SecretError."""
        wanted = list(names)
        if not wanted:
            return []
        found = await asyncio.to_thread(sources.resolve, wanted, self._table)
        self.redactor.add(secret.value for secret in found)
        return found

    async def learn(self, names: Iterable[str]) -> list[str]:
        """Make the redactor know the values of these; gives the names that cannot be resolved now."""
        missing: list[str] = []
        for name in names:
            try:
                await self.resolve([name])
            except SecretError:
                missing.append(name)
        return missing
