"""``update`` of several sandboxes: one plan and one question for all, and a result for each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from sandbox_console.cli import json_output, losses
from sandbox_console.cli.context import Context
from sandbox_console.cli.lifecycle import AT_ONCE
from sandbox_console.cli.lookup import find_all
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.next_step import add_next_step
from sandbox_console.cli.selection import DRY_RUN, confirm, labelled
from sandbox_console.cli.update_steps import Step, carry_out, lost, planned, record
from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import ActionResult, Consent, Console, How


async def update_several(context: Context, console: Console, given: dict[str, Any]) -> int:
    """One plan and one question for all, and a result for each. The exit code is that of the first failure."""
    args = context.args
    if args.rename is not None or "name" in given:
        raise UsageError("several sandboxes cannot have one name", hint="rename them one by one")
    if args.with_label:
        args.names = [str(one.ref) for one in await labelled(context, console, args.with_label, "with-label")]
        if not args.names:
            context.say("nothing to do: no sandbox of this console matches")
    names = list(dict.fromkeys(args.names))
    founds = await find_all(context, console, names, changing=True)
    at_once = asyncio.Semaphore(AT_ONCE)
    steps = await asyncio.gather(*(_looked_at(context, console, one, given, at_once) for one in founds))
    if args.dry_run:
        for name, step in zip(names, steps, strict=True):
            _print_planned(context, name, step)
        return context.code
    if questions := [line for step in steps if isinstance(step, Step) for line in _questions(step)]:
        await confirm(context, questions, f"update {len(names)} sandboxes:", DRY_RUN)
    ends = [asyncio.ensure_future(_done(context, console, step, at_once)) for step in steps]
    for name, step, end in zip(names, steps, ends, strict=True):
        _print_done(context, name, step, await end)
    return context.code


async def _looked_at(
    context: Context, console: Console, one: Sandbox | ConsoleError, given: dict[str, Any],
    at_once: asyncio.Semaphore,
) -> Step | ConsoleError:  # fmt: skip
    if isinstance(one, ConsoleError):
        return one
    async with at_once:
        try:
            return await planned(context, console, one, given, look=True)
        except ConsoleError as error:
            return error


def _changes(step: Step) -> Iterator[str]:
    for one in step.plan.changes:
        before, after = asked_text(one.field, one.before), asked_text(one.field, one.after)
        yield f"{one.field}: {before} -> {after} ({one.how}{f': {one.reason}' if one.how is How.UNSUPPORTED else ''})"


def _questions(step: Step) -> Iterator[str]:
    """What is asked about one sandbox; nothing if nothing will be done."""
    if step.problems or step.plan.how in (None, How.UNSUPPORTED):
        return
    yield from (f"{step.found.name}: {line}" for line in (*_changes(step), *lost(step)))


def _print_planned(context: Context, name: str, step: Step | ConsoleError) -> None:
    if isinstance(step, ConsoleError):
        context.fail(step, name)
        return
    if context.json:
        head = {"name": step.found.name, "dry_run": True, "problems": dict(step.problems)}
        context.record(record(step, **head) | {"losses": losses.data(step.losses, step.commits)})
    else:
        context.text(f"{step.found.name}  {step.plan.how or 'nothing differs'}")
        for line in (*_changes(step), *lost(step), *(f"note: {note}" for note in step.plan.notes)):
            context.text(f"  {line}")
    try:
        step.refuse()
    except ConsoleError as error:
        context.fail(error, step.found.name)


async def _done(
    context: Context, console: Console, step: Step | ConsoleError, at_once: asyncio.Semaphore
) -> tuple[ActionResult, str] | ConsoleError | None:
    """Do one step after the question. Returns what went wrong, or None if nothing differed."""
    if isinstance(step, ConsoleError):
        return step
    async with at_once:
        try:
            step.refuse()
            if step.plan.how is None and step.spec == step.found.spec:
                return None
            given = context.consent(step.found.ref.id)
            return await carry_out(context, console, step, Consent(yes=True, confirm=given.confirm))
        except ConsoleError as error:
            return error


def _print_done(
    context: Context, name: str, step: Step | ConsoleError, end: tuple[ActionResult, str] | ConsoleError | None
) -> None:
    failed = end if isinstance(end, ConsoleError) else None
    shown = step.found.name if isinstance(step, Step) else name
    if failed is not None:
        add_next_step(failed, context.args)
    if context.json:
        context.record(_result(shown, step, end))
    if failed is not None:
        context.fail(failed, shown)
    elif not context.json and isinstance(step, Step):
        fields = ", ".join(f"{one.field} ({one.how})" for one in step.plan.changes)
        context.text(f"{shown}  {fields or 'nothing differs'}")
        if isinstance(end, tuple) and end[1]:
            context.say(f"{shown}: committed: {end[1]}")


def _result(
    name: str, step: Step | ConsoleError, end: tuple[ActionResult, str] | ConsoleError | None
) -> dict[str, Any]:
    done, image = end if isinstance(end, tuple) else (None, "")
    failed = end if isinstance(end, ConsoleError) else None
    ref = done.ref if done and done.ref else step.found.ref if isinstance(step, Step) else None
    data: dict[str, Any] = {
        "name": name,
        "ref": str(ref) if ref else None,
        "action": "update",
        "ok": failed is None,
        "audit_id": done.audit_id if done else failed.audit_id if failed else None,
        "dry_run": False,
        "error": failed.as_dict() if failed else None,
    }
    data |= {"committed": image} if image else {}
    return data | (json_output.plan(step.plan) if isinstance(step, Step) else {})
