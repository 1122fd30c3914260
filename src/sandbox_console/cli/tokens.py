"""``tokens``: manages who may use the page, the HTTP API and MCP. A token is shown once, when it is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sandbox_console.cli.context import Context
from sandbox_console.errors import UsageError
from sandbox_console.model.quantities import parse_duration_s
from sandbox_console.service import find_paths
from sandbox_console.service.tokens import Token, Tokens


async def tokens(context: Context) -> int:
    """``add``, ``ls`` or ``rm``."""
    paths = find_paths()
    paths.make_private()
    store, args = Tokens(paths.tokens), context.args
    if args.what == "ls":
        _ls(context, await asyncio.to_thread(store.every))
    elif args.what == "rm":
        for name in args.names:
            gone = await asyncio.to_thread(store.remove, name)
            context.say(f"{gone.name} is refused from now on")
    else:
        token, text = await asyncio.to_thread(store.add, args.name, args.scope, lifetime(args.expires))
        if context.json:
            context.record(_record(token) | {"token": text})
        else:
            context.text(text)
            context.say("this is the only time it is shown")
    return 0


def lifetime(text: str | None) -> float | None:
    """Seconds of a time like 15m; None for none. Raises UsageError."""
    if text is None:
        return None
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise UsageError(f"--expires: {error}") from None


def _ls(context: Context, tokens: Sequence[Token]) -> None:
    context.listing(("NAME", "ID", "SCOPES", "MADE", "EXPIRES"), tokens, _record, _cells)


def _cells(token: Token) -> tuple[str, ...]:
    return (token.name, token.id, " ".join(token.scopes), *_times(token))


def _times(token: Token) -> tuple[str, str]:
    expires = "never" if token.expires_at is None else utc(token.expires_at)
    return utc(token.created_at), expires if token.valid(time.time()) else f"{expires} (over)"


def utc(at: float) -> str:
    """A moment for a table."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))


def _record(token: Token) -> dict[str, Any]:
    return {
        "name": token.name, "id": token.id, "scopes": list(token.scopes), "created_at": token.created_at,
        "expires_at": token.expires_at,
    }  # fmt: skip
