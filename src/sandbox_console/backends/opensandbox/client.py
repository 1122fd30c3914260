"""The calls to an OpenSandbox server: its lifecycle API, and execd in a sandbox, which it forwards.

Execd could also be reached directly at an address that the server names. That address would get the requests without
being in the configuration, so it is not used.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from sandbox_console.backends.base import ReadKey
from sandbox_console.backends.common.remote import (
    ANSWER_S,
    LONGEST_TEXT,
    Key,
    Params,
    Remote,
    Silent,
    problem_of,
    refusal,
    segment,
)
from sandbox_console.backends.opensandbox.options import Platform
from sandbox_console.errors import BackendUnreachable, ConsoleError

EXECD_PORT = 44772
CREATE_S = 120.0
"""The server may pull the image first."""
READY_S = 30.0
"""How long a start waits for execd."""
_AGAIN_S = 0.1
_PAGE, _MOST_PAGES = 200, 500


_Measure = Annotated[float, Meta(ge=0, le=1e12)]
"""Execd runs in the guest, which may claim anything."""


class State(Struct, frozen=True, rename="camel"):
    """A state in the server's words."""

    state: str
    reason: str = ""
    message: str = ""
    last_transition_at: datetime | None = None


class Image(Struct, frozen=True):
    """Where an image is."""

    uri: str = ""


class Box(Struct, frozen=True, rename="camel"):
    """A sandbox as the server tells it."""

    id: str
    status: State
    created_at: datetime | None = None
    expires_at: datetime | None = None
    image: Image | None = None
    snapshot_id: str | None = None
    metadata: dict[str, str] | None = None
    entrypoint: list[str] | None = None


class Metrics(Struct, frozen=True):
    """What execd measures: ``cpu_used_pct`` is of all CPUs together."""

    cpu_count: _Measure = 1.0
    cpu_used_pct: _Measure | None = None
    mem_used_mib: _Measure | None = None
    mem_total_mib: _Measure | None = None


class Capacity(Struct, frozen=True, rename="camel"):
    """How many sandboxes a pool may have."""

    pool_max: int = 0


class PoolStatus(Struct, frozen=True):
    """How many sandboxes a pool has, and how many of them wait to be used."""

    total: int = 0
    available: int = 0


class Pool(Struct, frozen=True, rename="camel"):
    """Sandboxes that were started in advance. The server has such pools on Kubernetes alone."""

    name: str
    capacity_spec: Capacity = field(default_factory=Capacity)
    status: PoolStatus | None = None
    created_at: datetime | None = None


class _Pools(Struct):
    items: list[Pool]


class _Paging(Struct, rename="camel"):
    has_next_page: bool = False


class _Page(Struct):
    items: list[Box]
    pagination: _Paging = field(default_factory=_Paging)


class _Problem(Struct):
    code: str = ""
    message: str = ""
    detail: Any = None


class Client:
    """The calls to one server. The key is read when it is first needed, and again after it was refused."""

    def __init__(self, host: str, platform: Platform, key: ReadKey) -> None:
        self.label = f"OpenSandbox server {host!r}"
        self._key = Key(platform.key, key)
        self.remote = Remote(self.label, platform.url, self._headers, self._refused)

    async def close(self) -> None:
        """Close its connections."""
        await self.remote.close()

    async def every(self) -> Sequence[Box]:
        """All sandboxes, page by page. Raises Silent for a list that does not end."""
        found: dict[str, Box] = {}
        for page in range(1, _MOST_PAGES + 1):
            params = (("page", str(page)), ("pageSize", str(_PAGE)))
            data = await self.remote.call("GET", "/v1/sandboxes", "list", params=params)
            answer = self.remote.decoded(data, _Page, "list")
            before = len(found)
            found |= {one.id: one for one in answer.items}
            if not answer.pagination.has_next_page:
                return list(found.values())
            if len(found) == before:
                break
        raise Silent(f"{self.label}: the list does not end", hint="the server says that there is always a next page")

    async def one(self, id_: str) -> Box:
        """One sandbox. Raises NotFound."""
        return self.remote.decoded(await self.remote.call("GET", path(id_), "get"), Box, "get")

    async def raw(self, id_: str) -> Mapping[str, Any]:
        """One sandbox as the server tells it."""
        return self.remote.decoded(await self.remote.call("GET", path(id_), "get"), dict[str, Any], "get")

    async def create(self, asked: Mapping[str, Any]) -> Box:
        """Make and start a sandbox."""
        data = await self.remote.call("POST", "/v1/sandboxes", "create", body=asked, timeout_s=CREATE_S)
        return self.remote.decoded(data, Box, "create")

    async def ready(self, id_: str) -> None:
        """Wait until execd answers, for a while: without it the sandbox runs, and only commands fail."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                await self.in_guest("GET", id_, "/ping")
                return
            except BackendUnreachable:
                if (await self.one(id_)).status.state not in ("Running", "Pending"):
                    return
            except ConsoleError:
                return
            await asyncio.sleep(_AGAIN_S)

    async def act(self, method: str, id_: str, verb: str = "") -> None:
        """Pause, resume or delete a sandbox."""
        await self.remote.call(method, path(id_, verb), verb or "delete", timeout_s=ANSWER_S * 5)

    async def renew(self, id_: str, until: datetime) -> None:
        """Set the time at which the server removes a sandbox. Raises Conflict for one that it keeps forever."""
        body = {"expiresAt": until.isoformat()}
        await self.remote.call("POST", path(id_, "renew-expiration"), "renew", body=body)

    async def pools(self) -> Sequence[Pool]:
        """The pools. Raises Unsupported for a server that has none, as it is not on Kubernetes."""
        return self.remote.decoded(await self.remote.call("GET", "/v1/pools", "pools"), _Pools, "pools").items

    async def diagnostics(self, id_: str, kind: str) -> str:
        """What the server tells about a sandbox as text: ``inspect`` or ``events``."""
        return (await self.remote.call("GET", path(id_, f"diagnostics/{kind}"), kind)).decode("utf-8", "replace")

    async def logs(self, id_: str, tail: int) -> str:
        """The last lines of a sandbox's log, each with its time."""
        data = await self.remote.call("GET", path(id_, "diagnostics/logs"), "logs", params=(("tail", str(tail)),))
        return data.decode("utf-8", "replace")

    async def metrics(self, id_: str) -> Metrics:
        """What execd measures in a sandbox."""
        return self.remote.decoded(await self.remote.call("GET", execd(id_, "/metrics"), "metrics"), Metrics, "metrics")

    async def in_guest(self, method: str, id_: str, where: str, body: Any = None, params: Params = ()) -> bytes:
        """One call of execd in a sandbox."""
        return await self.remote.call(method, execd(id_, where), f"execd {where}", body=body, params=params)

    async def _headers(self) -> Mapping[str, str]:
        key = await self._key.value()
        return {"OPEN-SANDBOX-API-KEY": key} if key else {}

    def _refused(self, request: str, status: int, body: bytes) -> ConsoleError:
        self._key.forget(status)
        found = problem_of(body, _Problem)
        text = found if isinstance(found, str) else (found.message or str(found.detail or ""))[:LONGEST_TEXT]
        return refusal(f"{self.label}: {request}", status, text or f"HTTP {status}", "opensandbox")


def path(id_: str, verb: str = "") -> str:
    """The path of a sandbox."""
    return f"/v1/sandboxes/{segment(id_)}" + (f"/{verb}" if verb else "")


def execd(id_: str, where: str) -> str:
    """The path at which the server forwards to execd."""
    return path(id_, f"proxy/{EXECD_PORT}{where}")
