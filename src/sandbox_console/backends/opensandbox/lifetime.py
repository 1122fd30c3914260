"""How long a sandbox lives: the server removes it at a time that it was made with, and that can be moved."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from sandbox_console.backends.opensandbox.client import Box, Client
from sandbox_console.backends.opensandbox.translate import SHORTEST_S
from sandbox_console.errors import Unsupported

_FIELD = "max_duration_s"
_FOREVER = "the server keeps a sandbox forever that was made without a time; recreate it with one"


def problem(life_s: float | None) -> str:
    """What is wrong with a life that a new sandbox is to have; empty if nothing is."""
    if life_s is not None and life_s < SHORTEST_S:
        return f"the shortest life that the server takes is {SHORTEST_S} s"
    return ""


def out_of_bounds(box: Box, life_s: float | None) -> Mapping[str, str]:
    """Why the life of a sandbox that runs cannot be changed to this; empty if it can."""
    if life_s is None:
        return {}
    if box.expires_at is None or box.created_at is None:
        return {_FIELD: _FOREVER}
    if _end(box.created_at, life_s).timestamp() <= time.time():
        return {_FIELD: "it has lived longer than that already; stop ends it"}
    return {}


async def renew(client: Client, box: Box, life_s: float) -> None:
    """Move the end of a sandbox, counted from when it was made. Raises Unsupported, BackendError."""
    if beyond := out_of_bounds(box, life_s):
        raise Unsupported(f"{_FIELD}: {beyond[_FIELD]}")
    if box.created_at is not None:  # else it is out of bounds
        await client.renew(box.id, _end(box.created_at, life_s))


def _end(made: datetime, life_s: float) -> datetime:
    begun = made if made.tzinfo is not None else made.replace(tzinfo=UTC)
    return begun + timedelta(seconds=life_s)
