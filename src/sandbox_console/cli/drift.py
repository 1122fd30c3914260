"""``drift``: compares sandboxes with what they were asked to be, and ends what differs."""

from __future__ import annotations

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import follow
from sandbox_console.cli.formatting import moment
from sandbox_console.cli.lookup import find_named, warn_of_the_silent
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.selection import confirm
from sandbox_console.errors import ConsoleError, Unsupported, UsageError
from sandbox_console.model.action import Update
from sandbox_console.model.drift import DriftRepair, DriftState, FieldDrift, adopt, drifted, reapply
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import ActionResult, Consent, Console, How

DRIFTED = 1
"""The exit code if something differs."""


async def drift(context: Context) -> int:
    """Print what differs, one field per line; or with ``--reapply`` or ``--adopt`` end it."""
    args = context.args
    if args.reapply and args.adopt:
        raise UsageError("--reapply and --adopt cannot be used together", hint="leave one of them out")
    async with context.open() as console:
        sandboxes = await _chosen(context, console)
        if args.reapply or args.adopt:
            for sandbox in sandboxes:
                await _end(context, console, sandbox)
            return context.code
        rows = [(sandbox, row) for sandbox in sandboxes for row in await console.drifts.fields(sandbox)]
    shown = [(sandbox, row) for sandbox, row in rows if args.all or row.state is DriftState.DRIFTED]
    if context.json:
        for sandbox, row in shown:
            context.record({"name": sandbox.name, "ref": str(sandbox.ref)} | json_output.drift(row))
    elif shown:
        head = ("NAME", "FIELD", "ASKED", "FOUND", "STATE", "BY", "WHEN")
        context.table(head, (_cells(sandbox, row) for sandbox, row in shown))
    elif sandboxes:
        context.say("nothing differs")
    return context.code or (DRIFTED if any(row.state is DriftState.DRIFTED for _, row in rows) else 0)


async def _chosen(context: Context, console: Console) -> list[Sandbox]:
    """The NAMEs, or all sandboxes of this console, inspected. A NAME that another tool made is refused."""
    if not context.args.names:
        sandboxes, healths = await console.list(context.backend[0])
        warn_of_the_silent(context, console, healths)
        return sorted(
            (sandbox for sandbox in sandboxes if sandbox.spec is not None),
            key=lambda sandbox: (sandbox.name, sandbox.ref),
        )
    changing = context.args.reapply or context.args.adopt
    found = [
        await console.inspect(sandbox.ref)
        for sandbox in await find_named(context, console, context.args.names, changing=changing)
    ]
    for sandbox in found:
        if sandbox.spec is None:
            context.fail(Unsupported("another tool made it, so what was asked for is not known"), sandbox.name)
    return [sandbox for sandbox in found if sandbox.spec is not None]


async def _end(context: Context, console: Console, sandbox: Sandbox) -> None:
    """Re-apply or adopt, and report what cannot be. A failure is reported and stops nothing else."""
    try:
        mend = reapply(sandbox) if context.args.reapply else adopt(sandbox)
        end = None if mend.action is None else await _perform(context, console, sandbox, mend.action)
    except ConsoleError as error:
        context.fail(error, sandbox.name)
        return
    for field, reason in mend.left.items():
        hint = (
            f"sandbox-console drift {sandbox.name} --reapply" if context.args.adopt else "sandbox-console update --help"
        )
        context.fail(Unsupported(f"{field} is left: {reason}", hint=hint), sandbox.name)
    _print_end(context, sandbox, mend, end)


async def _perform(context: Context, console: Console, sandbox: Sandbox, action: Update) -> ActionResult:
    """Carry it out, after a question if the sandbox has to be recreated."""
    plan = await console.plan(sandbox, action.spec)
    recreates = action.drift == "reapply" and plan.how is How.RECREATE
    if recreates:
        fields = ", ".join(change.field for change in plan.changes if change.how is How.RECREATE)
        await confirm(context, [f"{sandbox.name} is recreated, because of {fields}: its processes and files are lost"])
    consent = context.consent(sandbox.ref.id)
    return await follow(context, console.perform(action, consent=Consent(consent.yes or recreates, consent.confirm)))


def _print_end(context: Context, sandbox: Sandbox, mend: DriftRepair, end: ActionResult | None) -> None:
    fields = [name for name in drifted(sandbox) if name not in mend.left]
    verb = "reapply" if context.args.reapply else "adopt"
    if context.json:
        head = {"name": sandbox.name, "ref": str(sandbox.ref), "action": verb}
        context.record(head | {"fields": fields, "audit_id": end.audit_id if end else None})
    elif not drifted(sandbox):
        context.say(f"{sandbox.name}: nothing differs")
    elif fields:
        done = "re-applied" if context.args.reapply else "adopted"
        context.text(f"{sandbox.name}  {done}: {', '.join(fields)}")


def _cells(sandbox: Sandbox, row: FieldDrift) -> tuple[str, ...]:
    found = "?" if row.state is DriftState.UNKNOWN else asked_text(row.field, row.found)
    state = f"{row.state}: {row.note}" if row.note else str(row.state)
    return sandbox.name, row.field, asked_text(row.field, row.asked), found, state, row.by or "-", moment(row.at)
