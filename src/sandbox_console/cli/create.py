"""``create``: makes a sandbox and starts it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.spec_options import from_args
from sandbox_console.errors import InvalidSpec
from sandbox_console.hostfs.guest_writable import NOBODYS
from sandbox_console.model.action import Create
from sandbox_console.model.capability import Capability
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_schema import spec_schema
from sandbox_console.service import ActionResult, Allow, Ask, Console, Deny, Operation
from sandbox_console.service.reads.masking import left_masked


async def create(context: Context) -> int:
    """Make a sandbox and start it. Prints its name, or with ``--json`` the sandbox and the row's id."""
    args = context.args
    spec = None if args.file or args.template else _by_options(context)
    async with context.open() as console:
        if spec is None:
            base = dict((await asyncio.to_thread(console.templates.get, args.template)).fields) if args.template else {}
            spec = from_args(args, base, name=args.name, ground=await console.ground() if args.file else NOBODYS)
        backend, host = await chosen_host(context, console)
        action = Create(spec, backend, host, start=not args.no_start)
        if not args.only_answering:
            await console.refuse_held(spec.name)
        if args.dry_run:
            return await _dry_run(context, console, action)
        for note in console.notes(spec, backend, host):
            context.say(f"note: {note}")
        operation = console.perform(action, consent=context.consent())
        result = await follow(context, operation)
        if context.json and result.ref is not None:
            sandbox = await console.inspect(result.ref)
            context.record(json_output.sandbox(sandbox) | {"audit_id": result.audit_id})
        else:
            context.text(spec.name)
    return 0


async def schema(context: Context) -> int:
    """Print the JSON Schema of a spec file, indented, or with ``--json`` on one line."""
    if context.json:
        context.record(spec_schema())
    else:
        for line in json.dumps(spec_schema(), indent=2).splitlines():
            context.text(line)
    return 0


def _by_options(context: Context) -> SandboxSpec:
    args = context.args
    missing = {"name": "a name is needed"} if not args.name else {}
    if args.image is None:
        missing["image"] = "an image is needed: --image host for bubblewrap"
    if missing:
        raise InvalidSpec(missing, hint="sandbox-console create NAME --image I, or create -f FILE")
    return from_args(args, {"name": args.name})


async def chosen_host(context: Context, console: Console) -> tuple[str, str]:
    """Where to make it: ``--backend``, else the default, else the first that answers. Raises BackendUnreachable.

    With ``--host`` it is the matching host with the fewest running, which is said. Raises NoRoom.
    """
    backend, host = await console.place_for(context.args.backend)
    if context.args.on_hosts and len(console.places) > 1:
        context.say(f"note: on {backend}/{host}, which has the fewest running")
    return backend, host


async def follow(context: Context, operation: Operation) -> ActionResult:
    """Report an operation's progress and return its result. Cancelling this cancels the operation."""
    telling = asyncio.ensure_future(_progress(context, operation))
    try:
        return await operation.result()
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _progress(context: Context, operation: Operation) -> None:
    async for text in operation.events():
        if context.streams.err.tty:
            context.say(f"{text} ...")


async def _dry_run(context: Context, console: Console, action: Create) -> int:
    problems = left_masked(action.spec) | dict(await console.problems(action.spec, action.backend, action.host))
    await console.masking.ready()
    decision = await console.decide(action)
    capabilities = await console.capabilities(action.backend, action.host)
    report = {
        "spec": console.masking.spec(action.spec).to_dict(),
        "backend": action.backend,
        "host": action.host,
        "problems": problems,
        "decision": json_output.decision(decision),
        "notes": list(console.notes(action.spec, action.backend, action.host)),
        "missing": {str(one): capabilities.reason(one) for one in Capability if not capabilities.has(one)},
    }
    if context.json:
        context.record(report)
    else:
        _print_dry_run(context, report)
    if problems:
        return 2
    match decision:
        case Allow():
            return 0
        case Ask():
            return 0 if context.consent().yes else 4
        case Deny(capability=capability):
            return 8 if capability else 4


def _print_dry_run(context: Context, report: dict[str, Any]) -> None:
    context.text(f"backend    {report['backend']}/{report['host']}")
    for key, value in report["spec"].items():
        context.text(f"spec       {key} = {asked_text(key, value)}")
    for key, value in report["problems"].items():
        context.text(f"problem    {key}: {value}")
    for note in report["notes"]:
        context.text(f"note       {note}")
    decision = report["decision"]
    context.text(f"decision   {decision['outcome']}" + (f": {decision['reason']}" if decision["reason"] else ""))
    for key, value in report["missing"].items():
        context.text(f"cannot     {key}: {value}")
