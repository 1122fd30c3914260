"""``templates``: specs that are kept under a name, to create sandboxes from."""

from __future__ import annotations

import asyncio
from typing import Any

import tomli_w
from msgspec import structs

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import find
from sandbox_console.cli.ls import asked_text
from sandbox_console.cli.spec_options import from_args
from sandbox_console.errors import ConfigError, ConsoleError, NotFound, UsageError
from sandbox_console.hostfs.guest_writable import NOBODYS
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import FIELDS
from sandbox_console.service import Console, spec_of
from sandbox_console.service.templates import Template

_NAMELESS = "x"
"""Stands for the name in the spec of a template, which has none."""


async def templates(context: Context) -> int:
    """Run ``ls``, ``show``, ``save``, ``diff`` or ``rm``."""
    async with context.open() as console:
        match context.args.what:
            case "ls":
                return await _ls(context, console)
            case "show":
                return _show(context, await _get(console, context.args.template))
            case "save":
                return await _save(context, console)
            case "diff":
                return await _diff(context, console)
        return await _rm(context, console)


async def _get(console: Console, name: str) -> Template:
    return await asyncio.to_thread(console.templates.get, name)


async def _ls(context: Context, console: Console) -> int:
    """List all. A template that cannot be used is listed with the reason, and makes the exit code 2."""
    templates = await asyncio.to_thread(console.templates.every)
    context.listing(("TEMPLATE", "IMAGE", "EGRESS", "SECRETS", "FROM"), templates, _record, _cells)
    for template in templates:
        if template.problem:
            context.fail(ConfigError(template.problem, hint="correct or remove the file"))
    if not templates:
        context.say("there is no template: sandbox-console templates save TEMPLATE NAME keeps a sandbox's spec")
    return context.code


def _record(template: Template) -> dict[str, Any]:
    return {
        "template": template.name,
        "from": template.source,
        "spec": dict(template.fields),
        "problem": template.problem,
    }


def _cells(template: Template) -> tuple[str, ...]:
    if template.problem:
        return template.name, "cannot be used", "-", "-", template.source
    spec = template.spec(_NAMELESS)
    return (
        template.name,
        spec.image or "-",
        " ".join(spec.egress) or "none",
        " ".join(spec.secrets) or "-",
        template.source,
    )


def _show(context: Context, template: Template) -> int:
    if context.json:
        context.record(_record(template))
        return 0
    for line in tomli_w.dumps(dict(template.fields)).splitlines():
        context.text(line)
    return 0


async def _save(context: Context, console: Console) -> int:
    args = context.args
    base: dict[str, Any] = {}
    if args.name is not None:
        sandbox = await console.inspect((await find(context, console, args.name, changing=False)).ref)
        base = spec_of(sandbox).to_dict()
    given = (
        args.file or args.command or any(getattr(args, field.argument) is not None for field in FIELDS if field.option)
    )
    if args.name is None and not given:
        raise UsageError("there is nothing to keep", hint="name a sandbox, a file (-f FILE) or options of a spec")
    spec = from_args(args, base, name=_NAMELESS, ground=await console.ground() if args.file else NOBODYS)
    left = await console.templates.save(args.template, spec.to_dict(), replace=args.force)
    for name in left:
        context.say(f"note: env {name} is left out, as its name or value sounds secret: define it in [secrets]")
    if context.json:
        context.record(_record(await _get(console, args.template)) | {"left_out": list(left)})
    else:
        context.text(args.template)
    return 0


async def _diff(context: Context, console: Console) -> int:
    args = context.args
    if (args.other is None) == (args.sandbox is None):
        raise UsageError("what to compare with is missing", hint="name another template, or --sandbox NAME")
    spec = (await _get(console, args.template)).spec(_NAMELESS)
    if args.sandbox is not None:
        sandbox = await console.inspect((await find(context, console, args.sandbox, changing=False)).ref)
        other = structs.replace(spec_of(sandbox), name=_NAMELESS)
    else:
        other = (await _other(console, args.template, args.other)).spec(_NAMELESS)
    rows = _differences(spec, other)
    if context.json:
        for field, before, after in rows:
            context.record({"field": field, "template": before, "other": after})
    elif rows:
        context.table(
            ("FIELD", args.template, args.sandbox or args.other),
            ((field, asked_text(field, before), asked_text(field, after)) for field, before, after in rows),
        )
    else:
        context.say("nothing differs")
    return 1 if rows else 0


async def _other(console: Console, template: str, name: str) -> Template:
    try:
        return await _get(console, name)
    except NotFound as error:
        hint = f"{error.hint}; a sandbox: sandbox-console templates diff {template} --sandbox {name}"
        raise NotFound(error.message, hint=hint) from None


def _differences(spec: SandboxSpec, other: SandboxSpec) -> list[tuple[str, Any, Any]]:
    before, after = spec.to_dict(), other.to_dict()
    found = [field.name for field in FIELDS if before.get(field.name) != after.get(field.name)]
    return [(name, before.get(name), after.get(name)) for name in found]


async def _rm(context: Context, console: Console) -> int:
    for name in context.args.templates:
        try:
            await console.templates.remove(name)
        except ConsoleError as error:
            context.fail(error, name if len(context.args.templates) > 1 else "")
        else:
            context.record({"template": name, "removed": True}) if context.json else context.text(name)
    return context.code
