"""Lists the containers of one engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.docker import translate
from sandbox_console.backends.docker.connection import Connection
from sandbox_console.backends.docker.gateways import Gateways
from sandbox_console.backends.docker.labels import claims, image_labels, is_gateway, own_labels
from sandbox_console.errors import NotFound
from sandbox_console.model.sandbox import Sandbox, SandboxRef

AT_ONCE = 16
"""How many inspects are in flight while listing. An engine answers each in about a millisecond."""

SOON = 64
"""This many inspects finish before a user notices a delay."""


class Listing:
    """The list of one engine.

    The engine's own list has no exit, times or limits. Containers of the console are therefore inspected one by one
    with ``inspect``, and those of other tools only when they are shown.
    """

    def __init__(
        self, connection: Connection, installation: Installation, gateways: Gateways,
        inspect: Callable[[SandboxRef], Awaitable[Sandbox]],
    ) -> None:  # fmt: skip
        self._connection, self._installation, self._gateways = connection, installation, gateways
        self._inspect = inspect

    async def brief(self) -> list[Sandbox]:
        """The engine's own list. Raises BackendUnreachable."""
        engine = await self._connection.engine()
        found = await engine.call("GET", "containers/json", params={"all": 1})
        ours = self._installation.id
        await self._without_copied_labels(found)
        return [
            translate.from_summary(self._connection.context, data, ours=ours, backend=self._connection.backend)
            for data in found
            if not _of_gateway(data)
        ]

    async def detailed(self) -> list[Sandbox]:
        """The list with the console's own containers inspected. Raises BackendUnreachable."""
        return await self._detailed(await self._fresh())

    async def as_answered(self) -> AsyncGenerator[list[Sandbox], None]:
        """Like ``detailed``. If inspecting each container takes long, the engine's own list comes first."""
        rows = await self._fresh()
        if sum(row.managed for row in rows) > SOON:
            yield rows
        yield await self._detailed(rows)

    async def _fresh(self) -> list[Sandbox]:
        if not self._gateways.problem:
            return await self.brief()
        rows, _ = await asyncio.gather(self.brief(), self._gateways.look())  # its image may be back since then
        return rows

    async def _without_copied_labels(self, found: Sequence[dict[str, Any]]) -> None:
        """Remove the labels that containers have from their images. Each image is inspected once."""
        claimed = [data for data in found if claims(data.get("Labels") or {})]
        engine, history, limit = await self._connection.engine(), self._connection.history, asyncio.Semaphore(AT_ONCE)

        async def labels(id: str) -> Mapping[str, str]:
            async with limit:
                return image_labels(await history.image(engine, id))

        ids = list({str(data.get("ImageID", "")) for data in claimed})
        images = dict(zip(ids, await asyncio.gather(*map(labels, ids)), strict=True))
        for data in claimed:
            data["Labels"] = own_labels(data["Labels"], images[str(data.get("ImageID", ""))])

    async def _detailed(self, rows: Sequence[Sandbox]) -> list[Sandbox]:
        limit = asyncio.Semaphore(AT_ONCE)
        found = await asyncio.gather(*(self._one_detailed(row, limit) for row in rows))
        return [row for row in found if row is not None]

    async def _one_detailed(self, row: Sandbox, limit: asyncio.Semaphore) -> Sandbox | None:
        if not row.managed:
            return row
        async with limit:
            try:
                return await self._inspect(row.ref)
            except NotFound:
                return None


def _of_gateway(row: Mapping[str, Any]) -> bool:
    return any(is_gateway(name, row.get("Labels") or {}) for name in row.get("Names") or ())
