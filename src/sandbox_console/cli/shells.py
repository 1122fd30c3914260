"""``shells``: list kept shells, attach to one, and end them."""

from __future__ import annotations

from typing import Any

import msgspec

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration, moment
from sandbox_console.cli.shell import attach_to, terminal_of
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import EndShell
from sandbox_console.model.kept_shell import KeptShell

_HEAD = ("NAME", "SANDBOX", "BACKEND", "OPENED", "BY", "SIZE", "VIEWERS", "ENDS IN", "RECORDED", "ID")


async def shells(context: Context) -> int:
    """``ls``, ``attach`` or ``end``."""
    return await {"ls": _ls, "attach": _attach, "end": _end}[context.args.what](context)


async def _ls(context: Context) -> int:
    async with context.open() as console:
        found = await console.kept_shells.list()
    if context.json:
        for one in found:
            context.record(_data(one))
    else:
        context.table(_HEAD, (_row(one) for one in found))
    return 0


async def _attach(context: Context) -> int:
    fd = terminal_of(context)
    async with context.open() as console:
        return await attach_to(context, console, context.args.name, fd)


async def _end(context: Context) -> int:
    async with context.open() as console:
        for name in dict.fromkeys(context.args.names):
            try:
                found = await console.kept_shells.find(name)
                done = await console.end_shell(EndShell(found.ref, found.id), consent=context.consent(found.ref.id))
            except ConsoleError as error:
                context.fail(error, name if len(context.args.names) > 1 else "")
                continue
            if context.json:
                context.record({"name": found.name, "id": found.id, "audit_id": done.audit_id})
            else:
                context.text(found.name)
    return context.code


def _data(one: KeptShell) -> dict[str, Any]:
    return {**msgspec.to_builtins(one), "ref": str(one.ref)}


def _row(one: KeptShell) -> tuple[str, ...]:
    start = (one.name, one.sandbox, one.ref.backend, moment(one.began), one.actor)
    if not one.answers:
        return (*start, "", "does not answer", "", "", one.id)
    watching = sum(viewer.read_only for viewer in one.viewers)
    viewers = f"{len(one.viewers)}" + (f" ({watching} read-only)" if watching else "")
    recorded = "yes" if one.recorded else "no"
    return (*start, f"{one.cols}x{one.rows}", viewers, duration(one.left_s), recorded, one.id)
