"""``up`` and ``down``: the sandboxes of a folder, as its ``sandbox.toml`` describes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import chosen_host, follow
from sandbox_console.cli.lifecycle import seconds
from sandbox_console.cli.lookup import find_all, host_label
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.selection import DRY_RUN, confirm
from sandbox_console.cli.spec_options import parsed, read_text
from sandbox_console.errors import (
    BackendUnreachable,
    Conflict,
    ConsoleError,
    InvalidSpec,
    NotFound,
    Unsupported,
    UsageError,
)
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import find
from sandbox_console.model.action import Create, Remove, Stop, Update
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import ActionResult, Consent, Console, How, Plan
from sandbox_console.service.sandbox_file import SandboxFile, beyond, mark_of, read_specs


class Step(Struct, frozen=True):
    """What ``up`` does about one spec: create it at ``target``, or carry out ``plan`` on ``found``.

    ``asks`` need a yes.
    """

    spec: SandboxSpec
    target: tuple[str, str] = ("", "")
    found: Sandbox | None = None
    plan: Plan = Plan(())
    asks: tuple[str, ...] = ()

    @property
    def action(self) -> str:
        """In one word."""
        if self.found is None:
            return "create"
        return {None: "nothing", How.LIVE: "update", How.RECREATE: "recreate"}.get(self.plan.how, "unsupported")


async def run(context: Context) -> int:
    """Run ``up`` or ``down``."""
    if context.args.file == "-":
        raise UsageError("up and down need a file, whose sandboxes they find again", hint="-f FILE")
    async with context.open() as console:
        path = await asyncio.to_thread(_location, context.args.file, await console.ground())
        mark = await asyncio.to_thread(mark_of, path, console.audit_log.path.parents[1])
        if context.args.verb == "down":
            return await _down(context, console, SandboxFile(path, mark))
        text = await asyncio.to_thread(read_text, str(path), await console.ground())
        specs = await asyncio.to_thread(read_specs, path, text, parsed(str(path), text))
        return await _up(context, console, SandboxFile(path, mark, specs))


def _location(name: str, guest_folders: GuestFolders) -> Path:
    """Where the file is, without links: they decide whose sandboxes it has. Raises Conflict for a guest's link."""
    try:
        with find(name, guest_folders) as found:
            return Path(f"/proc/self/fd/{found.folder.fd}").readlink() / found.name
    except OSError:  # a folder on the way is gone
        return Path(name).resolve()


async def _up(context: Context, console: Console, file: SandboxFile) -> int:
    steps = await _steps(context, console, file)
    if context.args.dry_run:
        return _print_plan(context, steps)
    _refuse_unsupported(steps)
    questions = [f"{step.spec.name}: {text}" for step in steps for text in step.asks]
    if questions:
        await confirm(context, questions, f"{file.path} asks:", DRY_RUN)
    for step in steps:
        try:
            end = await _carry_out(context, console, step, asked=bool(step.asks))
        except ConsoleError as error:
            context.fail(error, step.spec.name if len(steps) > 1 else "")
        else:
            _print_done(context, step, end)
    _name_the_left(context, console, file)
    return context.code


def _chosen(context: Context, file: SandboxFile) -> Sequence[SandboxSpec]:
    names = list(dict.fromkeys(context.args.names))
    known = [spec.name for spec in file.specs]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"it has {', '.join(known) or 'none'}"
            raise NotFound(f"{file.path} has no sandbox {name!r}", hint=hint)
    return [spec for spec in file.specs if not names or spec.name in names]


async def _steps(context: Context, console: Console, file: SandboxFile) -> list[Step]:
    """Plan every step before the first is carried out. Raises the first error that would stop it."""
    specs = [file.wanted(spec) for spec in _chosen(context, file)]
    looked = await find_all(context, console, [spec.name for spec in specs], changing=True, creating=True)
    founds = [_by_name(spec, one) for spec, one in zip(specs, looked, strict=True)]
    target = await chosen_host(context, console) if any(isinstance(one, NotFound) for one in founds) else ("", "")
    return [await _step(console, file, spec, one, target) for spec, one in zip(specs, founds, strict=True)]


def _by_name(spec: SandboxSpec, found: Sandbox | ConsoleError) -> Sandbox | ConsoleError:
    """What was found, unless only the beginning of its id fits: then nothing has the name."""
    if isinstance(found, Sandbox) and found.name != spec.name:
        return NotFound(f"no sandbox is called {spec.name!r}")
    return found


async def _step(
    console: Console, file: SandboxFile, spec: SandboxSpec, found: Sandbox | ConsoleError, target: tuple[str, str]
) -> Step:
    if isinstance(found, NotFound):
        await _refuse_problems(console, spec, *target)
        return Step(spec, target, asks=tuple(beyond(spec, None, file.path.parent)))
    if isinstance(found, ConsoleError):
        raise found
    found = await console.inspect(found.ref)
    if found.spec is None:
        hint = "give the sandbox in the file another name"
        raise Conflict(f"{spec.name} exists and was not made by this console", hint=hint)
    plan = await console.plan(found, spec)
    asks = list(beyond(spec, found.spec, file.path.parent))
    if not file.made(found.labels):
        asks.append("it exists and was not made by this file: it is taken over")
    if plan.changes:
        await _refuse_problems(console, spec, found.ref.backend, found.ref.host)
    if plan.how is How.RECREATE:
        fields = ", ".join(change.field for change in plan.changes if change.how is How.RECREATE)
        asks.append(f"it is recreated, because of {fields}: its processes and files outside the workspace are lost")
    return Step(spec, target, found, plan, tuple(asks))


