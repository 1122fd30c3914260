"""The calls to E2B: its API, and envd in a sandbox.

Written from E2B's published API, ``spec/openapi.yml`` and ``packages/envd/spec/process/process.proto`` of
github.com/e2b-dev/infra. E2B tells a domain for each sandbox. Commands go only to the one that is configured.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from sandbox_console.backends.base import ReadKey
from sandbox_console.backends.common.remote import (
    ANSWER_S,
    LONGEST_TEXT,
    PAGE_BYTES,
    Key,
    Remote,
    Silent,
    problem_of,
    refusal,
    segment,
)
from sandbox_console.backends.e2b.options import Account
from sandbox_console.errors import ConsoleError, InvalidSpec, NotFound, Unsupported

ENVD_PORT = "49983"
CREATE_S = 60.0
LOG_PAGE = 1000
_PAGE, _MOST_PAGES = 100, 200
_Measure = Annotated[float, Meta(ge=0, le=1e18)]


class Lifecycle(Struct, frozen=True, rename="camel"):
    """What happens when a sandbox's time is over."""

    on_timeout: str = ""


class Box(Struct, frozen=True, rename="camel"):
    """A sandbox as the API tells it. The list does not have ``allow_internet_access``."""

    sandbox_id: str = msgspec.field(name="sandboxID")
    template_id: str = msgspec.field(name="templateID", default="")
    alias: str = ""
    state: str = ""
    started_at: datetime | None = None
    end_at: datetime | None = None
    cpu_count: _Measure | None = None
    memory_mb: _Measure | None = msgspec.field(name="memoryMB", default=None)
    disk_size_mb: _Measure | None = msgspec.field(name="diskSizeMB", default=None)
    metadata: dict[str, str] | None = None
    allow_internet_access: bool | msgspec.UnsetType | None = msgspec.UNSET
    envd_access_token: str | None = None
    lifecycle: Lifecycle | None = None


class Metrics(Struct, frozen=True, rename="camel"):
    """A measure. ``cpu_used_pct`` is of all CPUs together; memory is in bytes."""

    timestamp_unix: _Measure
    cpu_count: _Measure = 1
    cpu_used_pct: _Measure | None = None
    mem_used: _Measure | None = None
    mem_total: _Measure | None = None


class LogEntry(Struct, frozen=True):
    """A line of the log."""

    timestamp: datetime
    message: str = ""
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class _Logs(Struct):
    logs: list[LogEntry]


class _Problem(Struct):
    message: str = ""
    code: Any = None


