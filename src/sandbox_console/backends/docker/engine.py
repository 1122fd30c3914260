"""One engine's API: aiodocker's client on our own connector, with every failure translated.

Only this module imports aiohttp and aiodocker, which takes a quarter of a second, so it is imported when there is an
engine to talk to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import aiodocker
import aiohttp
from aiodocker.execs import Exec
from aiodocker.stream import Stream as Hijacked
from yarl import URL

from sandbox_console.backends.docker import raw_http
from sandbox_console.backends.docker.contexts import Endpoint
from sandbox_console.backends.docker.failures import Lost, Refused, engine_prefix, no_answer, refused
from sandbox_console.errors import BackendUnreachable, ConsoleError

Params = Mapping[str, str | int]
CONNECT_S = 5.0
NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_read=None, connect=CONNECT_S)


class Engine:
    """A client of one engine. Create it inside a running loop, and close() it."""

    def __init__(self, context: str, endpoint: Endpoint, backend: str = "docker") -> None:
        self.context = context
        self.backend = backend
        self.podman = False
        self.image_platforms: dict[str, tuple[str, ...]] = {}
        """By image id, which names one content and so one platform."""
        self.endpoint = endpoint
        # With aiohttp's default of 100 connections, list() hangs once 100 logs are followed.
        self._connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(endpoint.dialled, limit=0)
            if endpoint.dialled is not None
            else aiohttp.TCPConnector(limit=0, ssl=endpoint.tls or True)
        )
        self.docker = aiodocker.Docker(
            endpoint.base_url,
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(connect=CONNECT_S),
        )

    async def close(self) -> None:
        """Close every socket, even if the engine died in the middle of a stream."""
        with suppress(aiohttp.ClientError, OSError):
            await self.docker.close()
        with suppress(aiohttp.ClientError, OSError):
            await self.docker.session.close()
        await self._connector.close()

    async def call(
        self, method: str, path: str, *, params: Params | None = None, body: Any = None, timeout_s: float | None = 30
    ) -> Any:
        """Make one request; returns its JSON, or None for an empty answer. Raises Refused, BackendUnreachable."""
        timeout = aiohttp.ClientTimeout(timeout_s, CONNECT_S)
        async with self._ask(method, path, params, timeout, json=body) as response:
            with self.translated():
                text = await response.read()
        return json.loads(text) if text.strip().startswith((b"{", b"[")) else None

    async def head(self, path: str, params: Params) -> Mapping[str, str] | None:
        """The headers of the answer to a HEAD request; None for 404."""
        try:
            async with self._ask("HEAD", path, params, aiohttp.ClientTimeout(30, CONNECT_S)) as response:
                return dict(response.headers)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def exists(self, path: str, params: Params) -> bool:
        """Whether a HEAD request succeeds."""
        return await self.head(path, params) is not None

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        params: Params | None = None,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        source: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An endless response, as chunks; ``source``, if given, is sent as the request's body.

        Raises Lost if it breaks off, and whatever ``source`` raises.
        """
        body = _Source(source) if source is not None else None
        try:
            async with (
                self._ask(method, path, params, NO_LIMIT, data=body and body.chunks(), headers=headers) as response,
                aclosing(self._chunks(response)) as chunks,
            ):
                yield chunks
        except ConsoleError:
            if body is not None and body.failure is not None:
                raise body.failure from None  # the engine only saw the request end
            raise

    @asynccontextmanager
    async def bulk(self, path: str, params: Params) -> AsyncIterator[AsyncIterator[bytes]]:
        """Like ``stream``, for large answers that end: cheaper if the engine is on a Unix socket.

        Raises Refused, BackendUnreachable; Lost if it breaks off.
        """
        if self.endpoint.socket is None:
            async with self.stream(path, params) as chunks:
                yield chunks
            return
        with self.translated():
            async with raw_http.get(self.endpoint.socket, _target(path, params)) as (status, body):
                if status >= 400:
                    raise refused(_message(b"".join([part async for part in body]), None), status)
                yield body

    async def put_tar(self, path: str, params: Params, source: AsyncIterator[bytes]) -> None:
        """Send a tar: cheaper if the engine is on a Unix socket.

        Raises Refused, BackendUnreachable; Lost if it breaks off; and whatever ``source`` raises.
        """
        if self.endpoint.socket is None:
            headers = {"Content-Type": "application/x-tar"}
            async with self.stream(path, params, method="PUT", source=source, headers=headers) as answer:
                async for _ in answer:
                    pass
            return
        body = _Source(source)
        try:
            with self.translated():
                status, said = await raw_http.put_tar(self.endpoint.socket, _target(path, params), body.chunks())
        except ConsoleError:
            if body.failure is not None:
                raise body.failure from None
            raise
        if status >= 400:
            raise refused(_message(said, None), status)

    def speaks(self, version: str) -> None:
        """Use the API version that the engine reported: aiodocker would request it a second time."""
        if version:
            self.docker.api_version = f"v{version}"

    def execution(self, id: str, *, tty: bool) -> Hijacked:
        """The streams of a command that was created before. Opening them starts the command."""
        return Exec(self.docker, id, tty).start(detach=False)

    async def hijack(self, stream: Hijacked) -> None:
        """Upgrade the connection of one of aiodocker's streams. Raises Refused, BackendUnreachable."""
        with self.translated():
            try:
                await stream.__aenter__()
            except aiodocker.DockerError as error:
                if error.status == 900:
                    raise Lost(
                        engine_prefix(self.context) + error.message, hint="check that the engine is running"
                    ) from error
                raise refused(error.message, error.status) from error

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        with self.translated():
            async for chunk in response.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def _ask(
        self, method: str, path: str, params: Params | None, timeout: aiohttp.ClientTimeout, *,
        headers: Mapping[str, str] | None = None, **body: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:  # fmt: skip
        # Raw on aiodocker's session: its own log() loses which stream a line came from, and its JSON costs twice as
        # much.
        url = URL(f"{self.docker.docker_host}/{path}").with_query(dict(params or {}))
        # aiohttp offers gzip, and the engine would then compress what it sends: 300 MB take 11 s, not 2.
        sent = {"Accept-Encoding": "identity", **(headers or {})}
        with self.translated():
            response = await self.docker.session.request(method, url, timeout=timeout, headers=sent, **body)
        try:
            if response.status >= 400:
                with self.translated():
                    raise refused(_message(await response.read(), response.reason), response.status)
            yield response
        finally:
            response.close() if not response.content.at_eof() else response.release()

    def translated(self) -> _Translated:
        """A context that turns the client's failures into the console's."""
        return _Translated(self)

    def lost(self, error: BaseException) -> BackendUnreachable:
        """The console's error for one of aiohttp's."""
        if isinstance(error, aiohttp.ClientSSLError):  # before the errno, as OpenSSL's 1 is not EPERM
            reason, hint = (
                f"its certificate does not hold: {error}",
                "look at the context's ca.pem, cert.pem and key.pem",
            )
            return BackendUnreachable(engine_prefix(self.context) + reason, hint=hint)
        inner = getattr(error, "os_error", None)
        if self.endpoint.tunnel is not None and not isinstance(error, asyncio.TimeoutError):
            return Lost(
                engine_prefix(self.context) + "the ssh connection was lost", hint="see that its host can be reached"
            )
        if isinstance(error, aiohttp.ClientConnectorError) and inner is not None:
            return no_answer(self.context, self.endpoint.socket or self.endpoint.url, inner.errno, str(inner))
        if isinstance(error, (FileNotFoundError, PermissionError, ConnectionRefusedError)):
            return no_answer(self.context, self.endpoint.socket or self.endpoint.url, error.errno, str(error))
        reason = "it did not answer in time" if isinstance(error, asyncio.TimeoutError) else "the connection was lost"
        return Lost(engine_prefix(self.context) + reason, hint="check that the engine is running")


class _Translated:
    """A context that turns aiohttp's failures into the console's."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, (aiohttp.ClientError, TimeoutError, OSError)):
            raise self._engine.lost(error) from error


class _Source:
    """A request's body that remembers why it ended, as aiohttp reports every such failure as a lost connection."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self.failure: Exception | None = None
        self._source = source

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The source's chunks."""
        try:
            async for chunk in self._source:
                yield chunk
        except Exception as error:
            self.failure = error
            raise


def _target(path: str, params: Params) -> str:
    return URL(f"http://localhost/{path}").with_query(dict(params)).raw_path_qs


def _message(body: bytes, reason: str | None) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip() or reason or "the engine refused"
