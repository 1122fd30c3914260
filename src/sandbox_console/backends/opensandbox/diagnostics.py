"""What a server tells about a sandbox in words: its state, limits, addresses and events."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_console.backends.opensandbox.client import Client
from sandbox_console.errors import ConsoleError

_KINDS = ("inspect", "events")
_VARIABLES = "Environment:"
"""The heading of the variables, which are left out: they may be secrets, and the spec has those that were asked for."""
_MOST_LINES, _LONGEST = 300, 500


async def read(client: Client, place: str) -> Mapping[str, list[str]]:
    """The lines of each kind, or why the server does not tell."""
    return {kind: await _lines(client, place, kind) for kind in _KINDS}


async def _lines(client: Client, place: str, kind: str) -> list[str]:
    try:
        text = await client.diagnostics(place, kind)
    except ConsoleError as error:
        return [f"not told: {error.message}"]
    return [line[:_LONGEST] for line in without_variables(text.splitlines())[:_MOST_LINES]]


def without_variables(lines: list[str]) -> list[str]:
    """The lines before the heading of the variables. All after it goes, as a value may have line breaks."""
    return lines[: lines.index(_VARIABLES)] if _VARIABLES in lines else lines
