"""Translates the answers and the silence of an API server into the console's errors."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.errors import (
    BackendError,
    BackendUnreachable,
    Conflict,
    ConsoleError,
    Denied,
    InvalidSpec,
    NotFound,
)

_LONGEST = 400
"""Of an admission webhook's message. Anybody may write one."""


class Unusable(BackendUnreachable):
    """The context itself cannot be used: unknown, not trusted, or without a login."""


class Forbidden(Denied):
    """The cluster's RBAC forbids it."""


class Gone(BackendError):
    """410: the resource version is too old, so the list has to be read again."""


class Waiting(BackendError):
    """The container has not started, so it has no log."""


class _Details(Struct):
    kind: str = ""
    name: str = ""
    group: str = ""


class _Status(Struct):
    message: str = ""
    reason: str = ""
    details: _Details | None = None


def refused(request: str, status: int, body: bytes) -> ConsoleError:
    """The error for an answer that is no success; ``request`` is the request in words (``get pod agents/web``)."""
    answer = _read(body)
    text = answer.message[:_LONGEST] or f"HTTP {status}"
    match status:
        case 400 if "waiting to start" in text or "not found" in text:
            return Waiting(f"{request}: {text}")
        case 401:
            return Unusable(
                f"{request}: the API server does not know this login", hint="log in again; kubectl get pods shows why"
            )
        case 403:
            return Forbidden(
                f"{request}: the cluster forbids it: {text}",
                rule="rbac",
                hint=f"ask its administrator; {_can_i(request)}",
            )
        case 404:
            return NotFound(f"{request}: there is none")
        case 409:
            return Conflict(f"{request}: {text}", hint="see what it is now and try again")
        case 410:
            return Gone(f"{request}: {text}")
        case 422:
            return InvalidSpec({"kubernetes": text})
        case 429 | 503 | 504:
            return BackendUnreachable(f"{request}: the API server is overloaded or not ready: {text}", hint="try again")
    return BackendError(f"{request}: {text}", hint="the API server's log tells more")


def _read(body: bytes) -> _Status:
    try:
        return msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError):  # a proxy's page, or plain text
        return _Status(message=body[:_LONGEST].decode("utf-8", "replace").strip())


def _can_i(request: str) -> str:
    verb, _, rest = request.partition(" ")
    return f"kubectl auth can-i {verb} {rest.split(' ')[0]}"


def no_answer(context: str, error: BaseException) -> BackendUnreachable:
    """The error for a server that does not answer. A library's text may have the address, but no login."""
    reason = _reason(error)
    return BackendUnreachable(
        f"the API server of context {context!r} does not answer: {reason}",
        hint=f"check that it is up: kubectl --context {context} version",
    )


def _reason(error: BaseException) -> str:
    number: Any = getattr(error, "os_error", None) or error
    text = getattr(number, "strerror", None)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return text if isinstance(text, str) and text else type(error).__name__
