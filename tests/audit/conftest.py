"""Logs to look at, and the hands of one who would spoil them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from sandbox_console.audit.journal import Journal
from sandbox_console.audit.retention import Keep
from sandbox_console.model.audit import Outcome

SMALL = Keep(segment_bytes=150_000)
"""Segments of about 100 actions."""


async def act(journal, count, **body):
    """``count`` actions with their outcomes; gives the attempts' ids."""
    ids = []
    for number in range(count):
        permit = await journal.begin("exec", "fake", f"box-{number % 7}", {"n": number} | body)
        await journal.finish(permit, Outcome.OK if number % 10 else Outcome.FAILED, 1, {})
        ids.append(permit.audit_id)
    return ids


def spoil(path, *statements):
    """As one who can write the file: without its triggers."""
    with closing(sqlite3.connect(path)) as connection:
        for [name] in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.fixture
async def segmented(tmp_path):
    """A closed log of several segments."""
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test", SMALL)
    await act(journal, 400)
    await journal.close()
    return path
