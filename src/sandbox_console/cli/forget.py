"""``forget``: lists the workspaces of removed sandboxes, or forgets what guests could write there."""

from __future__ import annotations

from typing import Any

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import moment
from sandbox_console.service.forgotten_workspaces import forget as forgotten
from sandbox_console.service.forgotten_workspaces import removed_workspaces
from sandbox_console.service.reads.removed_workspaces import RemovedWorkspace

_Row = tuple[str, RemovedWorkspace]


async def forget(context: Context) -> int:
    """Forget the named workspaces; without a name, list them."""
    folders = context.args.folders
    async with context.open() as console:
        if not folders:
            context.listing(("WORKSPACE", "REMOVED"), [*(await removed_workspaces(console)).items()], _data, _cells)
        for path in await forgotten(console, folders) if folders else ():
            context.say(f"links in {path} are followed from now on")
    return 0


def _data(row: _Row) -> dict[str, Any]:
    return {"workspace": row[0], "removed_at": row[1].since}


def _cells(row: _Row) -> tuple[str, ...]:
    return row[0], moment(row[1].since)
