"""What happens to a sandbox: the runtime tells it of a generation that runs or is paused."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from sandbox_console.backends.a3s.client import Client, Place
from sandbox_console.errors import Conflict, NotFound
from sandbox_console.model.guest import GuestEvent

_WORDS = {
    "container-created": "create",
    "container-started": "start",
    "container-stopped": "die",
    "container-deleted": "destroy",
    "container-paused": "pause",
    "container-resumed": "unpause",
    "resources-updated": "update",
    "process-started": "exec_start",
    "process-exited": "exec_die",
}
"""The words that other backends have for them; the rest are passed on as they are."""


async def read(client: Client, place: Place, since: float | None, *, follow: bool) -> AsyncGenerator[GuestEvent, None]:
    """The events, oldest first; with ``follow``, those to come, until this generation has ended."""
    try:
        async with aclosing(client.events(place)) as found:
            async for event in found:
                if event is None:  # all that has happened so far was told
                    if not follow:
                        return
                    continue
                at = event.timestamp_unix_ns / 1e9
                if since is None or at >= since:
                    detail = event.process_id or ""
                    yield GuestEvent(at, _WORDS.get(event.kind, event.kind), detail, event.attributes)
    except (Conflict, NotFound):  # it has ended
        return
