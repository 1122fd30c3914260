"""The journal: an attempt is committed before its effect, an outcome after it. The only maker of permits."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import aiosqlite

from sandbox_console.audit.sessions import Session
from sandbox_console.audit.store import Draft, Store, unavailable
from sandbox_console.audit.thread import connect, to_the_end, unit
from sandbox_console.errors import AuditUnavailable
from sandbox_console.model.action import Permit
from sandbox_console.model.audit import Kind, Outcome

T = TypeVar("T")


class Journal:
    """The writing end of one process. Made by :meth:`open`; every method raises AuditUnavailable when it cannot write.

    Each append is one function on the connection's own thread: cancelling an append of several awaits
    left the transaction open in 54 of 200 tries, and this in none.
    """

    def __init__(self, db: aiosqlite.Connection, store: Store, session: Session, actor: str) -> None:
        self._db = db
        self._store = store
        self._session = session
        self._actor = actor
        self._attempts: dict[int, Draft] = {}

    @classmethod
    async def open(cls, path: Path, actor: str) -> Self:
        """Open or make the log at ``path``, start a session, and end as unknown what dead sessions left open."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            db = await connect(path)
        except (OSError, sqlite3.Error) as error:
            raise unavailable(error, path) from error
        store: Store | None = None
        session: Session | None = None
        try:
            store = await to_the_end(unit(db, lambda: Store(db._conn, path)))  # noqa: SLF001
            folder = path.parent / "sessions"
            session = Session(folder)
            await unit(db, store.close_dead_sessions, folder, actor, session.id)
        except BaseException as error:
            await db.close()
            if session is not None:
                session.close()
            if store is not None:
                store.release()
            if isinstance(error, (OSError, sqlite3.Error)):
                raise unavailable(error, path) from error
            raise
        return cls(db, store, session, actor)

    async def close(self) -> None:
        """End the session. Attempts still open become unknown when the next console starts."""
        try:
            await to_the_end(self._run(self._store.close))
        finally:
            await to_the_end(self._db.close())
            self._session.close()

    async def begin(self, action: str, backend: str, target: str, body: Mapping[str, Any]) -> Permit:
        """Commit an attempt and permit its effect. Cancelled while it commits, it records that and is cancelled."""
        draft = self._draft(Kind.ATTEMPT, action, backend, target, body)
        task = asyncio.ensure_future(self._run(self._store.append, draft))
        try:
            [seq] = await asyncio.shield(task)
        except asyncio.CancelledError:
            with suppress(AuditUnavailable):  # nothing was permitted: the cancellation is what the caller must see
                await to_the_end(self._abandon(task, draft))
            raise
        self._attempts[seq] = draft
        return Permit(audit_id=seq, verb=action)

    async def refuse(
        self, action: str, backend: str, target: str, body: Mapping[str, Any], outcome: Outcome, why: Mapping[str, Any]
    ) -> int:
        """Commit an attempt that was not permitted, with its outcome, in one transaction; gives the attempt's seq."""
        attempt = self._draft(Kind.ATTEMPT, action, backend, target, body)
        end = Draft(Kind.OUTCOME, attempt.actor, attempt.session, action, backend, target, None, attempt.request_id,
                    outcome, 0, why)  # fmt: skip
        seqs = await to_the_end(self._run(self._store.append, attempt, end))
        return seqs[0]

    async def finish(
        self, permit: Permit, outcome: Outcome, dur_us: int, body: Mapping[str, Any], *, target: str = ""
    ) -> None:
        """Commit how the attempt ended, also while the caller is being cancelled.

        ``target`` is the sandbox's ref where the attempt could not know it yet.
        """
        draft = self._attempts.pop(permit.audit_id)
        if target:
            draft = dataclasses.replace(draft, target=target)
        await self._end(permit.audit_id, draft, outcome, dur_us, body)

    async def note(self, permit: Permit, backend: str, target: str, body: Mapping[str, Any]) -> None:
        """Add what became known after the outcome: how a shell ended."""
        draft = self._draft(Kind.NOTE, permit.verb, backend, target, body, ref=permit.audit_id)
        await to_the_end(self._run(self._store.append, draft))

    async def _abandon(self, append: asyncio.Future[list[int]], draft: Draft) -> None:
        [seq] = await append
        await self._end(seq, draft, Outcome.CANCELLED, None, {})

    async def _end(
        self, seq: int, attempt: Draft, outcome: Outcome, dur_us: int | None, body: Mapping[str, Any]
    ) -> None:
        draft = Draft(Kind.OUTCOME, attempt.actor, attempt.session, attempt.action, attempt.backend, attempt.target,
                      seq, attempt.request_id, outcome, dur_us, body)  # fmt: skip
        await to_the_end(self._run(self._store.append, draft))

    def _draft(
        self, kind: Kind, action: str, backend: str, target: str, body: Mapping[str, Any], ref: int | None = None
    ) -> Draft:
        return Draft(kind, self._actor, self._session.id, action, backend, target, ref, uuid.uuid4().hex[:16],
                     body=body)  # fmt: skip

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await unit(self._db, function, *args)
