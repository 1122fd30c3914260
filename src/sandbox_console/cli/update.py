"""``update``: changes a sandbox to another spec."""

from __future__ import annotations

from msgspec import structs

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import follow
from sandbox_console.cli.lookup import find
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.spec_options import from_args, without
from sandbox_console.errors import InvalidSpec
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.model.action import Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Console, Plan, differing, spec_of


async def update(context: Context) -> int:
    """Change a sandbox to another spec. Prints the plan, one change per line; ``--dry-run`` does nothing else."""
    async with context.open() as console:
        found = await console.inspect((await find(context, console, context.args.name, changing=True)).ref)
        spec = _wanted(context, found, await console.ground() if context.args.file else NOBODYS)
        plan = await console.plan(found, spec)
        if context.args.dry_run:
            return await _dry_run(context, console, found, spec, plan)
        result = await follow(context, console.perform(Update(found.ref, spec), consent=context.consent(found.ref.id)))
    if context.json:
        context.record(
            {"name": spec.name, "ref": str(result.ref), "audit_id": result.audit_id, "dry_run": False}
            | json_output.plan(plan)
        )
    else:
        _print(context, plan)
    return 0


def _wanted(context: Context, found: Sandbox, ground: GuestFolders) -> SandboxSpec:
    args = context.args
    spec = from_args(args, without(spec_of(found).to_dict(), args.unset), ground=ground)
    return structs.replace(spec, name=args.rename) if args.rename is not None else spec


async def _dry_run(context: Context, console: Console, found: Sandbox, spec: SandboxSpec, plan: Plan) -> int:
    problems = dict(await console.problems(spec, found.ref.backend, found.ref.host))
    if found.spec is None:
        problems = differing(found, spec, problems)
    if context.json:
        head = {"name": found.name, "ref": str(found.ref), "audit_id": None, "dry_run": True, "problems": problems}
        context.record(head | json_output.plan(plan))
    else:
        _print(context, plan)
    if problems:
        if not context.json:
            context.fail(InvalidSpec(problems))
        return 2
    return 8 if plan.how == "unsupported" else 0


def _print(context: Context, plan: Plan) -> None:
    if not plan.changes:
        context.say("nothing differs")
        return
    rows = (
        (one.field, asked_text(one.field, one.before), asked_text(one.field, one.after), str(one.how), one.reason)
        for one in plan.changes
    )
    context.table(("FIELD", "BEFORE", "AFTER", "HOW", "REASON"), rows)
    for note in plan.notes:
        context.say(f"note: {note}")
