"""Carries out each permitted action on a backend. A new verb does not type-check until it is handled here."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, assert_never

from sandbox_console.backends.abilities import Adopts, Egress, Rejoins, able
from sandbox_console.backends.base import Backend
from sandbox_console.errors import Conflict, NotFound, Unsupported
from sandbox_console.model.action import (
    Action,
    Attach,
    Bundle,
    ChangeEgress,
    Commit,
    Create,
    DenyEgress,
    Download,
    EndShell,
    Exec,
    Fork,
    Forward,
    Kill,
    OpenShell,
    Pause,
    Permit,
    Quarantine,
    Release,
    Remove,
    Rename,
    Restart,
    Resume,
    Start,
    Stop,
    TakeSnapshot,
    Update,
    Upload,
)
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.capability import Capability
from sandbox_console.model.drift import MADE, drifted
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.host_action import (
    LoadImage,
    PruneImages,
    PullImage,
    RemoveImage,
    RemoveSnapshot,
    RestoreSnapshot,
    SaveImage,
)
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.effects.abilities import inner, on_host
from sandbox_console.service.effects.call import Call
from sandbox_console.service.effects.change_plan import Change, How, Plan, plan_for, within_bounds
from sandbox_console.service.effects.egress import decided_live, relist
from sandbox_console.service.effects.process import refuse_ended, run_to_end
from sandbox_console.service.effects.recreation import recreate
from sandbox_console.service.gate.description import rule_data
from sandbox_console.service.gate.operation import ActionResult


async def carry_out(action: Action, permit: Permit, call: Call) -> ActionResult:
    """Carry out an action. Raises one of ``sandbox_console.errors`` if it fails."""
    match action:
        case Create():
            return ActionResult(permit.audit_id, await _create(action, permit, call))
        case Start() | Stop() | Kill() | Restart() | Pause() | Resume() | Remove():
            await _change_state(action, permit, call)
            return ActionResult(permit.audit_id, call.target.ref if call.target else None)
        case Update():
            ref, details = await _update(action, permit, call)
            return ActionResult(permit.audit_id, ref, details=details)
        case Exec():
            return await _exec(action, permit, call)
        case OpenShell() | EndShell():
            raise Unsupported("a shell is opened by console.shell(), and ended by console.end_shell()")
        case Rename() | Upload() | Download() | Attach() | Forward() | Commit() | TakeSnapshot() | Fork():
            return await inner(action, permit, call)
        case ChangeEgress() | DenyEgress() | Bundle() | Quarantine() | Release():
            return await inner(action, permit, call)
        case (
            PullImage()
            | RemoveImage()
            | PruneImages()
            | LoadImage()
            | SaveImage()
            | RestoreSnapshot()
            | RemoveSnapshot()
        ):
            return await on_host(action, permit, call)
        case _:
            assert_never(action)


async def _change_state(
    action: Start | Stop | Kill | Restart | Pause | Resume | Remove, permit: Permit, call: Call
) -> None:
    backend = call.backend
    match action:
        case Start():
            await backend.start(permit, action.ref, call.secrets)
        case Stop():
            await backend.stop(permit, action.ref, action.grace_s)
        case Kill():
            await backend.kill(permit, action.ref, action.signal)
        case Restart():
            await backend.stop(permit, action.ref, action.grace_s)
            await backend.start(permit, action.ref, call.secrets)
        case Pause():
            await backend.pause(permit, action.ref)
        case Resume():
            await backend.resume(permit, action.ref)
        case Remove():
            await backend.remove(permit, action.ref, action.force)
        case _:
            assert_never(action)


async def _create(action: Create, permit: Permit, call: Call) -> SandboxRef:
    ref = await call.backend.create(permit, action.spec, call.secrets, call.progress)
    if not action.start:
        return ref
    try:
        call.progress("starting")
        await call.backend.start(permit, ref, call.secrets)
    except BaseException:
        # A create that cannot start leaves nothing behind; a sandbox that ran and failed stays, to be examined.
        with suppress(Exception):  # the first error is the one to report
            await run_to_completion(_discard(call.backend, permit, ref))
        raise
    return ref


async def _discard(backend: Backend, permit: Permit, ref: SandboxRef) -> None:
    await backend.remove(permit, ref, force=True)


async def _update(action: Update, permit: Permit, call: Call) -> tuple[SandboxRef, dict[str, Any]]:
    target = call.target
    if target is None:
        raise NotFound(f"{action.ref} does not exist")
    plan = plan_for(target, action.spec, call.backend.capabilities(), call.injects)
    plan = await within_bounds(plan, call.backend, target, action.spec)
    changed: dict[str, Any] = {"changed": [change.field for change in plan.changes], "how": str(plan.how or "nothing")}
    changed["state"] = f"{target.status} {target.exit.code}" if target.exit else str(target.status)
    if action.drift == "reapply" and "egress" in drifted(target):
        await _restore_rules(action, permit, call)
        changed["changed"].append("egress")
    if action.drift == "adopt" or plan.how is None:
        return target.ref, changed | await _adopt(action, permit, call, plan)
    match plan.how:
        case How.UNSUPPORTED:
            refused = next(change for change in plan.changes if change.how is How.UNSUPPORTED)
            raise Unsupported(f"{refused.field} cannot be changed: {refused.reason}")
        case How.LIVE:
            return target.ref, changed | await _live(action, permit, call, plan)
        case How.RECREATE:
            assert call.steps is not None  # noqa: S101 - the performer brings them
            rules = await decided_live(call.backend, target, action.spec)
            ref = await recreate(
                call.backend, permit, target, action.spec, call.secrets, call.progress, call.steps, rules
            )
            kept = {"egress_kept": [rule_data(rule) for rule in rules]} if rules else {}
            return ref, changed | {"was": str(target.ref)} | kept


async def _adopt(action: Update, permit: Permit, call: Call, plan: Plan) -> dict[str, Any]:
    """Take what the sandbox is already for what was asked. Raises Conflict if it is not like that."""
    if fields := [change.field for change in plan.changes if change.field not in MADE]:
        raise Conflict(f"it is no longer as it was when it was adopted: {', '.join(fields)}", hint="look again")
    if call.target is None or call.target.spec in (None, action.spec) or not isinstance(call.backend, Adopts):
        return {}
    await call.backend.adopt(permit, action.ref, action.spec)
    return {"changed": [], "how": "adopted"}


async def _restore_rules(action: Update, permit: Permit, call: Call) -> None:
    backend = able(call.backend, Egress, Capability.EGRESS_UPDATE)
    await backend.set_egress(permit, action.ref, [EgressRule(pattern) for pattern in action.spec.egress])


async def _live(action: Update, permit: Permit, call: Call, plan: Plan) -> dict[str, Any]:
    """Make the changes in place. The spec is stored last, so what a kill leaves half done shows as drift."""
    changes = {change.field: change for change in plan.changes}
    fields, details = set(changes), dict[str, Any]()
    if "name" in fields:
        await call.backend.rename(permit, action.ref, action.spec.name)
    if fields & MADE.keys() and isinstance(call.backend, Rejoins):
        await call.backend.rejoin(permit, action.ref)
    if "egress" in fields:
        details["egress"] = await _relist(action, permit, call, changes["egress"])
    adopts = isinstance(call.backend, Adopts)
    if fields - {"name", *MADE, *(["egress"] if adopts else [])}:
        await call.backend.update(permit, action.ref, action.spec)
    elif isinstance(call.backend, Adopts) and call.target is not None and call.target.spec != action.spec:
        await call.backend.adopt(permit, action.ref, action.spec)
    return details


async def _relist(action: Update, permit: Permit, call: Call, change: Change) -> dict[str, Any]:
    gateway = able(call.backend, Egress, Capability.EGRESS_UPDATE)
    return await relist(gateway, permit, action.ref, change.before, action.spec.egress, call.progress)


async def _exec(action: Exec, permit: Permit, call: Call) -> ActionResult:
    process = await call.backend.exec(permit, action, call.secrets)
    ran = await run_to_end(process, call.io, call.redactor, action.timeout_s)
    if not ran.timed_out:
        await refuse_ended(call, ran.exit)
    return ActionResult(
        permit.audit_id,
        action.ref,
        exit_code=ran.exit.code,
        exit=ran.exit,
        pid=ran.pid,
        stdout=bytes(ran.out.get(Stream.STDOUT, b"")),
        stderr=bytes(ran.out.get(Stream.STDERR, b"")),
        truncated=ran.truncated,
        timed_out=ran.timed_out,
        details={"exit": ran.exit.code, "bytes": ran.bytes_out},
    )
