"""Permits for tests of backends, from a real journal in a temporary file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox_console.audit.journal import Journal
from sandbox_console.model.action import Permit

MakePermit = Callable[[str], Awaitable[Permit]]


@asynccontextmanager
async def permit_maker(folder: Path) -> AsyncIterator[MakePermit]:
    """``await make("create")`` returns a permit whose attempt is on record in ``folder``."""
    journal = await Journal.open(folder / "audit" / "audit.db", actor="test")

    async def make(verb: str) -> Permit:
        return await journal.begin(verb, "test", "", {})

    try:
        yield make
    finally:
        await journal.close()


@pytest.fixture
async def permit(tmp_path: Path) -> AsyncIterator[MakePermit]:
    """A fixture that makes permits."""
    async with permit_maker(tmp_path) as make:
        yield make
