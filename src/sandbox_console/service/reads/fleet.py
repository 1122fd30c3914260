"""The backends as one fleet: opened when first used, asked at once, each one's trouble its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from sandbox_console.backends.base import Backend
from sandbox_console.errors import Ambiguous, BackendUnreachable, ConsoleError, NotFound, UsageError
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef

ANSWER_S = 8.0
"""How long a backend may take to answer a read before it counts as unreachable."""

_ID_PREFIX = 6


class Fleet:
    """Every backend on every host, by (backend, host)."""

    def __init__(self, backends: Iterable[Backend]) -> None:
        self._backends = {(backend.name, backend.host): backend for backend in backends}
        self._opened: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def keys(self) -> list[tuple[str, str]]:
        """All (backend, host) pairs, in the order of the config."""
        return list(self._backends)

    async def use(self, name: str, host: str) -> Backend:
        """One backend, opened. Raises UsageError for one that there is not."""
        backend = self._backends.get((name, host))
        if backend is None:
            raise UsageError(f"no backend {name!r} on host {host!r}", hint=f"there is: {self.described()}")
        opening = self._opened.get((name, host))
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            self._opened[name, host] = asyncio.create_task(backend.open())
        await asyncio.shield(self._opened[name, host])
        return backend

    def capabilities(self, name: str, host: str) -> Capabilities:
        """What one backend can do, opened or not; nothing for one that there is not."""
        backend = self._backends.get((name, host))
        return backend.capabilities() if backend else Capabilities()

    def described(self) -> str:
        """The backends in words: ``bubblewrap, docker (default)``."""
        return ", ".join(name if host == "local" else f"{name} ({host})" for name, host in self._backends) or "none"

    async def close(self) -> None:
        """Close those that were opened."""
        for key, opening in self._opened.items():
            opening.cancel()
            await asyncio.gather(opening, self._backends[key].close(), return_exceptions=True)
        self._opened.clear()

    async def listing(self, backend: str = "") -> tuple[list[Sandbox], list[BackendHealth]]:
        """All sandboxes of the backends that answer, and each backend's health; a silent one costs ANSWER_S."""
        keys = [key for key in self._backends if not backend or key[0] == backend]
        if backend and not keys:
            raise UsageError(f"no backend is called {backend!r}", hint=f"there is: {self.described()}")
        answers = await asyncio.gather(*(self._ask(*key) for key in keys))
        return [sandbox for found, _ in answers for sandbox in found], [health for _, health in answers]

    async def health(self) -> Sequence[BackendHealth]:
        """Ask every backend."""
        return await asyncio.gather(*(self._health(*key) for key in self._backends))

    async def find(self, name: str) -> Sandbox:
        """The sandbox that NAME means: a name, ``backend:name``, ``backend/host/id``, an id or its beginning.

        Raises NotFound (which names the backends that did not answer), Ambiguous, or BackendUnreachable where
        the backend that NAME itself names is the dead one.
        """
        if name.count("/") >= 2:
            backend, host, id_ = name.split("/", 2)
            return await (await self.use(backend, host)).inspect(SandboxRef(backend, host, id_))
        backend, colon, rest = name.partition(":")
        wanted = rest if colon else name
        sandboxes, healths = await self.listing(backend if colon else "")
        fits = [sandbox for sandbox in sandboxes if sandbox.name == wanted] or [
            sandbox for sandbox in sandboxes if len(wanted) >= _ID_PREFIX and sandbox.ref.id.startswith(wanted)
        ]
        if len(fits) == 1:
            return fits[0]
        if fits:
            candidates = sorted(str(fit.ref) for fit in fits)
            hint = "name one as backend/host/id: " + ", ".join(candidates)
            raise Ambiguous(f"{name!r} fits {len(fits)} sandboxes", candidates, hint=hint)
        dead = [health for health in healths if not health.ok]
        if colon and dead:
            raise BackendUnreachable(f"{_place(dead[0])} does not answer: {dead[0].reason}", hint=dead[0].hint)
        silent = "; not asked: " + ", ".join(f"{_place(one)} ({one.reason})" for one in dead) if dead else ""
        raise NotFound(f"no sandbox is called {name!r}{silent}", hint="sandbox-console ls --all")

    async def _ask(self, name: str, host: str) -> tuple[list[Sandbox], BackendHealth]:
        try:
            async with asyncio.timeout(ANSWER_S):
                backend = await self.use(name, host)
                return await backend.list(), await backend.health()
        except TimeoutError:
            return [], _silent(name, host)
        except Exception as error:  # noqa: BLE001 - one backend's bug must not hide the others
            health = await self._health(name, host)
            if health.ok:  # it answered the ping and failed the list: the failure is what matters
                health = _failed(name, host, error)
            return [], health

    async def _health(self, name: str, host: str) -> BackendHealth:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await (await self.use(name, host)).health()
        except TimeoutError:
            return _silent(name, host)
        except Exception as error:  # noqa: BLE001 - as above
            return _failed(name, host, error)


def _place(health: BackendHealth) -> str:
    return health.backend if health.host == "local" else f"{health.backend}/{health.host}"


def _failed(name: str, host: str, error: Exception) -> BackendHealth:
    if isinstance(error, ConsoleError):
        return BackendHealth(name, host, HealthState.UNREACHABLE, error.message, error.hint)
    return BackendHealth(name, host, HealthState.UNREACHABLE, f"{type(error).__name__}: {error}")


def _silent(name: str, host: str) -> BackendHealth:
    return BackendHealth(name, host, HealthState.UNREACHABLE, f"no answer within {ANSWER_S:g} s", "is it frozen?")
