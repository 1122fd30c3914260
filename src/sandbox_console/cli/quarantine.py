"""``quarantine``: contains sandboxes and keeps the evidence, or ends a quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import find_named
from sandbox_console.cli.next_step import add_next_step
from sandbox_console.cli.selection import agree, fail_for_the_silent
from sandbox_console.cli.spec_options import pairs
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.sandbox_filter import SYNTAX, FieldTest, fits, parse_filter
from sandbox_console.service import Console
from sandbox_console.service.incident.quarantine import Quarantined, quarantine, release
from sandbox_console.service.incident.quarantine import plan as plan_quarantine

AT_ONCE = 32
"""How many sandboxes are contained at the same time."""


async def run(context: Context) -> int:
    """Run on all chosen sandboxes at once, so that one that hangs does not delay the others. Results come in order."""
    args = context.args
    matches = _filter(args.filter)
    async with context.open() as console:
        chosen = await _chosen(context, console, matches)
        if args.dry_run:
            for sandbox in chosen:
                await _tell_plan(context, console, sandbox)
            return context.code
        if not chosen and not context.failures:
            context.say("nothing to do: no sandbox matches")
        at_once = asyncio.Semaphore(AT_ONCE)
        ends = [asyncio.ensure_future(_one(context, console, sandbox, at_once)) for sandbox in chosen]
        for sandbox, end in zip(chosen, ends, strict=True):
            _tell(context, sandbox, await end, several=len(chosen) > 1)
    return context.code


async def _chosen(context: Context, console: Console, matches: Sequence[FieldTest]) -> list[Sandbox]:
    """The NAMEs, or our sandboxes with the labels that match the filter, from one list, after a confirmation."""
    args = context.args
    if args.names and (args.label or args.filter):
        raise UsageError("NAMEs cannot be used together with --label or --filter", hint="leave one of them out")
    if args.names:
        return await find_named(context, console, context.args.names, changing=True)
    if not (args.label or args.filter):
        raise UsageError(
            "no sandbox is named", hint="sandbox-console quarantine NAME..., -l KEY=VALUE, or --filter EXPR"
        )
    wanted = pairs(args.label, "label")
    sandboxes, healths = await console.list(context.backend[0])
    found = [
        sandbox
        for sandbox in sandboxes
        if sandbox.managed and all(sandbox.labels.get(k) == v for k, v in wanted.items())
    ]
    found = [sandbox for sandbox in found if bool(sandbox.quarantine) is bool(args.undo) and fits(sandbox, matches)]
    fail_for_the_silent(context, healths)
    found.sort(key=lambda sandbox: (sandbox.name, sandbox.ref))
    if found and not args.dry_run:
        await agree(context, found, "end the quarantine of" if args.undo else "quarantine")
    return found


def _filter(text: str) -> Sequence[FieldTest]:
    try:
        return parse_filter(text)
    except ValueError as error:
        raise UsageError(f"--filter: {error}", hint=SYNTAX) from None


async def _one(
    context: Context, console: Console, sandbox: Sandbox, at_once: asyncio.Semaphore
) -> Quarantined | ConsoleError:
    args, consent = context.args, context.consent(sandbox.ref.id)
    async with at_once:
        try:
            if args.undo:
                return await release(console, sandbox, consent=consent)
            return await quarantine(console, sandbox, args.reason, consent=consent, keep=not args.no_evidence)
        except ConsoleError as error:
            return error


async def _tell_plan(context: Context, console: Console, sandbox: Sandbox) -> None:
    try:
        steps = await plan_quarantine(console, sandbox, keep=not context.args.no_evidence)
    except ConsoleError as error:
        context.fail(error, sandbox.name)
        return
    if context.args.undo:
        steps = [step for step in steps if step.undo]
    if context.json:
        plan = [msgspec.to_builtins(step) for step in steps]
        context.record({"name": sandbox.name, "ref": str(sandbox.ref), "dry_run": True, "steps": plan})
        return
    context.text(f"{sandbox.name}  {sandbox.status}  {sandbox.ref}")
    for step in steps:
        if context.args.undo:
            context.text(f"  {step.what:<10}  {step.undo}")
        else:
            undo = f"undo: {step.undo}" if step.undo else "stays" if "cannot be done" not in step.text else ""
            context.text(f"  {step.what:<10}  {step.text}" + (f" ({undo})" if undo else ""))


def _tell(context: Context, sandbox: Sandbox, end: Quarantined | ConsoleError, *, several: bool) -> None:
    failed = end if isinstance(end, ConsoleError) else None
    if failed is not None:
        add_next_step(failed, context.args)
    steps = () if isinstance(end, ConsoleError) else end.steps
    if context.json:
        context.record({
            "name": sandbox.name, "ref": str(sandbox.ref), "action": "release" if context.args.undo else "quarantine",
            "ok": failed is None, "audit_id": end.audit_id, "steps": [msgspec.to_builtins(step) for step in steps],
            "error": failed.as_dict() if failed else None,
        })  # fmt: skip
    elif failed is None:
        context.text(f"{sandbox.name}  {sandbox.ref}")
        for step in steps:
            context.text(f"  {'done' if step.done else 'NOT DONE':<8}  {step.what:<10}  {step.note}")
    if failed is not None:
        context.fail(failed, sandbox.name if several else "")
    elif isinstance(end, Quarantined) and not end.contained:
        gone = ", ".join(step.what for step in steps if not step.done)
        context.fail(ConsoleError(f"it is not contained: {gone} could not be done"), sandbox.name)
