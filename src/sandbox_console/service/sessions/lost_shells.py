"""Ends shells and marked commands whose console was killed, and notes their end in the audit log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sandbox_console.backends.abilities import EndsLostShells
from sandbox_console.crash_guard import guard
from sandbox_console.errors import AuditUnavailable, BackendUnreachable, ConsoleError, NotFound
from sandbox_console.model.access import full, limited_to
from sandbox_console.model.action import Permit
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.redaction import masked
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.recordings import Recordings
from sandbox_console.service.sessions.lost_records import settle
from sandbox_console.service.sessions.shell_records import HeldRecord, ShellRecord, ShellRecords

REASON = "the process that held it was killed"
LEFT = "its console was killed"


class LostShells:
    """Looks for such shells once for each console, when it is about to change something."""

    def __init__(
        self, records: ShellRecords, fleet: Fleet, audit_log: AuditLog, vault: Vault, recordings: Recordings,
        options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """``options`` are those of the command line by which another process finds the same configuration."""
        self._records, self._fleet, self._audit_log, self._options = records, fleet, audit_log, options
        self._vault, self._recordings = vault, recordings
        self._looking: asyncio.Task[int] | None = None

    async def hold(self, record: ShellRecord) -> HeldRecord | None:
        """Keep a record of a shell that is about to be opened; None on a full disk, when only this console ends it."""

        def begin() -> HeldRecord:
            guard.hold_shell(self._options)
            shell_record = self._records.begin()
            try:
                shell_record.write(record)
            except OSError:
                shell_record.remove()
                raise
            return shell_record

        with suppress(OSError):
            return await asyncio.to_thread(begin)
        return None

    async def forget(self, record: HeldRecord | None) -> None:
        """Remove the record of a shell whose end is recorded."""
        if record is not None:
            await asyncio.to_thread(record.remove)
        guard.shell_ended()

    def look(self) -> asyncio.Task[int]:
        """Start looking, once. The task returns how many were ended."""
        if self._looking is None:
            with limited_to(full):
                self._looking = asyncio.create_task(self._end_all())
        return self._looking

    def passed_on(self, record: HeldRecord) -> None:
        """Another process holds the shell from now on, and its record."""
        record.release()
        guard.shell_ended()

    async def end(self, id_: str) -> None:
        """End one shell if its process is gone, and note its end."""
        with suppress(OSError):
            record = await asyncio.to_thread(self._records.take, id_)
            if record is not None:
                await self._end(record)

    async def close(self) -> None:
        """Stop. The remaining ones are left to the next console."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _end_all(self) -> int:
        lost = await asyncio.to_thread(lambda: list(self._records.lost()))
        return sum(await asyncio.gather(*(self._end(record) for record in lost)))

    async def _end(self, record: HeldRecord) -> int:
        return await settle(record, ShellRecord, self._fleet, self._finish)

    async def _finish(self, record: ShellRecord, ref: SandboxRef) -> None:
        journal = await self._audit_log.journal()
        permit = journal.inherited(record.audit_id, record.verb)
        duration = {"duration_s": round(max(0.0, time.time() - record.began), 3)}
        if record.viewed:
            left = {"shell_name": record.viewed, "viewer": LEFT, "actor": record.actor}
            await journal.note(permit, ref.backend, record.ref, left | duration)
            return
        body: dict[str, Any] = {"exit": None, "signal": None, "reason": REASON} | duration
        problem = None
        if record.ended is not None:  # the holder of a kept shell has written how it ended
            body |= record.ended
            problem = str(body.pop("recording_problem", ""))
        body |= await self._ended(permit, record, ref)
        if record.kept:
            body["shell_name"] = record.kept
        if record.recording:
            body["recording"] = await self._recordings.end_lost(record.recording, problem)
        details: Mapping[str, Any] = masked(body, self._vault.redactor.text)
        await journal.note(permit, ref.backend, record.ref, details)

    async def _ended(self, permit: Permit, record: ShellRecord, ref: SandboxRef) -> dict[str, str]:
        """End its processes. Returns what went wrong. Raises BackendUnreachable."""
        try:
            backend = await self._fleet.use(ref.backend, ref.host)
            target = await self._fleet.inspect(ref)
            if target.spec is not None:  # a typed secret is in the recording
                await self._vault.learn(target.spec.secrets)
            if isinstance(backend, EndsLostShells) and record.mark:
                await backend.end_lost_shell(permit, ref, record.user, record.mark)
        except (BackendUnreachable, AuditUnavailable):
            raise
        except NotFound:
            return {}  # removed meanwhile, with everything in it
        except ConsoleError as error:
            return {"error": error.message}
        except Exception as error:  # noqa: BLE001 - a bug of a backend is reported in the note, like any other failure
            return {"error": f"{type(error).__name__}: {error}"}
        return {}
