"""Turns the name of a context into a connected client, which is resolved, probed and imported on first use."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sandbox_console.backends.docker import podman_dialect
from sandbox_console.backends.docker.contexts import Endpoint, resolve
from sandbox_console.backends.docker.engine_cache import EngineCache
from sandbox_console.backends.docker.failures import GuestsEngine, Lost, Unusable, engine_prefix, no_answer
from sandbox_console.errors import BackendUnreachable, ConfigError, ConsoleError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import led_by
from sandbox_console.model.sandbox import BackendHealth, HealthState

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.ssh_tunnel import SshTunnel

PROBE_S = 3.0


class Connection:
    """One context's engine. ``info`` is its last /info, empty until it has been read.

    ``backend`` is the name of the backend that it belongs to, and ``find`` says where a context's engine is.
    """

    def __init__(self, context: str, backend: str = "docker", find: Callable[[str], Endpoint] = resolve) -> None:
        self.context = context
        self.backend = backend
        self._find = find
        self.guests: Callable[[], GuestFolders] = GuestFolders
        """Reads which folders guests can change."""
        self.info: dict[str, Any] = {}
        self.version: dict[str, Any] = {}
        self.history = EngineCache()
        self._endpoint: Endpoint | None = None
        self._engine: Engine | None = None
        self._tunnel: SshTunnel | None = None
        self._lock = asyncio.Lock()
        self._answered = False
        self._read_at = -math.inf

    @property
    def local(self) -> bool:
        """Whether, as far as can be known, the engine's files are files of this host."""
        return self._endpoint is not None and self._endpoint.socket is not None

    async def engine(self) -> Engine:
        """The client. Raises BackendUnreachable if there is no socket or the context cannot be used."""
        if self._engine is None or self._cut:
            async with self._lock:
                if self._cut:
                    await self.close()
                if self._engine is None:
                    await self._connect()
        if self._engine is None:
            raise BackendUnreachable(f"docker engine {self.context!r} is closed")
        return self._engine

    async def close(self) -> None:
        """Close the client and its tunnel, if there are any."""
        engine, self._engine = self._engine, None
        tunnel, self._tunnel = self._tunnel, None
        if engine is not None:
            await engine.close()
        if tunnel is not None:
            await tunnel.close()

    @property
    def _cut(self) -> bool:
        return self._tunnel is not None and self._tunnel.lost

    async def health(self, recent_s: float = 0.0) -> BackendHealth:
        """Whether the engine answers, and the reason if not. An answer up to ``recent_s`` seconds old is reused."""
        try:
            if not self.read_within(recent_s) or self._cut:
                if (await self._found()).ssh:  # a login has its own time limit
                    await self.engine()
                async with asyncio.timeout(PROBE_S):
                    await self.refresh()
        except TimeoutError:
            reason = f"no answer within {PROBE_S:g} s"
            return self._down(HealthState.UNREACHABLE, reason, "check that the engine is not stuck", silent=True)
        except ConsoleError as error:
            return self.down(error)
        if self.version.get("Os") not in (None, "linux"):
            return self._down(HealthState.UNAVAILABLE, f"it runs {self.version['Os']} containers", "use a Linux engine")
        return BackendHealth(self.backend, self.context, HealthState.OK, version=str(self.version.get("Version", "")))

    def read_within(self, seconds: float) -> bool:
        """Whether the engine has described itself recently."""
        return time.monotonic() - self._read_at <= seconds

    async def refresh(self) -> None:
        """Read the engine's version and abilities. Raises as :meth:`engine` and Engine.call do."""
        engine = await self.engine()
        self.version, self.info = await asyncio.gather(
            engine.call("GET", "version", timeout_s=PROBE_S), engine.call("GET", "info", timeout_s=PROBE_S)
        )
        engine.podman = podman_dialect.is_podman(self.info)
        if engine.podman:
            self.info = podman_dialect.stable(self.info)
        engine.speaks(str(self.version.get("ApiVersion", "")))
        self._answered = True
        self._read_at = time.monotonic()

    def down(self, error: ConsoleError) -> BackendHealth:
        """The health for an error. An engine that nobody named and that was never there is unavailable, not broken."""
        never_there = self._endpoint is not None and self._endpoint.implicit and not self._answered
        missing = never_there and "there is no socket" in error.message
        state = HealthState.UNAVAILABLE if missing or isinstance(error, Unusable) else HealthState.UNREACHABLE
        reached = isinstance(error, Lost) or not isinstance(error, BackendUnreachable)
        reason = error.message.removeprefix(engine_prefix(self.context))
        return self._down(state, reason, error.hint, silent=reached)

    def _down(self, state: HealthState, reason: str, hint: str, *, silent: bool = False) -> BackendHealth:
        return BackendHealth(self.backend, self.context, state, reason=reason, hint=hint, silent=silent)

    async def _connect(self) -> None:
        endpoint = await self._found()
        await asyncio.to_thread(self._refuse_guests, endpoint)
        if endpoint.socket is not None:
            await self._probe(endpoint.socket)
        if endpoint.ssh:
            open_tunnel, places = await asyncio.to_thread(_over_ssh)
            await asyncio.to_thread(self._refuse_files, lambda: places(endpoint.url))
            self._tunnel = await open_tunnel(self.context, endpoint.url)
            endpoint = structs.replace(endpoint, tunnel=self._tunnel.socket)
        kind = await asyncio.to_thread(_engine_class)
        self._engine = kind(self.context, endpoint, self.backend)

    async def _found(self) -> Endpoint:
        if self._endpoint is None:
            try:
                self._endpoint = await asyncio.to_thread(self._find, self.context)
            except ConfigError as error:
                raise Unusable(error.message, hint=error.hint) from error
        return self._endpoint

    def _refuse_guests(self, endpoint: Endpoint) -> None:
        """Raise GuestsEngine if a sandbox could put an engine of its own in the place of this one."""
        self._refuse_files(lambda: filter(None, (endpoint.socket, *endpoint.files)))

    def _refuse_files(self, paths: Callable[[], Iterable[str | Path]]) -> None:
        ground = self.guests()
        for path in paths() if ground.roots else ():
            if root := led_by(path, ground):
                raise GuestsEngine(
                    f"{path} leads to the engine {self.context!r} and lies in {root}, which a sandbox can write: it "
                    "could pretend to be the engine",
                    hint="keep it where no sandbox writes: DOCKER_HOST, DOCKER_CONFIG, docker context",
                )

    async def _probe(self, path: str) -> None:
        # On a machine without an engine the client is never imported.
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except OSError as error:
            raise no_answer(self.context, path, error.errno, str(error)) from error
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _over_ssh() -> tuple[Callable[[str, str], Awaitable[SshTunnel]], Callable[[str], Iterator[Path]]]:
    """What logs in, and what finds the files that a login reads."""
    from sandbox_console.backends.docker.ssh_tunnel import login_files, open_tunnel

    return open_tunnel, login_files


def _engine_class() -> type[Engine]:
    from sandbox_console.backends.docker.engine import Engine

    return Engine
