"""Requests to a server that may be anybody's: every answer has a limit of time and size, and no redirect is followed.

A redirect could send the key to another host, so it is an error that names where it leads. Answers are asked for
without compression, as a small one could unpack to a large one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from sandbox_console.backends.base import ReadKey
from sandbox_console.errors import (
    BackendError,
    BackendUnreachable,
    Conflict,
    ConsoleError,
    InvalidSpec,
    NotFound,
    SecretError,
    Unsupported,
)
from sandbox_console.model.sandbox import BackendHealth, HealthState

if TYPE_CHECKING:
    import aiohttp

MOST_BYTES = 8 << 20
"""Of one answer: 2,000 sandboxes with long names and labels are below 2 MB."""
ANSWER_S = 6.0
"""For one answer; the console waits 8 s for a whole list of a backend."""
CONNECT_S = 4.0
LONGEST_TEXT = 300
"""Characters of a server's text that are shown."""
_CHUNK = 64 << 10
_LONGEST_HEADER = 4096
_OTHER_PROGRAM = "is the address that of another program, or of another version?"
PAGE_BYTES = 2 << 20
"""Of one page of a list, which is asked for in pages of a few hundred at most."""

ExitCode = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 32)]
"""An exit code in an answer. Larger numbers fit neither into the audit log nor into a process's end."""

T = TypeVar("T")
Params = Sequence[tuple[str, str]]
Headers = Callable[[], Awaitable[Mapping[str, str]]]
Refused = Callable[[str, int, bytes], ConsoleError]
"""Makes the error for an answer that is no success: what was asked, the status, and the body."""


class Key:
    """The key of one server: read when it is first needed, and again after it was forgotten."""

    def __init__(self, name: str, read: ReadKey) -> None:
        self._name, self._read, self._value = name, read, ""

    async def value(self) -> str:
        """The key; empty for a server without one. Raises SecretError."""
        if self._name and not self._value:
            self._value = await self._read(self._name)
        return self._value

    def forget(self, status: int) -> None:
        """Forget a key that was refused with an HTTP ``status``: it may have been replaced."""
        if status in (401, 403):
            self._value = ""


class Silent(BackendUnreachable):
    """Something is there, but it does not answer as it should: late, too much, or not in its protocol."""


class Remote:
    """The connection to one server. ``headers`` returns what identifies the caller; it is asked for each request."""

    def __init__(self, label: str, url: str, headers: Headers, refused: Refused) -> None:
        self._label, self._url, self._headers, self._refused = label, url.rstrip("/"), headers, refused
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(
        self, method: str, path: str, what: str, *, body: Any = None, params: Params = (),
        timeout_s: float | None = ANSWER_S, most: int = MOST_BYTES,
    ) -> bytes:  # fmt: skip
        """One request; returns the answer's body. ``body`` is sent as JSON. Raises a ConsoleError."""
        async with self.answer(method, path, what, body=body, params=params, timeout_s=timeout_s) as answer:
            return await self.body(answer, what, most)

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, what: str, *, body: Any = None, params: Params = (), headers: Any = None,
        timeout_s: float | None = ANSWER_S, quiet_s: float | None = None, data: Any = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:  # fmt: skip
        """An answer whose body the caller reads within the block. Raises a ConsoleError, also while it is read."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S, sock_read=quiet_s)
        sent = {"Accept-Encoding": "identity", **self._sendable(headers or {}), **await self._shown()}
        if body is not None:
            data, sent["Content-Type"] = msgspec.json.encode(body), "application/json"
        with _Translated(self._label):
            async with self._opened().request(
                method, self._url + path, params=list(params), data=data, headers=sent, timeout=limit,
                allow_redirects=False,
            ) as answer:  # fmt: skip
                if 300 <= answer.status < 400:
                    raise self._redirected(answer.headers.get("Location", ""))
                if answer.status >= 400:
                    raise self._refused(what, answer.status, await self.body(answer, what, _CHUNK, whole=False))
                yield answer

    async def socket(self, path: str, request: str, params: Params = (), headers: Any = None) -> Any:
        """Open a WebSocket. Raises a ConsoleError."""
        import aiohttp

        sent = {**self._sendable(headers or {}), **await self._shown()}
        query = "&".join(f"{key}={value}" for key, value in params)
        url = self._url.replace("http", "ws", 1) + path + (f"?{query}" if query else "")
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._opened().ws_connect(url, headers=sent, max_msg_size=MOST_BYTES)
        except aiohttp.WSServerHandshakeError as error:
            raise self._refused(request, error.status, b"") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise no_answer(self._label, error) from None

    def decoded(self, data: bytes, kind: type[T], what: str) -> T:
        """An answer in JSON as a type. Raises Silent for anything else."""
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"{self._label}: {what}: the answer cannot be read: {error}"[:300]
            raise Silent(text, hint=_OTHER_PROGRAM) from None

    async def body(
        self, answer: aiohttp.ClientResponse, what: str, most: int = MOST_BYTES, *, whole: bool = True
    ) -> bytes:
        """The body, up to ``most`` bytes. Raises Silent for a larger one, unless its beginning is enough."""
        found = bytearray()
        async for chunk in answer.content.iter_chunked(_CHUNK):
            found += chunk
            if len(found) > most:
                if not whole:
                    return bytes(found[:most])
                text = f"{self._label}: {what}: the answer is larger than {most >> 20} MiB"
                raise Silent(text, hint="the console reads no more of it")
        return bytes(found)

    async def _shown(self) -> Mapping[str, str]:
        """What identifies the caller. Raises SecretError for what no header can contain."""
        shown = await self._headers()
        if not all(value.isprintable() for value in shown.values()):
            text = f"{self._label}: the key has a line break or another character that cannot be sent"
            raise SecretError(text, hint="see which secret `key` names, and store it as one line")
        return shown

    def _sendable(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Headers with ids and tokens that the server chose. Raises Silent for what no header can contain."""
        for name, value in headers.items():
            if not value.isascii() or not value.isprintable() or len(value) > _LONGEST_HEADER:
                raise Silent(f"{self._label}: what it told for the header {name} is no such value", hint=_OTHER_PROGRAM)
        return headers

    def same(self, told: str, asked: str) -> None:
        """Raise Silent if an answer is about another sandbox than the one that was asked for."""
        if told != asked:
            text = f"{self._label} answers with another sandbox than {asked[:LONGEST_TEXT]!r}"
            raise Silent(text, hint=_OTHER_PROGRAM)

    def _redirected(self, location: str) -> ConsoleError:
        try:
            to = urlsplit(location).netloc.rpartition("@")[2] or "another path"
        except ValueError:
            to = "an address that cannot be read"
        hint = "set url to the final address; the key is sent nowhere else"
        return Silent(f"{self._label} redirects to {to}, which is not followed", hint=hint)

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_redirect.append(self._refuse_redirect)  # a WebSocket's request would follow it
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),  # watches and commands each keep one
                trace_configs=[trace],
            )  # fmt: skip
        return self._session

    async def _refuse_redirect(
        self, _: object, __: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
    ) -> None:
        redirect.response.close()
        raise self._redirected(redirect.response.headers.get("Location", ""))


