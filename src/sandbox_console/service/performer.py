"""Carries out an action: checks it, has the gate record it and a backend do it, and undoes it if its result is lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from secrets import token_hex
from typing import Any

from msgspec import structs

from sandbox_console.backends.abilities import EndsLostShells
from sandbox_console.backends.base import Backend, PassableTerminal, Terminal
from sandbox_console.backends.common import remote_audit
from sandbox_console.errors import ConsoleError, InvalidSpec, NotFound
from sandbox_console.model.action import (
    Action,
    Create,
    EndShell,
    Exec,
    Fork,
    OpenShell,
    Permit,
    Quarantine,
    Remove,
    Restart,
    Start,
    Update,
    place_of,
    ref_of,
)
from sandbox_console.model.actor import acting
from sandbox_console.model.audit import Outcome
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import RestoreSnapshot
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Allow, Deny
from sandbox_console.recording.writer import Writer
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.admission import Admission
from sandbox_console.service.effects.call import Call, EndSessions
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.gate import Consent, Gate, Request
from sandbox_console.service.gate.operation import ActionResult, ExecIO, Operation
from sandbox_console.service.gate.quarantine_store import Holds
from sandbox_console.service.gate.redaction import masked
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.folder_guard import FolderGuard
from sandbox_console.service.reads.name_changes import note_after, note_before
from sandbox_console.service.reads.recordings import Recordings
from sandbox_console.service.sessions.held_terminal import DETACHED, HeldTerminal
from sandbox_console.service.sessions.kept_session import KeptSession
from sandbox_console.service.sessions.kept_shells import KeptShells, passed_on
from sandbox_console.service.sessions.lost_recreations import HeldSteps, LostRecreations
from sandbox_console.service.sessions.lost_shells import LostShells
from sandbox_console.service.sessions.recorded_exec import RecordedExec, recorded_to_its_end
from sandbox_console.service.sessions.shell import ShellSession
from sandbox_console.service.sessions.shell_records import HeldRecord, ShellRecord

NoteEnd = Callable[[Mapping[str, Any]], Awaitable[None]]


class Performer:
    """Carries out actions, one per call. Nothing is changed except through its gate."""

    def __init__(
        self, admission: Admission, gate: Gate, fleet: Fleet, audit_log: AuditLog, vault: Vault, shares: FolderGuard,
        recordings: Recordings, holds: Holds, lost: LostShells, kept: KeptShells, end_sessions: EndSessions,
        recreations: LostRecreations,
    ) -> None:  # fmt: skip
        self._kept, self._recreations = kept, recreations
        self._holds, self._lost, self._end_sessions = holds, lost, end_sessions
        self._admission, self._gate, self._fleet, self._audit_log = admission, gate, fleet, audit_log
        self._vault, self._shares, self._recordings = vault, shares, recordings

    async def perform(
        self, action: Action, consent: Consent, io: ExecIO, operation: Operation, mask: Redactor | None = None
    ) -> ActionResult:
        """Carry an action out. Raises what went wrong, after its row was written.

        ``operation`` receives the progress. ``mask`` hides secrets in the output, by default all known ones.
        """
        await self._recreations.look()
        request = await self._admission.request(action, consent)
        refs, steps = list[SandboxRef](), self._recreations.steps()

        async def effect(permit: Permit, secrets: list[ResolvedSecret]) -> ActionResult:
            result = await self._act(request, permit, secrets, io, operation, steps, mask)
            if isinstance(action, Create) and result.ref is not None:
                refs.append(result.ref)
            note_after(self._fleet.names, action)
            return result

        folders = isinstance(action, (Create, Update, Remove)) and bool(_workspace_of(action, request.target))
        if isinstance(action, Update) and request.target is not None:
            await steps.intend(request.target)
        async with self._shares.changing(*place_of(action)) if folders else nullcontext():
            try:
                return await self._gate.run(request, effect, _row_end)
            except asyncio.CancelledError:
                for ref in refs:  # it was made, but nobody knows of it
                    await run_to_completion(self._take_back(ref))
                raise
            finally:
                await run_to_completion(steps.recorded())

    async def _act(
        self, request: Request, permit: Permit, secrets: Sequence[ResolvedSecret], io: ExecIO, operation: Operation,
        steps: HeldSteps, mask: Redactor | None,
    ) -> ActionResult:  # fmt: skip
        from sandbox_console.service.effects.dispatch import carry_out

        backend = await self._fleet.use(*place_of(request.action))
        action = _marked(request.action, backend)
        if isinstance(action, Quarantine):  # the reason is shown until the release, in refusals, lists and alerts too
            action = structs.replace(action, reason=await self._gate.sentence(action.reason))
        await self._give_workspace(request)
        note_before(self._fleet.names, action)
        injects = self._vault.injects(backend.capabilities())
        handed = [structs.replace(secret, inject=injects[secret.name]) for secret in secrets]
        shown = mask or self._vault.redactor
        recorded = None if mask else await RecordedExec.begin(request, permit, self._recordings, self._audit_log)
        if recorded is not None:
            io = structs.replace(io, on_shown=recorded.shown)
        call = Call(
            backend, request.target, handed, operation.report, io, shown, injects, self._holds, acting() or
            self._audit_log.actor, self._end_sessions, steps,
        )  # fmt: skip
        with remote_audit.noted() as ids:
            async with self._held(action, request, permit, recorded), recorded_to_its_end(recorded):
                result = await carry_out(action, permit, call)
        if recorded is not None:
            result = structs.replace(result, details={**result.details, "recording": await recorded.end()})
        if ids:
            result = structs.replace(result, details={**result.details, "remote_audit_ids": ids})
        without = _without(_lacking(request.target, secrets)) if isinstance(action, Exec) else {}
        return structs.replace(result, details={**result.details, **without})

    @asynccontextmanager
    async def _held(
        self, action: Action, request: Request, permit: Permit, recorded: RecordedExec | None
    ) -> AsyncIterator[None]:
        """Keep a record of a marked command while it runs, as it would go on if this console was killed."""
        if not (isinstance(action, Exec) and action.mark):
            yield
            return
        name = request.target.name if request.target else ""
        record = await self._lost.hold(ShellRecord(
            audit_id=permit.audit_id, ref=str(action.ref), name=name, actor=acting() or self._audit_log.actor,
            began=time.time(), user=action.user, mark=action.mark, verb=action.verb,
            recording=recorded.id if recorded is not None else "",
        ))  # fmt: skip
        try:
            yield
        finally:
            await run_to_completion(self._lost.forget(record))

    async def refuse(self, action: Action, error: ConsoleError) -> None:
        """Record an action that a server does not allow its caller; the gate raises ``error`` with the row's id.

        A Denied in ``error`` makes the row say denied. Raises AuditUnavailable if no row can be written.
        """
        request = Request(action, place_of(action)[0], None, Deny(error.message, "request"), problem=error)
        await self._gate.run(request, _nothing, _row_end)

    async def shell(self, action: OpenShell, consent: Consent) -> ShellSession:
        """Open a shell. Its end is noted in the audit log when the session is closed."""
        action = await self._as_configured(action)
        request = await self._admission.request(action, consent)
        opened: list[ShellSession] = []

        async def effect(permit: Permit, secrets: list[ResolvedSecret]) -> ShellSession:
            attaches = self._attach(request, action, permit) if action.attach else None
            opened.append(await (attaches or self._open(request, action, permit, secrets)))
            if not action.attach:  # one that is attached to has what its opener had, whose holder masks it
                opened[0].without = tuple(_lacking(request.target, secrets))
            return opened[0]

        try:
            return await self._gate.run(request, effect, lambda made: (Outcome.OK, _opened(made), ""))
        except BaseException:  # the caller has no session, so nobody else would end it
            for session in opened:
                await session.close()
            raise

    async def _as_configured(self, action: OpenShell) -> OpenShell:
        """The action, with ``keep`` if the configuration says so and the policy and the backend allow it."""
        if action.keep is not None or action.attach or not self._kept.options.keep:
            return action
        able = (await self._fleet.use(action.ref.backend, action.ref.host)).capabilities()
        return structs.replace(action, keep=self._gate.rules.keep_shells and able.has(Capability.SHELL_KEEP))

    async def _open(
        self, request: Request, action: OpenShell, permit: Permit, secrets: list[ResolvedSecret]
    ) -> ShellSession:
        backend = await self._fleet.use(action.ref.backend, action.ref.host)
        name = request.target.name if request.target else ""
        kept = await asyncio.to_thread(self._kept.name_for, action.name, name) if action.keep else ""
        recorder = await self._recordings.begin(action, name, permit.audit_id)
        action = structs.replace(action, mark=token_hex(16))
        recording = recorder.path.stem if recorder is not None else ""
        record = ShellRecord(
            audit_id=permit.audit_id, ref=str(action.ref), name=name, actor=acting() or self._audit_log.actor,
            began=time.time(), user=action.user, mark=action.mark, recording=recording, kept=kept,
        )  # fmt: skip
        shell_record = await self._lost.hold(record)
        try:
            terminal = await backend.shell(permit, action, secrets)
            if kept:
                return await self._keep(
                    request, structs.replace(action, name=kept), permit, terminal, shell_record, record, recorder
                )
        except BaseException:
            if recorder is not None:
                await run_to_completion(recorder.discard())
            await run_to_completion(self._lost.forget(shell_record))
            raise
        note_end = self._note_end(permit, request, shell_record)
        return ShellSession(
            action, permit.audit_id, terminal, self._vault.redactor, note_end, recorder, self._recordings
        )

    async def _keep(
        self, request: Request, action: OpenShell, permit: Permit, terminal: Terminal, shell_record: HeldRecord | None,
        record: ShellRecord, recorder: Writer | None,
    ) -> KeptSession:  # fmt: skip
        """Pass a shell that was opened to a holder of its own. It is ended if that fails."""
        try:
            shell_record, passed = passed_on(shell_record, terminal)
            try:
                must = self._recordings.required(action)
                seen = await self._kept.start(
                    shell_record, record, passed, action, self._vault.redactor, recorder, must_record=must
                )
            finally:
                for fd in passed.files:
                    os.close(fd)
        except BaseException:
            with suppress(Exception):
                await run_to_completion(terminal.close())
            raise
        if isinstance(terminal, PassableTerminal):
            terminal.release()
        self._lost.passed_on(shell_record)
        return await self._session(action, permit, seen, request, shell_record.id)

    async def _attach(self, request: Request, action: OpenShell, permit: Permit) -> KeptSession:
        shell = await self._kept.find(action.attach)
        if shell.ref != action.ref:
            raise NotFound(f"{action.ref} has no kept shell {action.attach!r}", hint="sandbox-console shells ls")
        terminal = await self._kept.attach(shell, action, acting() or self._audit_log.actor)
        return await self._session(structs.replace(action, name=shell.name), permit, terminal, request, shell.id)

    async def _session(
        self, action: OpenShell, permit: Permit, terminal: HeldTerminal, request: Request, id_: str
    ) -> KeptSession:
        viewing = await self._lost.hold(ShellRecord(
            audit_id=permit.audit_id, ref=str(action.ref), name=request.target.name if request.target else "",
            actor=acting() or self._audit_log.actor, began=time.time(), viewed=action.name,
        ))  # fmt: skip

        async def note(body: Mapping[str, Any]) -> None:
            details = {**body, "actor": acting() or self._audit_log.actor}
            journal = await self._audit_log.journal()
            await journal.note(permit, request.backend, str(action.ref), masked(details, self._vault.redactor.text))
            await self._lost.forget(viewing)
            if body.get("viewer") != DETACHED:
                await self._kept.recorded(id_)

        async def end() -> None:
            await self.end_shell(EndShell(action.ref, id_), request.consent)

        return KeptSession(
            action, permit.audit_id, terminal, self._vault.redactor, note, self._recordings, id_, action.name, end
        )

    async def end_shell(self, action: EndShell, consent: Consent) -> ActionResult:
        """End a kept shell through the gate."""
        request = await self._admission.request(action, consent)

        async def effect(permit: Permit, _: list[ResolvedSecret]) -> ActionResult:
            shell = await self._kept.find(action.id)
            if shell.ref != action.ref:
                raise NotFound(f"{action.ref} has no kept shell {action.id!r}", hint="sandbox-console shells ls")
            await self._kept.end(shell, acting() or self._audit_log.actor, "it was ended")
            return ActionResult(permit.audit_id, action.ref, details={"shell_name": shell.name})

        return await self._gate.run(request, effect, _row_end)

    def _note_end(self, permit: Permit, request: Request, record: HeldRecord | None) -> NoteEnd:
        async def note(body: Mapping[str, Any]) -> None:
            journal = await self._audit_log.journal()
            body_masked = masked(body, self._vault.redactor.text)
            await journal.note(permit, request.backend, str(ref_of(request.action)), body_masked)
            await self._lost.forget(record)

        return note

    async def _take_back(self, ref: SandboxRef) -> None:
        """Remove the sandbox of a create that was cancelled after its last step. This is recorded as a removal."""
        action = Remove(ref, force=True)
        backend = await self._fleet.use(ref.backend, ref.host)

        async def effect(permit: Permit, _: list[ResolvedSecret]) -> ActionResult:
            note_before(self._fleet.names, action)
            await backend.remove(permit, ref, force=True)
            note_after(self._fleet.names, action)
            return ActionResult(permit.audit_id, ref)

        with suppress(ConsoleError):  # only the cancellation is reported
            await self._gate.run(Request(action, ref.backend, None, Allow()), effect, _row_end)

    async def _give_workspace(self, request: Request) -> None:
        """Refuse a workspace that no guest may have, and store an allowed one before it is given."""
        action, spec = request.action, _spec_of(request)
        if isinstance(action, Remove) and (had := _workspace_of(action, request.target)):
            await self._shares.remember(*place_of(action), had)
        if spec is None:
            return
        if not isinstance(action, (Create, Update)) and (problems := await self._shares.problems(spec)):
            raise InvalidSpec(problems)
        if spec.workspace:
            await self._shares.remember(*place_of(action), spec.workspace)


async def _nothing(permit: Permit, _: list[ResolvedSecret]) -> ActionResult:
    return ActionResult(permit.audit_id)


def _spec_of(request: Request) -> SandboxSpec | None:
    """The spec of the sandbox that a request makes or starts; None if it does neither."""
    match request.action:
        case Create(spec=spec) | Update(spec=spec):
            return spec
        case Start() | Restart() | Fork():
            return request.target.spec if request.target else None
        case RestoreSnapshot(name=name) if request.snapshot:
            return SandboxSpec(name, workspace=request.snapshot.workspace or None)
    return None


def _workspace_of(action: Create | Update | Remove, target: Sandbox | None) -> str:
    own = target.spec if target else None
    spec = own if isinstance(action, Remove) else action.spec
    return (spec.workspace if spec else None) or (own.workspace if own else None) or ""


def _lacking(target: Sandbox | None, secrets: Sequence[ResolvedSecret]) -> list[str]:
    """The secrets that a sandbox is entered without, because they cannot be read here."""
    names = target.spec.secrets if target and target.spec else ()
    return [name for name in names if name not in {secret.name for secret in secrets}]


def _without(names: Sequence[str]) -> dict[str, list[str]]:
    return {"without_secrets": list(names)} if names else {}


def _opened(session: ShellSession) -> dict[str, Any]:
    return {"opened": True} | _without(session.without)


def _row_end(result: ActionResult) -> tuple[Outcome, Mapping[str, Any], str]:
    outcome = Outcome.TIMED_OUT if result.timed_out else Outcome.OK
    return outcome, result.details, str(result.ref) if result.ref else ""


def _marked(action: Action, backend: Backend) -> Action:
    """The action; a command with a mark, where it would go on if this console was killed, whichever face began it."""
    marks = isinstance(action, Exec) and not action.mark and isinstance(backend, EndsLostShells)
    return structs.replace(action, mark=token_hex(16)) if marks else action
