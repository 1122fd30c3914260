"""Requests to one API server. Answers are bytes: what is decoded of them is decided by the caller."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from sandbox_console.backends.common.remote_audit import note
from sandbox_console.backends.kubernetes.claims import EXTENSIONS
from sandbox_console.backends.kubernetes.failures import no_answer, refused
from sandbox_console.backends.kubernetes.kubeconfig import Login, login
from sandbox_console.backends.kubernetes.objects import GROUP, VERSION
from sandbox_console.backends.kubernetes.scope import ALL_NAMESPACES, Scope

if TYPE_CHECKING:
    import aiohttp

ANSWER_S = 6.0
"""For one answer; the console waits 8 s for a whole list of a backend."""
CONNECT_S = 4.0
MERGE = "application/merge-patch+json"
Params = Sequence[tuple[str, str]]


class Cluster:
    """The connection of one backend. It logs in when it is first used, and again after a 401."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._login: Login | None = None
        self._rest: Any = None
        self._lock = asyncio.Lock()

    @property
    def namespace(self) -> str:
        """The namespace for what is created; known after the first login."""
        named = self.scope.namespace
        return named if named and named != ALL_NAMESPACES else self._login.namespace if self._login else "default"

    async def close(self) -> None:
        """Close its connections."""
        rest, self._rest = self._rest, None
        if rest is not None:
            await rest.close()

    async def core(self, kind: str, name: str = "", *, namespace: str | None = None, sub: str = "") -> str:
        """The path of ``pods`` and other objects of the core API. Without ``namespace``, those that are shown."""
        await self._session()
        return self._path("/api/v1", kind, name, namespace, sub)

    async def boxes(self, name: str = "", *, namespace: str | None = None) -> str:
        """The path of Sandboxes."""
        await self._session()
        return self._path(f"/apis/{GROUP}/{VERSION}", "sandboxes", name, namespace, "")

    async def extensions(self, kind: str, name: str = "", *, namespace: str | None = None) -> str:
        """The path of Claims, WarmPools and Templates."""
        await self._session()
        return self._path(f"/apis/{EXTENSIONS}/{VERSION}", kind, name, namespace, "")

    def _path(self, root: str, kind: str, name: str, namespace: str | None, sub: str) -> str:
        whole = namespace is None and self.scope.namespace == ALL_NAMESPACES
        where = "" if whole else f"/namespaces/{quote(namespace or self.namespace, safe='')}"
        tail = "".join(f"/{quote(part, safe='')}" for part in (name, *sub.split("/")) if part)
        return f"{root}{where}/{kind}{tail}"

    async def call(
        self,
        method: str,
        path: str,
        request: str,
        *,
        params: Params = (),
        body: bytes | None = None,
        content: str = "application/json",
        timeout_s: float = ANSWER_S,
    ) -> bytes:
        """One request; returns the answer's body. Raises a ConsoleError that begins with ``request``."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        async with self._asked(method, path, params, limit, body=body, content=content) as answer:
            data = await answer.read()
            if answer.status >= 400:
                raise refused(request, answer.status, data)
            return data

    async def send(self, method: str, path: str, request: str, body: Any, content: str = "application/json") -> bytes:
        """One request with a body of JSON."""
        return await self.call(method, path, request, body=msgspec.json.encode(body), content=content)

    @asynccontextmanager
    async def stream(
        self, path: str, request: str, params: Params, quiet_s: float | None = None
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """An answer that goes on. Raises as :meth:`call`, also while it is read."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=quiet_s)
        async with self._asked("GET", path, params, limit) as answer:
            if answer.status >= 400:
                raise refused(request, answer.status, await answer.read())
            yield answer

    async def socket(self, path: str, request: str, params: Params, protocols: Sequence[str]) -> Any:
        """Open a WebSocket. Raises as :meth:`call`. Which protocol was chosen is in its ``protocol``."""
        import aiohttp

        session, url, options = await self._ready(path, params)
        try:
            async with asyncio.timeout(ANSWER_S):
                ws = await session.ws_connect(url, protocols=protocols, max_msg_size=0, **options)
                note(ws._response.headers.get("Audit-Id", ""))  # noqa: SLF001 - it has no name of its own for it
                return ws
        except aiohttp.WSServerHandshakeError as error:
            raise refused(request, error.status, b"") from None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise no_answer(self.scope.context, error) from None

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        params: Params,
        limit: aiohttp.ClientTimeout,
        *,
        body: bytes | None = None,
        content: str = "",
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        session, url, options = await self._ready(path, params)
        headers = {**options.pop("headers"), **({"Content-Type": content} if body is not None else {})}
        with self._translated():
            answer = await session.request(
                method, url, data=body, headers=headers, timeout=limit, allow_redirects=False, **options
            )
        try:
            if method != "GET":  # the server's audit log has it as ``auditID``
                note(answer.headers.get("Audit-Id", ""))
            with self._translated():
                yield answer
        finally:
            answer.close() if not answer.content.at_eof() else answer.release()

    async def _ready(self, path: str, params: Params) -> tuple[Any, Any, dict[str, Any]]:
        """The session, the URL and the options of a request, with a token that is still valid."""
        from yarl import URL

        session = await self._session()
        configuration = self._login.configuration if self._login else None
        try:
            auth = await configuration.auth_settings() if configuration else {}
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the login program failed; its words may hold what it knows
            raise no_answer(self.scope.context, error) from None
        token = auth.get("BearerToken", {}).get("value")
        headers = {"Authorization": token} if token else {}
        url = URL(f"{configuration.host if configuration else ''}{path}", encoded=True).with_query(list(params))
        return (
            session,
            url,
            {
                "headers": headers,
                "proxy": self._rest.proxy,
                "proxy_headers": self._rest.proxy_headers,
                "server_hostname": self._rest.server_hostname,
            },
        )

    async def _session(self) -> Any:
        if self._rest is None:
            async with self._lock:
                if self._rest is None:
                    found = await login(self.scope)
                    self._rest, self._login = _connections(self.scope.context, found), found
        return self._rest.pool_manager

    def _translated(self) -> _Translated:
        return _Translated(self.scope.context)


class _Translated:
    """Turns what aiohttp raises into BackendUnreachable."""

    def __init__(self, context: str) -> None:
        self._context = context

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import aiohttp

        if isinstance(error, (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError)):
            raise no_answer(self._context, error) from None


def _connections(context: str, found: Login) -> Any:
    from kubernetes_asyncio.client.rest import RESTClientObject

    found.configuration.connection_pool_maxsize = 0  # watches, logs and shells each keep one
    try:
        return RESTClientObject(found.configuration)
    except (OSError, ssl.SSLError) as error:
        raise no_answer(context, error) from None
