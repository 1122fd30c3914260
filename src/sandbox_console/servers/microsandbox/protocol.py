"""The JSON-RPC that old clients speak: the types of what they send, and the answers to errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct, field

from sandbox_console.errors import (
    AuditUnavailable,
    BackendUnreachable,
    Conflict,
    ConsoleError,
    Denied,
    NotFound,
    UsageError,
)
from sandbox_console.model.text import clean

INVALID_CREDENTIALS, INVALID_TOKEN = 1001, 1004
INVALID_INPUT, ACCESS_DENIED, NOT_FOUND, INTERNAL = 2001, 3001, 4001, 5002
"""The codes of errors, as the old server has them."""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND = -32700, -32600, -32601
"""The codes of JSON-RPC."""

_NAME = r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z"
Name = Annotated[str, Meta(pattern=_NAME, max_length=63)]
Text = Annotated[str, Meta(max_length=4096)]
Code = Annotated[str, Meta(max_length=1 << 20)]
Argument = Annotated[str, Meta(max_length=1 << 17)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
_STATUS: tuple[tuple[type[ConsoleError], int, int], ...] = (
    (NotFound, 404, NOT_FOUND),
    (Denied, 403, ACCESS_DENIED),
    (UsageError, 400, INVALID_INPUT),
    (Conflict, 400, INVALID_INPUT),
    (BackendUnreachable, 503, INTERNAL),
    (AuditUnavailable, 503, INTERNAL),
)


class Call(Struct):
    """One request."""

    method: Text
    jsonrpc: Text = ""
    params: msgspec.Raw = field(default_factory=lambda: msgspec.Raw(b"{}"))
    id: int | float | Text | None = None


class Config(Struct):
    """What ``sandbox.start`` asks for. ``memory`` is in MiB. The lists that are refused are read to say so."""

    image: Text = ""
    memory: Annotated[int, Meta(ge=4, le=1 << 24)] | None = None
    cpus: Annotated[float, Meta(gt=0, le=1024)] | None = None
    envs: Annotated[list[Argument], Meta(max_length=1024)] = field(default_factory=list)
    workdir: Text | None = None
    shell: Text | None = None
    exec: Argument | None = None
    volumes: list[Any] = field(default_factory=list)
    ports: list[Any] = field(default_factory=list)
    depends_on: list[Any] = field(default_factory=list)
    scripts: dict[str, Any] = field(default_factory=dict)


class Place(Struct):
    """A sandbox. Clients of servers without namespaces send none."""

    sandbox: Name
    namespace: Name = ""


class Start(Place, kw_only=True):
    """``sandbox.start``."""

    config: Config | None = None


class Metrics(Struct):
    """``sandbox.metrics.get``: of one, of a namespace, or of all (``*``)."""

    sandbox: Name | None = None
    namespace: Annotated[str, Meta(pattern=r"\A(\*|[A-Za-z0-9][A-Za-z0-9_-]{0,62})?\Z")] = "*"


class Repl(Place, kw_only=True):
    """``sandbox.repl.run``."""

    code: Code
    language: Text
    timeout: Seconds | None = None


class Command(Place, kw_only=True):
    """``sandbox.command.run``."""

    command: Annotated[str, Meta(min_length=1, max_length=4096)]
    args: Annotated[list[Argument], Meta(max_length=4096)] = field(default_factory=list)
    timeout: Seconds | None = None


def result(value: object, id_: object) -> web.Response:
    """A success."""
    return _json({"jsonrpc": "2.0", "result": value, "id": id_}, 200)


def fault(code: int, message: str, id_: object, status: int) -> web.Response:
    """An error of JSON-RPC itself."""
    return _json({"jsonrpc": "2.0", "error": {"code": code, "message": clean(message)}, "id": id_}, status)


def refused(status: int, code: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An error of the server, in the form that the old one has."""
    return _json({"error": clean(message), "code": code}, status, headers)


def of_error(error: ConsoleError) -> web.Response:
    """The answer to an error of the console."""
    status, code = next(((status, code) for kind, status, code in _STATUS if isinstance(error, kind)), (500, INTERNAL))
    return refused(status, code, f"{error.message}. {error.hint}" if error.hint else error.message)


def _json(value: object, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, content_type="application/json", status=status, headers=dict(headers or {}))
