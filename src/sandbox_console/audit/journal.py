"""The journal: it commits an attempt before its effect and an outcome after it. Only it makes permits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import structs

from sandbox_console.audit import lock, segment_index
from sandbox_console.audit.db_thread import Worker
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.open_segment import unavailable
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.audit.rows import Draft
from sandbox_console.audit.sessions import Session
from sandbox_console.audit.store import Store
from sandbox_console.audit.urgent_rows import FIRST, Claim, UrgentRows
from sandbox_console.errors import AuditUnavailable
from sandbox_console.hostfs import file_lock
from sandbox_console.model.action import Permit
from sandbox_console.model.actor import acting
from sandbox_console.model.audit import Kind, Outcome
from sandbox_console.model.cancellation import run_to_completion, shielded

T = TypeVar("T")


ANCHOR_S = 60.0
"""How old the newest row may get before it is signed."""

SUMMARISE_S = 5.0

HELD_UP_S = 0.05
"""How long an urgent row waits for the lock if the one before it could not get it."""


class Journal:
    """The writing end of one process, made by :meth:`open`. Every method raises AuditUnavailable if it cannot write.

    Each append is one function on the journal's own thread. When an append had several awaits, cancelling it left the
    transaction open in 54 of 200 tries; cancelling this one left it open in none.
    """

    def __init__(
        self, worker: Worker, layout: Layout, store: Store, session: Session, actor: str, *, held_up: bool,
        waits: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._worker = worker
        self._layout = layout
        self._store = store
        self._session = session
        self._actor = actor
        self._attempts: dict[int, Draft] = {}
        self._held_up, self._waits = held_up, waits
        self._stopping = threading.Event()
        self._anchoring = asyncio.create_task(self._anchor())
        self._summing = asyncio.create_task(self._summarise())

    @classmethod
    async def open(
        cls, path: Path, actor: str,
        keep: RetentionPolicy = RetentionPolicy(),  # noqa: B008 - frozen
        waits: Callable[[str], None] = lambda _: None,
    ) -> Self:  # fmt: skip
        """Open or create the log at ``path``, start a session, and end attempts of dead sessions as unknown.

        ``waits`` is called on the journal's thread if the log is locked, with a text that says by whom.
        """
        layout = Layout(path)
        worker = Worker()
        session: Session | None = None
        made: list[Store] = []  # it must be closed even if this task is cancelled
        try:
            layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            session = Session(layout.sessions)
            name = session.id
            urgent = UrgentRows(layout.urgent(name), Keys(layout.key))
            await run_to_completion(worker.run(lambda: made.append(Store(layout, keep, actor, name, urgent, waits))))
            begun = await run_to_completion(worker.run(made[0].begin))
        except BaseException as error:
            for store in made:
                await run_to_completion(worker.run(store.close))
            if session is not None:
                session.close()
            worker.end()
            if isinstance(error, (OSError, sqlite3.Error)):
                raise unavailable(error, path) from error
            raise
        return cls(worker, layout, made[0], session, actor, held_up=not begun, waits=waits)

    async def close(self) -> None:
        """End the session. Attempts still open become unknown when the next console starts."""
        self._anchoring.cancel()
        self._summing.cancel()
        try:
            await run_to_completion(self._finish())
        finally:
            self._session.close(clean=not (self._attempts or self._store.urgent.waiting))
            self._worker.end()

    async def _finish(self) -> None:
        self._stopping.set()
        await asyncio.gather(self._summing, return_exceptions=True)
        await self._run(self._store.close)
        # About once in 150,000 rows: short commands alone would otherwise never do it.
        await asyncio.to_thread(summarised, self._layout, self._store.sealed)

    async def begin(self, action: str, backend: str, target: str, body: Mapping[str, Any]) -> Permit:
        """Commit an attempt and permit its effect. A cancellation meanwhile is recorded and raised again."""
        draft = self._draft(Kind.ATTEMPT, action, backend, target, body)
        task = asyncio.ensure_future(self._append(draft))
        try:
            [seq] = await shielded(task)
        except asyncio.CancelledError:
            with suppress(AuditUnavailable):  # nothing was permitted, so the caller only needs the cancellation
                await run_to_completion(self._abandon(task, draft))
            raise
        self._attempts[seq] = draft
        return Permit(audit_id=seq, verb=action)

    async def refuse(
        self,
        action: str,
        backend: str,
        target: str,
        body: Mapping[str, Any],
        outcome: Outcome,
        reason: Mapping[str, Any],
    ) -> int:
        """Commit an attempt that was not permitted and its outcome in one transaction. Returns the attempt's seq."""
        attempt = self._draft(Kind.ATTEMPT, action, backend, target, body)
        end = Draft(Kind.OUTCOME, attempt.actor, attempt.session, action, backend, target, None, attempt.request_id,
                    outcome, 0, reason)  # fmt: skip
        seqs = await run_to_completion(self._append(attempt, end))
        return seqs[0]

    async def finish(
        self, permit: Permit, outcome: Outcome, dur_us: int, body: Mapping[str, Any], *, target: str = ""
    ) -> None:
        """Commit how the attempt ended, even while the caller is being cancelled.

        ``target`` is the sandbox's ref if it was not known yet at the attempt.
        """
        draft = self._attempts.pop(permit.audit_id)
        if target:
            draft = structs.replace(draft, target=target)
        await self._end(permit.audit_id, draft, outcome, dur_us, body)

    async def note(self, permit: Permit, backend: str, target: str, body: Mapping[str, Any]) -> None:
        """Add what became known after the outcome, such as how a shell ended."""
        draft = self._draft(Kind.NOTE, permit.verb, backend, target, body, ref=permit.audit_id)
        await run_to_completion(self._append(draft))

    @staticmethod
    def inherited(audit_id: int, verb: str) -> Permit:
        """The permit of an attempt whose process is gone, to end what it left. The caller has made sure of that."""
        return Permit(audit_id=audit_id, verb=verb)

    async def anchor(self, reason: str) -> None:
        """Anchor the newest row now, so that others can verify it."""
        try:
            await run_to_completion(self._run(self._store.anchor, reason))
        except (OSError, sqlite3.Error) as error:
            raise unavailable(error, self._layout.anchors) from error

    async def _abandon(self, append: asyncio.Future[list[int]], draft: Draft) -> None:
        [seq] = await append
        await self._end(seq, draft, Outcome.CANCELLED, None, {})

    async def _end(
        self, seq: int, attempt: Draft, outcome: Outcome, dur_us: int | None, body: Mapping[str, Any]
    ) -> None:
        draft = Draft(Kind.OUTCOME, attempt.actor, attempt.session, attempt.action, attempt.backend, attempt.target,
                      seq, attempt.request_id, outcome, dur_us, body)  # fmt: skip
        await run_to_completion(self._append(draft))

    def _draft(
        self, kind: Kind, action: str, backend: str, target: str, body: Mapping[str, Any], ref: int | None = None
    ) -> Draft:
        actor, request_id = acting() or self._actor, uuid.uuid4().hex[:16]
        return Draft(kind, actor, self._session.id, action, backend, target, ref, request_id, body=body)

    async def _anchor(self) -> None:
        while True:
            await asyncio.sleep(ANCHOR_S)
            with suppress(AuditUnavailable, OSError, sqlite3.Error):  # the next append reports the problem
                await self._run(self._store.anchor, "time")

    async def _summarise(self) -> None:
        """Summarise sealed segments for the filter by text, in a thread beside the appends."""
        await asyncio.sleep(SUMMARISE_S)  # most commands have ended by then
        done: set[int] = set()
        while True:
            with suppress(AuditUnavailable, OSError, sqlite3.Error):
                await self._run(self._store.settle)
            await run_to_completion(asyncio.to_thread(self._summarise_all, done))
            await asyncio.sleep(ANCHOR_S)

    def _summarise_all(self, done: set[int]) -> None:
        for index in self._layout.indices()[-2::-1]:
            if index not in done and not self._stopping.is_set():
                done |= summarised(self._layout, [index], self._stopping.is_set)

    async def _append(self, *drafts: Draft) -> list[int]:
        """Commit rows. Urgent ones are recorded beside the log if they cannot be committed soon."""
        if not all(draft.urgent for draft in drafts):
            return await self._run(self._store.append, *drafts)
        claim = Claim()
        appended = asyncio.ensure_future(self._run(partial(self._store.append, *drafts, claim=claim)))
        await asyncio.wait([appended], timeout=HELD_UP_S if self._held_up else lock.URGENT_S)
        if appended.done() or not claim.take():
            self._held_up = False
            return await appended
        self._held_up = True
        appended.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # it gives up when it sees the claim taken
        try:
            numbers = await asyncio.to_thread(self._store.urgent.put, drafts)
        except (OSError, ValueError) as error:
            raise unavailable(error, self._store.urgent.path) from error
        if numbers[0] == FIRST:
            self._waits(f"{file_lock.holder(self._layout.lock)} has it; what is done is recorded beside it")
        return numbers

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await self._worker.run(function, *args)


def summarised(layout: Layout, indices: Iterable[int], stop: Callable[[], bool] = lambda: False) -> set[int]:
    """Write the missing summaries. Returns which segments have one now."""
    found: set[int] = set()
    for index in indices:
        with suppress(OSError, sqlite3.Error, ValueError):  # without one the filter reads the rows
            if segment_index.there(layout, index) or segment_index.build(layout, index, stop):
                found.add(index)
    return found