class Client:
    """The calls of one account."""

    def __init__(self, host: str, account: Account, key: ReadKey) -> None:
        self.label = f"E2B account {host!r}"
        self._key = Key(account.key, key)
        self._tokens: dict[str, str] = {}
        self._api = Remote(self.label, account.url, self._headers, self._refused)
        self.inside = Remote(self.label, account.inside, self._nothing, self._refused_inside)

    async def close(self) -> None:
        """Close its connections."""
        await self._api.close()
        await self.inside.close()

    async def every(self) -> Sequence[Box]:
        """All sandboxes that run or are paused, page by page. Raises Silent for a list that does not end."""
        found: dict[str, Box] = {}
        token = ""
        for _ in range(_MOST_PAGES):
            params = [("state", "running,paused"), ("limit", str(_PAGE)), *([("nextToken", token)] if token else [])]
            async with self._api.answer("GET", "/v2/sandboxes", "list", params=params) as answer:
                page = self._api.decoded(await self._api.body(answer, "list", PAGE_BYTES), list[Box], "list")
                token = answer.headers.get("X-Next-Token", "")
            before = len(found)
            found |= {one.sandbox_id: one for one in page}
            if not token:
                return list(found.values())
            if len(found) == before or len(found) > _PAGE * _MOST_PAGES:
                break
        raise Silent(f"{self.label}: the list does not end", hint="the server says that there is always a next page")

    async def one(self, id_: str) -> Box:
        """One sandbox. Raises NotFound."""
        box = self._api.decoded(await self._api.call("GET", _path(id_), "get"), Box, "get")
        self._api.same(box.sandbox_id, id_)
        return box

    async def raw(self, id_: str) -> Mapping[str, Any]:
        """One sandbox as the API tells it, without its token."""
        found = self._api.decoded(await self._api.call("GET", _path(id_), "get"), dict[str, Any], "get")
        return {name: value for name, value in found.items() if "token" not in name.lower()}

    async def create(self, asked: Mapping[str, Any]) -> str:
        """Make and start a sandbox; returns its id."""
        data = await self._api.call("POST", "/sandboxes", "create", body=asked, timeout_s=CREATE_S)
        return self._api.decoded(data, Box, "create").sandbox_id

    async def act(self, method: str, id_: str, verb: str = "", body: Any = None) -> None:
        """Pause, connect (which resumes) or delete a sandbox."""
        self._tokens.pop(id_, None)
        await self._api.call(method, _path(id_, verb), verb or "delete", body=body, timeout_s=ANSWER_S * 5)

    async def logs(self, id_: str, cursor_ms: int) -> Sequence[LogEntry]:
        """Up to LOG_PAGE lines of the log that are not older than ``cursor_ms``, in order."""
        params = (("cursor", str(cursor_ms)), ("limit", str(LOG_PAGE)), ("direction", "forward"))
        path = f"/v2{_path(id_, 'logs')}"
        return self._api.decoded(await self._api.call("GET", path, "logs", params=params), _Logs, "logs").logs

    async def metrics(self, id_: str) -> Sequence[Metrics]:
        """The last measures of a sandbox."""
        data = await self._api.call("GET", _path(id_, "metrics"), "metrics")
        return self._api.decoded(data, list[Metrics], "metrics")

    async def in_guest(self, id_: str, method: str, body: Any, user: str = "") -> bytes:
        """One call of envd's process service. Raises a ConsoleError."""
        async with self.inside.answer(
            "POST", f"/process.Process/{method}", method, body=body, headers=await self.guest_headers(id_, user)
        ) as answer:
            return await self.inside.body(answer, method)

    async def guest_headers(self, id_: str, user: str = "") -> Mapping[str, str]:
        """What names the sandbox, its token and the user to envd."""
        if id_ not in self._tokens:
            self._tokens[id_] = (await self.one(id_)).envd_access_token or ""
        found = {"E2b-Sandbox-Id": id_, "E2b-Sandbox-Port": ENVD_PORT}
        if token := self._tokens[id_]:
            found["X-Access-Token"] = token
        if user:
            found["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        return found

    async def _headers(self) -> Mapping[str, str]:
        key = await self._key.value()
        return {"X-API-Key": key} if key else {}

    async def _nothing(self) -> Mapping[str, str]:
        """Envd is not sent the account's key."""
        return {}

    def _refused(self, what: str, status: int, body: bytes) -> ConsoleError:
        self._key.forget(status)
        return refusal(f"{self.label}: {what}", status, _problem(body).message or f"HTTP {status}", "e2b")

    def _refused_inside(self, what: str, status: int, body: bytes) -> ConsoleError:
        if status == 401:
            self._tokens.clear()
        found = _problem(body)
        return connect_error(f"{self.label}: {what}", str(found.code), found.message or f"HTTP {status}", status)


def connect_error(what: str, code: str, text: str, status: int = 0) -> ConsoleError:
    """The error for a code of the Connect protocol, which envd speaks."""
    match code:
        case "not_found":
            return NotFound(f"{what}: {text}")
        case "invalid_argument":
            return InvalidSpec({"e2b": text})
        case "unimplemented":
            return Unsupported(f"{what}: {text}", hint="the template has an old envd; build it again")
        case "unavailable" | "deadline_exceeded" | "resource_exhausted":
            status = 503
        case "unauthenticated" | "permission_denied":
            status = 401
    return refusal(what, status, text, "e2b")


def _problem(body: bytes) -> _Problem:
    found = problem_of(body, _Problem)
    return _Problem(found) if isinstance(found, str) else _Problem(found.message[:LONGEST_TEXT], found.code)


def _path(id_: str, verb: str = "") -> str:
    return f"/sandboxes/{segment(id_)}" + (f"/{verb}" if verb else "")
