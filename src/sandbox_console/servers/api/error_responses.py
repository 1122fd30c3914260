"""Turns errors into responses of one form with a status, and slows down callers that send too much."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection

from aiohttp import web
from aiohttp.typedefs import Handler

from sandbox_console.errors import (
    AuditUnavailable,
    BackendError,
    BackendUnreachable,
    Conflict,
    ConsoleError,
    Denied,
    NotFound,
    TimedOut,
    Unsupported,
    UsageError,
)
from sandbox_console.model.access import limited_to
from sandbox_console.model.actor import acting_as
from sandbox_console.model.text import clean
from sandbox_console.model.trace import traced
from sandbox_console.servers.api.authentication import GRANT_HEADER, Callers, Forbidden, Unauthorized
from sandbox_console.servers.api.handlers import CALLER, answer
from sandbox_console.servers.api.schemas import Problem
from sandbox_console.servers.refusal_delay import RefusalDelay
from sandbox_console.web.request_checks import refuse_pages

OPEN = frozenset({"/healthz", "/openapi.json"})
"""The paths that are answered without a token."""

_FULL = ("api.max_sandboxes", "api.max_per_bucket")
_ASKED_TOO_MUCH = (
    "api.images", "api.max_memory_mib", "api.max_cpus", "policy.images", "policy.max_memory_mib", "policy.max_cpus",
    "policy.max_pids", "policy.require_limits",
)  # fmt: skip
_STATUS: tuple[tuple[type[ConsoleError], int], ...] = (
    (UsageError, 400),
    (Denied, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Unsupported, 501),
    (TimedOut, 504),
    (BackendUnreachable, 503),
    (AuditUnavailable, 503),
    (BackendError, 502),
)


class ErrorResponses:
    """Middleware that identifies callers, limits their running calls, and answers errors."""

    def __init__(self, callers: Callers, authorities: Collection[str], max_calls: int) -> None:
        self._callers = callers
        self._authorities = frozenset(authorities)
        self._max_calls = max_calls
        self._pacing = RefusalDelay()
        self._running: Counter[tuple[str, str]] = Counter()
        self._tasks: set[asyncio.Task[object]] = set()

    async def close(self) -> None:
        """End the running calls, and wait until what they made is gone."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @web.middleware
    async def errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer every error in one form. Of an unexpected one, report only that it happened."""
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return _error_response(error.status, error.text or error.reason, "http", headers=_allow(error))
        except Unauthorized as error:
            await self._pacing.refused(_who(request))
            return _error_response(401, str(error), "unauthorized", headers={"WWW-Authenticate": "Bearer"})
        except Forbidden as error:
            await self._pacing.refused(_who(request))
            return _error_response(403, str(error), "forbidden")
        except ConsoleError as error:
            status = status_of(error)
            if status == 429:
                await self._pacing.refused(_who(request))
            headers = {"Retry-After": "1"} if status in (429, 503) else {}
            return _error_response(status, error.message, error.code, error.hint, error.audit_id, headers)
        except Exception as error:  # noqa: BLE001 - no detail of a bug is a caller's business
            return _error_response(500, f"unexpected {type(error).__name__}", "error")

    @web.middleware
    async def enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Accept only known hosts, no browser pages, and callers with a token, each with a few calls at a time."""
        refuse_pages(request, self._authorities)
        if request.path in OPEN:
            return await handler(request)
        caller = await self._callers.of(
            _only(request, "Authorization"),
            _only(request, GRANT_HEADER),
            acting=request.method != "GET",
        )
        request[CALLER] = caller
        key = (caller.token, caller.bucket)
        if self._running[key] >= self._max_calls:
            await self._pacing.refused(_who(request))
            text = f"{self._max_calls} of your calls are running, the most at a time"
            return _error_response(429, text, "busy", headers={"Retry-After": "1"})
        self._running[key] += 1
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - aiohttp runs handlers in tasks
        self._tasks.add(task)
        try:
            with acting_as(caller.actor), limited_to(caller.rights), traced(_only(request, "traceparent")):
                return await handler(request)
        finally:
            self._tasks.discard(task)
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]


def _who(request: web.Request) -> str:
    """Who is refused: a token, or an address if none was shown."""
    caller = request.get(CALLER)
    return f"token {caller.token}" if caller is not None else request.remote or ""


def _only(request: web.Request, name: str) -> str:
    """A header's value; empty if it is missing or repeated, because a proxy may have checked another one."""
    found = request.headers.getall(name, [])
    return found[0] if len(found) == 1 else ""


def status_of(error: ConsoleError) -> int:
    """The HTTP status of an error."""
    rule = getattr(error, "rule", "")
    if rule in _FULL:
        return 429
    if rule in _ASKED_TOO_MUCH:
        return 400
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _allow(error: web.HTTPException) -> dict[str, str]:
    return {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}


def _error_response(
    status: int, text: str, code: str, hint: str = "", audit_id: int | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:  # fmt: skip
    made = answer(Problem(clean(text), code, clean(hint), audit_id), status)
    made.headers.update(headers or {})
    return made
