"""``attach``: the main process's output from now on, and our stdin to it."""

from __future__ import annotations

from sandbox_console.cli.context import Context
from sandbox_console.cli.exec import Output, result_of
from sandbox_console.cli.lookup import find
from sandbox_console.cli.stdin import chunks
from sandbox_console.errors import BackendError
from sandbox_console.model.action import Attach
from sandbox_console.service import ExecIO


async def attach(context: Context) -> int:
    """Watch and feed the main process; its exit code where it ends meanwhile. Ctrl+C lets go and leaves it alone.

    What it wrote before is in ``logs``. Standard input is passed on unless it is a terminal.
    """
    async with context.open() as console:
        found = await find(context, console, context.args.name, changing=True)
        output = Output(context)
        io = ExecIO(None if context.args.no_stdin else chunks(context.streams.stdin), output.give)
        operation = console.perform(Attach(found.ref), consent=context.consent(found.ref.id), io=io)
        output.on_closed = operation.cancel
        result = await result_of(operation, output)
        output.end()
    if context.json:
        context.record({"exit_code": result.exit_code, "audit_id": result.audit_id})
    if result.exit_code is None:
        why = str(result.details.get("end") or "how is not known")
        raise BackendError(f"{found.name}: the attachment ended: {why}", hint=f"sandbox-console show {found.ref}")
    return result.exit_code
