"""Finishes or undoes what a killed console left half done while it replaced a sandbox, and notes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sandbox_console.backends.base import Backend
from sandbox_console.errors import BackendUnreachable, Conflict, ConsoleError
from sandbox_console.model.access import full, limited_to
from sandbox_console.model.action import Permit, Update
from sandbox_console.model.audit import AuditQuery, Outcome
from sandbox_console.model.cancellation import run_to_completion, shielded
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service.effects.recreation import NOT_BEGUN, Recreation
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.redaction import masked
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.sessions.lost_records import settle
from sandbox_console.service.sessions.shell_records import HeldRecord, ShellRecords

if TYPE_CHECKING:  # imported when used: a command that changes nothing needs no journal, and it takes 15 ms
    from sandbox_console.audit.journal import Journal

_KILLED = "the process that replaced it was killed"


class HeldSteps:
    """The steps of one replacement by this process. The lock of their record shows that the process is alive."""

    def __init__(self, records: ShellRecords) -> None:
        self._records = records
        self._held: HeldRecord | None = None
        self._over = True

    async def intend(self, sandbox: Sandbox) -> None:
        """Record which sandbox is about to be changed, before its row in the audit log is written.

        A process that is killed between the row and the first step is told from one killed later. A disk that cannot
        take the record stops nothing: the first step says so if there is one.
        """
        intent = Recreation(
            audit_id=NOT_BEGUN, began=time.time(), ref=str(sandbox.ref), name=sandbox.name, live=sandbox.status.live,
            wanted="", made="", aside="",
        )  # fmt: skip
        with suppress(Conflict):
            await run_to_completion(asyncio.to_thread(self._write, intent))

    async def note(self, step: Recreation) -> None:
        """Note the next step. Raises Conflict if that is not possible, as on a full disk."""
        self._over = False
        await run_to_completion(asyncio.to_thread(self._write, step))

    def _write(self, step: Recreation) -> None:
        try:
            self._held = self._held or self._records.begin()
            self._held.write(step)
        except OSError as error:
            text = f"the steps of the replacement cannot be noted: {error.strerror}"
            raise Conflict(text, hint="see the disk with the state folder: df") from None

    async def done(self) -> None:
        """There is nothing to finish or undo any more. The steps stay until the outcome is on record.

        If the process is killed before that, the next console can still note which sandbox was kept.
        """
        self._over = True

    async def recorded(self) -> None:
        """Forget the steps if they are done: the outcome is on record."""
        if self._held is not None and self._over:
            await asyncio.to_thread(self._held.remove)


class LostRecreations:
    """Looks for such replacements once for each console, before it changes something."""

    def __init__(
        self, folder: Path, fleet: Fleet, audit_log: AuditLog, vault: Vault, read_only: Callable[[], bool]
    ) -> None:
        """``folder`` is where the records are."""
        records = ShellRecords(folder)
        self._records, self._fleet, self._audit_log, self._vault = records, fleet, audit_log, vault
        self._read_only = read_only
        self._looking: asyncio.Task[int] | None = None

    def steps(self) -> HeldSteps:
        """Where a replacement by this process notes its steps."""
        return HeldSteps(self._records)

    async def look(self) -> int:
        """Finish or undo what others left. Returns how many; looks once, and not in a read-only console."""
        if self._read_only():
            return 0
        if self._looking is None:
            with limited_to(full):
                self._looking = asyncio.create_task(self._settle_all())
        return await shielded(self._looking)

    async def close(self) -> None:
        """Stop after the replacement at hand. The remaining ones are left to the next console."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _settle_all(self) -> int:
        lost = await asyncio.to_thread(lambda: list(self._records.lost()))
        return sum([await run_to_completion(settle(record, Recreation, self._fleet, self._finish)) for record in lost])

    async def _finish(self, step: Recreation, ref: SandboxRef) -> None:
        journal = await self._audit_log.journal()
        if step.audit_id == NOT_BEGUN:
            await self._note_not_begun(journal, step, ref)
            return
        permit = journal.inherited(step.audit_id, "update")
        backend = await self._fleet.use(ref.backend, ref.host)
        body = await _Settlement(backend, permit, step, self._vault).run()
        details: dict[str, Any] = masked(body, self._vault.redactor.text)
        await journal.note(permit, ref.backend, step.ref, details)

    async def _note_not_begun(self, journal: Journal, step: Recreation, ref: SandboxRef) -> None:
        """Note that nothing was replaced, if the process was killed after the row of its update was written."""
        wanted = AuditQuery(target=step.ref, action=Update.verb, outcome=Outcome.UNKNOWN, since=step.began, limit=1)
        for entry in await self._audit_log.entries(wanted):
            body = {"reason": _KILLED, "replacement": "not begun", "kept": step.ref}
            await journal.note(journal.inherited(entry.attempt.seq, Update.verb), ref.backend, step.ref, body)


class _Found(Struct, frozen=True):
    old: Sandbox | None
    new: Sandbox | None


class _Settlement:
    """Settles one replacement: the new sandbox stays if it was ready or the old one is gone, otherwise the old one."""

    def __init__(self, backend: Backend, permit: Permit, step: Recreation, vault: Vault) -> None:
        self._backend, self._permit, self._step, self._vault = backend, permit, step, vault

    async def run(self) -> dict[str, Any]:
        """Finish or undo it. Returns the body of the note. Raises BackendUnreachable."""
        found = await self._find()
        forward = found.new is not None and (self._step.ready or found.old is None)
        sandbox = found.new if forward else found.old
        body: dict[str, Any] = {
            "reason": _KILLED,
            "replacement": "finished" if forward else "undone",
            "kept": str(sandbox.ref) if sandbox else "",
        }
        try:
            await (self._finish(found) if forward else self._undo(found))
        except BackendUnreachable:
            raise
        except ConsoleError as error:
            body["error"] = error.message
        return body

    async def _find(self) -> _Found:
        step, listed = self._step, await self._backend.list()
        old = next((sandbox for sandbox in listed if str(sandbox.ref) == step.ref), None)
        new = next((sandbox for sandbox in listed if str(sandbox.ref) == step.new or sandbox.name == step.made), None)
        return _Found(old, new)

    async def _finish(self, found: _Found) -> None:
        if found.old is not None and found.old.name == self._step.wanted:
            await self._backend.rename(self._permit, found.old.ref, self._step.aside)
        if found.new is not None and found.new.name != self._step.wanted:
            await self._backend.rename(self._permit, found.new.ref, self._step.wanted)
        if found.old is not None:
            await self._backend.remove(self._permit, found.old.ref, force=True)

    async def _undo(self, found: _Found) -> None:
        old = found.old
        if found.new is not None:
            await self._backend.remove(self._permit, found.new.ref, force=True)
        if old is not None and old.name != self._step.name:
            await self._backend.rename(self._permit, old.ref, self._step.name)
        if old is not None and self._step.live and not old.status.live:
            secrets = await self._vault.resolve(old.spec.secrets if old.spec else ())
            await self._backend.start(self._permit, old.ref, secrets)
