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
        shells = await console.kept_shells.list()
    context.listing(_HEAD, shells, _data, _row)
    return 0


async def _attach(context: Context) -> int:
    fd = terminal_of(context)
    async with context.open() as console:
        return await attach_to(context, console, context.args.name, fd)


async def _end(context: Context) -> int:
    async with context.open() as console:
        for name in dict.fromkeys(context.args.names):
            try:
                shell = await console.kept_shells.find(name)
                done = await console.end_shell(EndShell(shell.ref, shell.id), consent=context.consent(shell.ref.id))
            except ConsoleError as error:
                context.fail(error, name if len(context.args.names) > 1 else "")
                continue
            if context.json:
                context.record({"name": shell.name, "id": shell.id, "audit_id": done.audit_id})
            else:
                context.text(shell.name)
    return context.code


def _data(shell: KeptShell) -> dict[str, Any]:
    return {**msgspec.to_builtins(shell), "ref": str(shell.ref)}


def _row(shell: KeptShell) -> tuple[str, ...]:
    start = (shell.name, shell.sandbox, shell.ref.backend, moment(shell.began), shell.actor)
    if not shell.answers:
        return (*start, "", "does not answer", "", "", shell.id)
    watching = sum(viewer.read_only for viewer in shell.viewers)
    viewers = f"{len(shell.viewers)}" + (f" ({watching} read-only)" if watching else "")
    recorded = "yes" if shell.recorded else "no"
    return (*start, f"{shell.cols}x{shell.rows}", viewers, duration(shell.left_s), recorded, shell.id)
