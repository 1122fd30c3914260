"""The callers' sandboxes as their backends list them. Callers who ask at the same time share one query."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from sandbox_console import service
from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.access import full, limited_to
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.servers.api.authentication import Caller
from sandbox_console.service.reads.lookup import host_label
from sandbox_console.service.server_options import API_OWNER

TOKEN, SUBJECT, BUCKET = API_OWNER, "a2a.subject", "a2a.bucket"
"""The labels with the owner of a sandbox."""

MADE_HERE = re.compile(r"sb-[0-9a-f]{12}\Z")
"""The names that the API gives."""


class Box(Struct, frozen=True):
    """A sandbox of a caller."""

    ref: SandboxRef
    name: str
    token: str
    subject: str
    bucket: str
    labels: Mapping[str, str] = {}

    def belongs_to(self, caller: Caller) -> bool:
        """Whether the caller made it, or another with the same token for the same agent and bucket."""
        same = (self.token, self.subject) == (caller.token, caller.subject)
        return same and caller.bucket in ("", self.bucket)


class Listing:
    """The callers' sandboxes by name.

    ``away`` is a host that did not answer and has sandboxes of callers, or is where they are made. Its sandboxes are
    kept as they were last seen; ``unseen`` are names that it had before this server was started.
    """

    def __init__(self, opened: service.Console, backend: str) -> None:
        self._opened = opened
        self._backend, _, self._host = backend.partition("/")
        self.boxes: dict[str, Box] = {}
        self.away: BackendHealth | None = None
        self.unseen: frozenset[str] = frozenset()
        self._changed: dict[str, Box | None] = {}
        self._running: asyncio.Task[None] | None = None
        self._coming: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """List again, with everybody who asks before the query begins. A query that already runs may be too old."""
        if self._coming is None:
            self._coming = asyncio.create_task(self._query(self._running))
            self._coming.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may be left
        await shielded(self._coming)

    async def close(self) -> None:
        """End the queries."""
        tasks = [task for task in (self._running, self._coming) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def add(self, box: Box) -> None:
        """Note a sandbox that was made, which a query that runs now may not show."""
        self.boxes[box.name] = self._changed[box.name] = box

    def forget(self, box: Box) -> None:
        """Note that a sandbox is gone."""
        self.boxes.pop(box.name, None)
        self._changed[box.name] = None

    def need_all(self) -> None:
        """Raise BackendUnreachable if the list lacks the sandboxes of a host."""
        if self.away is not None:
            raise BackendUnreachable(
                f"{host_label(self.away)} does not answer: {self.away.reason}", hint=self.away.hint
            )

    async def _query(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._coming = self._coming, None
        self._changed = {}
        with limited_to(full):  # the limits count everybody's
            sandboxes, healths = await self._opened.names(self._backend)
        self._note(sandboxes, [health for health in healths if not health.ok])

    def _note(self, sandboxes: Sequence[Sandbox], silent: Sequence[BackendHealth]) -> None:
        hosts = {(health.backend, health.host) for health in silent}
        kept = {box.name: box for box in self.boxes.values() if (box.ref.backend, box.ref.host) in hosts}
        found = [box_of(one.ref, one) for one in sandboxes if one.managed and one.labels.get(TOKEN)]
        there: dict[str, Box | None] = {**kept, **{box.name: box for box in found}, **self._changed}
        self.boxes = {name: box for name, box in there.items() if box is not None}
        names = {health: {one for one in self._known(health) if MADE_HERE.match(one)} for health in silent}
        self.unseen = frozenset().union(*names.values()) - set(there)
        self.away = next((health for health in silent if self._matters(health, names[health] | set(kept))), None)

    def _known(self, health: BackendHealth) -> set[str]:
        return {one.name for one in self._opened.fleet.names.of((health.backend, health.host)).names}

    def _matters(self, health: BackendHealth, names: set[str]) -> bool:
        """Whether a silent host may have sandboxes of callers: one that never answered has none, unless it is named."""
        if self._backend:
            return bool(names) or self._host in ("", health.host)
        known = self._opened.fleet.names.of((health.backend, health.host))
        return bool(names) or (health.silent and not known.answered_at)


def box_of(ref: SandboxRef, of: SandboxSpec | Sandbox) -> Box:
    """The sandbox with the owner that its labels name."""
    return Box(ref, of.name, of.labels[TOKEN], of.labels.get(SUBJECT, ""), of.labels.get(BUCKET, ""), of.labels)
