"""The pools of a server, listed as what sandboxes are made of."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.backends.opensandbox.client import Client, Pool
from sandbox_console.backends.opensandbox.translate import BACKEND, POOL, seconds
from sandbox_console.errors import Unsupported
from sandbox_console.model.image import Image


async def images(client: Client, host: str) -> Sequence[Image]:
    """Each pool as ``pool:NAME``; none for a server whose engine has no pools."""
    try:
        found = await client.pools()
    except Unsupported:
        return ()
    return [
        Image(BACKEND, host, one.name, (POOL + one.name,), created_at=seconds(one.created_at), needed=_ready(one))
        for one in found
    ]


def _ready(pool: Pool) -> str:
    if pool.status is None:
        return "its sandboxes are not known yet"
    return f"{pool.status.available} of {pool.status.total} ready, at most {pool.capacity_spec.pool_max}"
