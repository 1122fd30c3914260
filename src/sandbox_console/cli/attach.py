"""``attach``: the main process's output from now on, and our stdin to it."""

from __future__ import annotations

from sandbox_console.cli.context import Context
from sandbox_console.cli.entering import Output, result_of
from sandbox_console.cli.stdin import chunks
from sandbox_console.model.action import Attach
from sandbox_console.service import ExecIO


async def attach(context: Context) -> int:
    """Watch and feed the main process; its exit code where it ends meanwhile. Ctrl+C lets go and leaves it alone.

    What it wrote before is in ``logs``. Standard input is passed on unless it is a terminal.
    """
    async with context.open() as console:
        found = await console.find(context.args.name)
        output = Output(context)
        io = ExecIO(None if context.args.no_stdin else chunks(context.streams.stdin), output.give)
        operation = console.perform(Attach(found.ref), consent=context.consent(found.ref.id), io=io)
        output.on_closed = operation.cancel
        result = await result_of(operation, output)
        output.end()
    if context.json:
        context.record({"exit_code": result.exit_code, "audit_id": result.audit_id})
    return result.exit_code or 0
