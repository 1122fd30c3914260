"""The calls to Daytona: its API, and the toolbox in a sandbox.

Written from Daytona's published API: ``libs/api-client-go/api/openapi.yaml`` and ``apps/daemon/pkg/toolbox`` of
github.com/daytonaio/daytona. Daytona tells the address of each toolbox. The key goes only to the configured one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from sandbox_console.backends.base import ReadKey
from sandbox_console.backends.common.remote import (
    ANSWER_S,
    LONGEST_TEXT,
    PAGE_BYTES,
    ExitCode,
    Key,
    Remote,
    Silent,
    problem_of,
    refusal,
    segment,
)
from sandbox_console.backends.daytona.options import Organization
from sandbox_console.errors import BackendError, ConsoleError, NotFound

READY_S = 120.0
_AGAIN_S = 0.2
_PAGE, _MOST_PAGES = 200, 200
_CHUNK = 64 << 10
_Measure = Annotated[float, Meta(ge=-1, le=1e15)]


class Box(Struct, frozen=True, rename="camel"):
    """A sandbox as the API tells it: memory and disk in GiB, intervals in minutes."""

    id: str
    name: str = ""
    state: str = ""
    desired_state: str = ""
    snapshot: str | None = None
    error_reason: str | None = None
    network_block_all: bool | None = None
    network_allow_list: str | None = None
    domain_allow_list: str | None = None
    cpu: _Measure | None = None
    memory: _Measure | None = None
    disk: _Measure | None = None
    labels: dict[str, str] | None = None
    auto_stop_interval: _Measure | None = None
    auto_delete_interval: _Measure | None = None
    auto_destroy_at: str | None = None
    created_at: str | None = None
    updated_at: str | None = None

    @property
    def gone(self) -> bool:
        """Whether it was removed: such sandboxes are listed for a while."""
        return self.state in ("destroyed", "destroying") or self.desired_state == "destroyed"


class Ended(Struct, frozen=True, rename="camel"):
    """How a command ended, and its output, stdout and stderr as one. Old toolboxes call the code ``code``."""

    result: str = ""
    exit_code: ExitCode | None = None
    code: ExitCode | None = None


class _Page(Struct, rename="camel"):
    items: list[Box]
    next_cursor: str | None = None


class _Problem(Struct):
    message: Any = ""
    error: Any = ""


class Client:
    """The calls of one organization."""

    def __init__(self, host: str, organization: Organization, key: ReadKey) -> None:
        self.label = f"Daytona organization {host!r}"
        self._key = Key(organization.key, key)
        self._api = Remote(self.label, organization.url, self._headers, self._refused)
        self._toolbox = Remote(self.label, organization.inside, self._headers, self._refused)

    async def close(self) -> None:
        """Close its connections."""
        await self._api.close()
        await self._toolbox.close()

    async def every(self) -> Sequence[Box]:
        """All sandboxes, page by page. Raises Silent for a list that does not end."""
        found: dict[str, Box] = {}
        cursor = ""
        for _ in range(_MOST_PAGES):
            params = [("limit", str(_PAGE)), *([("cursor", cursor)] if cursor else [])]
            data = await self._api.call("GET", "/sandbox", "list", params=params, most=PAGE_BYTES)
            page = self._api.decoded(data, _Page, "list")
            before, cursor = len(found), page.next_cursor or ""
            found |= {one.id: one for one in page.items}
            if not cursor:
                return [one for one in found.values() if not one.gone]
            if len(found) == before or len(found) > _PAGE * _MOST_PAGES:
                break
        raise Silent(f"{self.label}: the list does not end", hint="the server says that there is always a next page")

    async def one(self, id_: str) -> Box:
        """One sandbox. Raises NotFound, also for one that was removed."""
        box = self._api.decoded(await self._api.call("GET", _path(id_), "get"), Box, "get")
        self._api.same(box.id, id_)
        if box.gone:
            raise NotFound(f"{self.label} has no sandbox {id_}: it was removed")
        return box

    async def raw(self, id_: str) -> Mapping[str, Any]:
        """One sandbox as the API tells it, without its variables, which may be secrets."""
        found = self._api.decoded(await self._api.call("GET", _path(id_), "get"), dict[str, Any], "get")
        return {name: value for name, value in found.items() if name not in ("env", "outboundProxyUrl")}

    async def create(self, asked: Mapping[str, Any]) -> str:
        """Make and start a sandbox; returns its id."""
        data = await self._api.call("POST", "/sandbox", "create", body=asked, timeout_s=READY_S)
        return self._api.decoded(data, Box, "create").id

    async def act(self, method: str, id_: str, verb: str = "") -> None:
        """Start, stop or delete a sandbox."""
        await self._api.call(method, _path(id_, verb), verb or "delete", timeout_s=ANSWER_S * 5)

    async def reached(self, id_: str, state: str) -> None:
        """Wait until a sandbox is ``state``. Raises BackendError if it fails, or takes too long."""
        deadline = time.monotonic() + READY_S
        while (box := await self.one(id_)).state != state:
            if box.state in ("error", "build_failed"):
                raise BackendError(f"{self.label}: {box.name} failed: {(box.error_reason or box.state)[:LONGEST_TEXT]}")
            if time.monotonic() > deadline:
                raise BackendError(f"{self.label}: {box.name} is {box.state}, not {state}, after {READY_S:g} s")
            await asyncio.sleep(_AGAIN_S)

    async def run(self, id_: str, command: str, timeout_s: float | None) -> Ended:
        """Run a command to its end."""
        body = {"command": command, "timeout": int(timeout_s) if timeout_s is not None else 86_400}
        path = _inside(id_, "/process/execute")
        data = await self._toolbox.call("POST", path, "exec", body=body, timeout_s=timeout_s)
        return self._toolbox.decoded(data, Ended, "exec")

    async def log(self, id_: str) -> bytes:
        """The log of the snapshot's entrypoint. Raises Silent if it is larger than 8 MiB."""
        return await self._toolbox.call("GET", _inside(id_, "/process/session/entrypoint/logs"), "logs")

    async def download(self, id_: str, path: str) -> AsyncGenerator[bytes, None]:
        """A file's bytes."""
        where, params = _inside(id_, "/files/download"), (("path", path),)
        async with self._toolbox.answer("GET", where, "files", params=params, timeout_s=None, quiet_s=30.0) as answer:
            async for chunk in answer.content.iter_chunked(_CHUNK):
                yield chunk

    async def upload(self, id_: str, path: str, chunks: AsyncIterator[bytes]) -> None:
        """Write a file."""
        import aiohttp

        form = aiohttp.MultipartWriter("form-data")
        part = form.append(chunks)
        part.set_content_disposition("form-data", name="file", filename="archive.tar")
        where, params = _inside(id_, "/files/upload"), (("path", path),)
        async with self._toolbox.answer("POST", where, "files", params=params, data=form, timeout_s=None) as answer:
            await self._toolbox.body(answer, "files")

    async def _headers(self) -> Mapping[str, str]:
        key = await self._key.value()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _refused(self, what: str, status: int, body: bytes) -> ConsoleError:
        self._key.forget(status)
        found = problem_of(body, _Problem)
        text = found if isinstance(found, str) else str(found.message or found.error)[:LONGEST_TEXT]
        return refusal(f"{self.label}: {what}", status, text or f"HTTP {status}", "daytona")


def _path(id_: str, verb: str = "") -> str:
    return f"/sandbox/{segment(id_)}" + (f"/{verb}" if verb else "")


def _inside(id_: str, where: str) -> str:
    return f"/{segment(id_)}{where}"
