"""The JSON-RPC of a legacy server: what is sent, what is read back, and its errors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from sandbox_console.backends.base import ReadKey
from sandbox_console.backends.common.remote import (
    ANSWER_S,
    LONGEST_TEXT,
    ExitCode,
    Key,
    Remote,
    Silent,
    problem_of,
    refusal,
)
from sandbox_console.backends.microsandbox_legacy.options import LegacyServer
from sandbox_console.errors import BackendError, ConsoleError, NotFound, Unsupported

T = TypeVar("T")
_PATH = "/api/v1/rpc"
_ABSENT = ("not found", "does not exist")
_NOT_A_METHOD, _INVALID_INPUT, _RESOURCE_NOT_FOUND = -32601, 2001, 4001


class Row(Struct, frozen=True):
    """A sandbox in the only list that there is. ``memory_usage`` is in MiB, ``disk_usage`` in bytes."""

    name: str
    running: bool
    namespace: str = ""
    cpu_usage: float | None = None
    memory_usage: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    disk_usage: int | None = None


class Rows(Struct, frozen=True):
    """The result of ``sandbox.metrics.get``."""

    sandboxes: tuple[Row, ...] = ()


class Line(Struct, frozen=True):
    """A line of output, without its end."""

    stream: str
    text: str


class Ran(Struct, frozen=True):
    """The result of ``sandbox.command.run``."""

    exit_code: ExitCode = -1
    success: bool = False
    output: tuple[Line, ...] = ()


class _Problem(Struct):
    message: str = ""
    code: int | None = None


class _Answer(Struct):
    result: msgspec.Raw = field(default_factory=msgspec.Raw)
    error: _Problem | None = None


class _Refusal(Struct):
    error: str | _Problem = ""
    code: int | None = None


class Rpc:
    """The calls to one server. The key is read when it is first needed, and again after it was refused."""

    def __init__(self, host: str, server: LegacyServer, key: ReadKey) -> None:
        self.label = f"microsandbox server {host!r}"
        self._server, self._key = server, Key(server.key, key)
        self._remote = Remote(self.label, server.url, self._headers, self._refused)

    async def close(self) -> None:
        """Close its connections."""
        await self._remote.close()

    async def rows(self) -> list[Row]:
        """The list, of the namespaces that are shown. Raises BackendUnreachable, BackendError."""
        found: list[Row] = []
        for namespace in self._server.namespaces or ("",):
            found += await self._rows({"namespace": namespace} if namespace else {}, namespace)
        return found

    async def row(self, namespace: str, name: str) -> Row | None:
        """One sandbox; None if the server does not have it."""
        place = {"sandbox": name} | ({"namespace": namespace} if namespace else {})
        found = await self._rows(place, namespace)
        return next((one for one in found if one.name == name), None)

    async def _rows(self, params: Mapping[str, str], namespace: str) -> Sequence[Row]:
        try:
            found = await self.call("sandbox.metrics.get", params, Rows)
        except NotFound:  # a namespace exists from its first sandbox on
            return ()
        named = "" if namespace == "*" else namespace
        return [msgspec.structs.replace(one, namespace=one.namespace or named) for one in found.sandboxes]

    async def call(
        self, method: str, params: Mapping[str, Any], kind: type[T], timeout_s: float | None = ANSWER_S
    ) -> T:
        """One call; returns its result. Raises a ConsoleError."""
        body = {"jsonrpc": "2.0", "method": method, "params": params, "id": uuid.uuid4().hex}
        async with self._remote.answer("POST", _PATH, method, body=body, timeout_s=timeout_s) as answer:
            data = await self._remote.body(answer, method)
        found = self._remote.decoded(data, _Answer, method)
        if found.error is not None:
            raise _failed(f"{self.label}: {method}", found.error.message, found.error.code, 200)
        try:
            return msgspec.json.decode(found.result, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"{self.label}: {method}: the answer cannot be read: {error}"[:LONGEST_TEXT]
            raise Silent(text, hint="is the url that of a microsandbox server of version 0.1 or 0.2?") from None

    async def _headers(self) -> Mapping[str, str]:
        key = await self._key.value()
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _refused(self, request: str, status: int, body: bytes) -> ConsoleError:
        self._key.forget(status)
        answer = problem_of(body, _Refusal)
        found = _Refusal(answer) if isinstance(answer, str) else answer
        problem = found.error if isinstance(found.error, _Problem) else _Problem(found.error, found.code)
        return _failed(f"{self.label}: {request}", problem.message, problem.code, status)


def _failed(request: str, text: str, code: int | None, status: int) -> ConsoleError:
    told = f"{text[:LONGEST_TEXT] or 'it failed'}" + (f" (code {code})" if code is not None else "")
    if code == _NOT_A_METHOD:
        return Unsupported(f"{request}: the server does not have it: {told}")
    if status == 404 or code == _RESOURCE_NOT_FOUND or (
        code == _INVALID_INPUT and any(words in text for words in _ABSENT)
    ):  # fmt: skip
        return NotFound(f"{request}: {told}")
    if status >= 400:
        return refusal(request, status, told, "microsandbox_legacy")
    return BackendError(f"{request}: {told}", hint="the server's log tells more")