def segment(name: str) -> str:
    """A name as one part of a path. Raises NotFound for those that would mean another folder of the server."""
    if name in ("", ".", ".."):
        raise NotFound(f"{name!r} cannot be the name of a sandbox")
    return quote(name, safe="")


class _Translated:
    """Turns what aiohttp raises into BackendUnreachable."""

    def __init__(self, label: str) -> None:
        self._label = label

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import aiohttp

        if isinstance(error, (aiohttp.ClientError, OSError, TimeoutError)) and not isinstance(error, ConsoleError):
            raise no_answer(self._label, error) from None


def no_answer(label: str, error: BaseException) -> BackendUnreachable:
    """The error for a server that does not answer. A library's text may have the address, which may have a login."""
    import aiohttp

    if isinstance(error, TimeoutError):
        return Silent(f"{label} does not answer in time", hint="it may be overloaded or hung; see its log")
    number: Any = getattr(error, "os_error", None) or error
    text = getattr(number, "strerror", None)
    why = text if isinstance(text, str) and text else type(error).__name__
    kind = BackendUnreachable if isinstance(error, aiohttp.ClientConnectorError) else Silent
    return kind(f"{label} does not answer: {why}", hint="check the url in the configuration, and that it runs")


def refusal(request: str, status: int, text: str, backend: str, hint: str = "") -> ConsoleError:
    """The error for a status of a ``backend``'s server; ``hint`` is for a spec that it refuses."""
    match status:
        case 400 | 422:
            return InvalidSpec({backend: text}, hint=hint)
        case 401 | 403:
            return Unauthorized(f"{request}: the server refuses the key: {text}", hint="see which secret `key` names")
        case 404:
            return NotFound(f"{request}: {text}")
        case 409:
            return Conflict(f"{request}: {text}")
        case 429 | 502 | 503 | 504:
            return BackendUnreachable(f"{request}: the server is overloaded or not ready: {text}", hint="try again")
        case 501:
            return Unsupported(f"{request}: {text}")
    return BackendError(f"{request}: {text}", hint="the server's log tells more")


def problem_of(body: bytes, kind: type[T]) -> T | str:
    """What an error says in the server's form; its beginning if it is not in that form, such as a proxy's page."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body[:LONGEST_TEXT].decode("utf-8", "replace").strip()


class Unauthorized(BackendUnreachable):
    """The server does not accept the key."""


def health(backend: str, host: str, error: ConsoleError | None = None, version: str = "") -> BackendHealth:
    """The health for an error, or without one."""
    if error is None:
        return BackendHealth(backend, host, HealthState.OK, version=version)
    if isinstance(error, Silent):
        return BackendHealth(backend, host, HealthState.UNREACHABLE, error.message, error.hint, silent=True)
    usable = isinstance(error, BackendUnreachable) and not isinstance(error, Unauthorized)
    state = HealthState.UNREACHABLE if usable else HealthState.UNAVAILABLE
    return BackendHealth(backend, host, state, error.message, error.hint)
