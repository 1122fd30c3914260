"""Logs to look at, and the hands of one who would spoil them."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing

import pytest

from sandbox_console.audit import schema
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.model.audit import Outcome

SMALL = RetentionPolicy(segment_bytes=150_000)
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


def flip(path, at):
    """Change one bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def make_old(connection, head):
    """`schema.create` as version 2 of it was: rows of form 1, without MACs."""
    for statement in schema._statements():
        connection.execute(statement.replace(schema._MACS, ""))
    meta = {"console_uuid": head.console, "genesis": head.genesis.hex(), "first_seq": str(head.first_seq)}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", (meta | {"index": str(head.index)}).items())
    connection.execute("PRAGMA user_version = 2")


@pytest.fixture
async def old(tmp_path, monkeypatch):
    """A closed log of the old form; it is continued in the new one once it is rotated."""
    path = tmp_path / "old" / "audit.db"
    with monkeypatch.context() as patched:
        patched.setattr(schema, "create", make_old)
        patched.setattr(Keys, "make", lambda self, form=1, make=Keys.make: make(self, 1))
        journal = await Journal.open(path, "user:größe")
        await act(journal, 10)
        await journal.close()
    return path


@pytest.fixture(scope="session")
def several(tmp_path_factory):
    """The folder of a closed log of three segments, made once."""
    folder = tmp_path_factory.mktemp("several")

    async def write():
        journal = await Journal.open(folder / "audit.db", "test", SMALL)
        await act(journal, 400)
        await journal.close()

    asyncio.run(write())
    return folder


@pytest.fixture
def segmented(several, tmp_path):
    """A copy of it; gives its first segment."""
    shutil.copytree(several, tmp_path / "log")
    return tmp_path / "log" / "audit.db"
