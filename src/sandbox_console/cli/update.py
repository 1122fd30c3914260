"""``update``: changes sandboxes to other specs."""

from __future__ import annotations

import asyncio
from typing import Any

from sandbox_console.cli import losses
from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import find
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.spec_options import read_file
from sandbox_console.cli.update_several import update_several
from sandbox_console.cli.update_steps import Step, carry_out, lost, planned, record
from sandbox_console.errors import InvalidSpec, UsageError
from sandbox_console.service import Console, Plan


async def update(context: Context) -> int:
    """Change sandboxes. One NAME prints its plan, one change per line; several are asked about together first."""
    args = context.args
    if bool(args.names) is bool(args.with_label):
        hint = "sandbox-console update NAME..., or --with-label KEY=VALUE"
        raise UsageError("name sandboxes, or choose them by label", hint=hint)
    async with context.open() as console:
        given = await asyncio.to_thread(read_file, args.file, await console.ground()) if args.file else {}
        args.file = None
        if len(args.names) == 1:
            return await _one(context, console, given)
        return await update_several(context, console, given)


async def _one(context: Context, console: Console, given: dict[str, Any]) -> int:
    dry = context.args.dry_run
    found = await find(context, console, context.args.names[0], changing=True)
    step = await planned(context, console, found, given, look=dry)
    if dry:
        return _dry_run(context, step)
    end, image = await carry_out(context, console, step, context.consent(step.found.ref.id))
    if context.json:
        done = {"ref": str(end.ref), "audit_id": end.audit_id, "dry_run": False}
        context.record(record(step, **done, **({"committed": image} if image else {})))
        return 0
    _print(context, step.plan)
    if image:
        context.say(f"committed: {image}")
    return 0


def _dry_run(context: Context, step: Step) -> int:
    if context.json:
        head = {"name": step.found.name, "dry_run": True, "problems": dict(step.problems)}
        context.record(record(step, **head) | {"losses": losses.data(step.losses, step.commits)})
    else:
        _print(context, step.plan)
        for line in lost(step):
            context.text(line)
    if step.problems:
        if not context.json:
            context.fail(InvalidSpec(dict(step.problems)))
        return 2
    return 8 if step.plan.how == "unsupported" else 0


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