async def _refuse_problems(console: Console, spec: SandboxSpec, backend: str, host: str) -> None:
    if problems := await console.problems(spec, backend, host):
        raise InvalidSpec({f"{spec.name}: {field}": text for field, text in problems.items()})


def _refuse_unsupported(steps: Sequence[Step]) -> None:
    """Raise Unsupported before anything is done."""
    for step in steps:
        for change in step.plan.changes:
            if change.how is How.UNSUPPORTED:
                raise Unsupported(f"{step.spec.name}: {change.field} cannot be changed: {change.reason}")


async def _carry_out(context: Context, console: Console, step: Step, *, asked: bool) -> ActionResult | None:
    """Do one step. Returns None if there is nothing to do. Raises ConsoleError."""
    if step.found is None:
        action: Create | Update = Create(step.spec, *step.target)
        for note in console.notes(step.spec, *step.target):
            context.say(f"note: {step.spec.name}: {note}")
    elif step.plan.how is None:
        return None
    else:
        action = Update(step.found.ref, step.spec)
    consent = context.consent(step.found.ref.id if step.found else "")
    return await follow(context, console.perform(action, consent=Consent(consent.yes or asked, consent.confirm)))


def _print_plan(context: Context, steps: Sequence[Step]) -> int:
    for step in steps:
        if context.json:
            context.record(_record(step) | {"dry_run": True, "asks": list(step.asks)})
            continue
        context.text(f"{step.spec.name}  {step.action}")
        for change in step.plan.changes:
            before, after = asked_text(change.field, change.before), asked_text(change.field, change.after)
            context.text(f"  {change.field}: {before} -> {after} ({change.how})")
        for text in step.asks:
            context.text(f"  asks: {text}")
    return 8 if any(step.plan.how is How.UNSUPPORTED for step in steps) else 0


def _record(step: Step) -> dict[str, Any]:
    ref = str(step.found.ref) if step.found else None
    return {"name": step.spec.name, "ref": ref, "action": step.action} | json_output.plan(step.plan)


def _print_done(context: Context, step: Step, end: ActionResult | None) -> None:
    if context.json:
        ref = str(end.ref) if end and end.ref else str(step.found.ref) if step.found else None
        context.record(_record(step) | {"ref": ref, "audit_id": end.audit_id if end else None, "dry_run": False})
        return
    done = {"create": "created", "update": "updated", "recreate": "recreated"}.get(step.action, "unchanged")
    fields = ", ".join(change.field for change in step.plan.changes)
    context.text(f"{step.spec.name}  {done}{f': {fields}' if fields else ''}")
    if end is None and step.found is not None and not step.found.status.live:
        context.say(f"note: {step.spec.name} is {step.found.status}: sandbox-console start {step.spec.name}")


def _name_the_left(context: Context, console: Console, file: SandboxFile) -> None:
    """Name the sandboxes that the file made and no longer has, as the hosts listed them when the names were found."""
    specs = {spec.name for spec in file.specs}
    for name in console.known_of(file.mark, context.backend[0]):
        if name not in specs:
            context.say(f"note: {name} is no longer in the file: sandbox-console down {name} removes it")


async def _down(context: Context, console: Console, file: SandboxFile) -> int:
    """Remove what the file made, and after a question what else was named."""
    grace_s = seconds(context.args.grace, "grace")
    ours = await _made(context, console, file)
    names = list(dict.fromkeys(context.args.names))
    chosen = sorted((one for one in ours if not names or one.name in names), key=lambda one: (one.name, one.ref))
    missing = [name for name in names if name not in {one.name for one in chosen}]
    others = await find_all(context, console, missing, changing=True)
    for name, one in zip(missing, others, strict=True):
        if isinstance(one, ConsoleError):
            context.fail(one, name)
    foreign = [one for one in others if isinstance(one, Sandbox)]
    if context.args.dry_run:
        for one in [*chosen, *foreign]:
            _print_gone(context, one, None, dry_run=True)
        return context.code
    if foreign:
        await confirm(context, [f"remove {one.name}, which {file.path} did not make" for one in foreign], hint=DRY_RUN)
    if not chosen and not foreign and not missing:
        context.say(f"nothing to do: {file.path} made no sandbox that is there")
    for one in [*chosen, *foreign]:
        try:
            end = await _remove(context, console, one, grace_s)
        except ConsoleError as error:
            context.fail(error, one.name)
        else:
            _print_gone(context, one, end)
    return context.code


async def _made(context: Context, console: Console, file: SandboxFile) -> Sequence[Sandbox]:
    """What the file made. A host that does not answer and may have some of it is a failure of the verb."""
    only_answering = context.args.only_answering
    found, doubts = await console.made_by(file.mark, context.backend[0], only_answering=only_answering)
    for health in doubts:
        text = f"{host_label(health)} does not answer and may have sandboxes of {file.path}: {health.reason}"
        context.fail(BackendUnreachable(text, hint=health.hint or "--only-answering leaves it out"))
    return found


async def _remove(context: Context, console: Console, sandbox: Sandbox, grace_s: float) -> ActionResult:
    consent = context.consent(sandbox.ref.id)
    if sandbox.status is Status.RUNNING:
        await follow(context, console.perform(Stop(sandbox.ref, grace_s), consent=consent))
    return await follow(context, console.perform(Remove(sandbox.ref, force=sandbox.status.live), consent=consent))


def _print_gone(context: Context, sandbox: Sandbox, end: ActionResult | None, *, dry_run: bool = False) -> None:
    if context.json:
        action = {"action": "remove", "audit_id": end.audit_id if end else None, "dry_run": dry_run}
        context.record({"name": sandbox.name, "ref": str(sandbox.ref)} | action)
    else:
        context.text(f"{sandbox.name}  {'remove' if dry_run else 'removed'}")
