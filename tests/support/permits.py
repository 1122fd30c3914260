"""Permits for tests of backends: from a real journal, as everywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandbox_console.audit.journal import Journal
from sandbox_console.model.action import Permit

MakePermit = Callable[[str], Awaitable[Permit]]


@pytest.fixture
async def permit(tmp_path: Path) -> AsyncIterator[MakePermit]:
    """``await permit("create")`` gives a permit whose attempt is on record."""
    journal = await Journal.open(tmp_path / "audit" / "audit.db", actor="test")

    async def make(verb: str) -> Permit:
        return await journal.begin(verb, "test", "", {})

    yield make
    await journal.close()
