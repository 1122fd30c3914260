"""``sessions``: lists and ends the browser sessions of the servers that run on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import duration, moment
from sandbox_console.errors import ConsoleError
from sandbox_console.service import find_paths
from sandbox_console.service.browser_sessions import BrowserServers, BrowserSession
from sandbox_console.service.gate.audit_log import current_actor


async def sessions(context: Context) -> int:
    """``ls`` or ``end``."""
    paths = find_paths()
    paths.make_private()
    servers = BrowserServers(paths)
    if context.args.what == "ls":
        _ls(context, await asyncio.to_thread(servers.sessions))
        return 0
    names = list(dict.fromkeys(context.args.names))
    for name in names:
        try:
            session = await asyncio.to_thread(servers.end, name, current_actor())
        except ConsoleError as error:
            context.fail(error, name if len(names) > 1 else "")
            continue
        if context.json:
            context.record({"id": session.id, "actor": session.actor})
        else:
            context.text(session.id)
    return context.code


def _ls(context: Context, found: Sequence[BrowserSession]) -> None:
    context.listing(("ID", "WHO", "BEGAN", "LAST KEY", "PAGE"), found, _record, _row)


def _row(session: BrowserSession) -> tuple[str, ...]:
    page = "open" if session.away_s is None else f"gone for {duration(session.away_s)}"
    return session.id, session.actor, moment(session.began_at), f"{duration(session.idle_s)} ago", page


def _record(session: BrowserSession) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(session).items() if name != "server"}
