"""All backends as one fleet. They are opened when first used, and queried in parallel.

A failing backend does not affect the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

from msgspec import structs

from sandbox_console.backends.abilities import ListsQuickly
from sandbox_console.backends.base import Backend
from sandbox_console.backends.common.permit import permitted
from sandbox_console.errors import BackendUnreachable, ConsoleError, UsageError
from sandbox_console.model.access import access
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef
from sandbox_console.service.gate.quarantine_store import Holds
from sandbox_console.service.host_options import HostTables
from sandbox_console.service.reads.host_patience import Answer, in_parts, made_by
from sandbox_console.service.reads.known_names import Key, KnownNames
from sandbox_console.service.reads.lookup import Lookup, LookupResult, host_label
from sandbox_console.service.reads.placement import fewest_running, one_backend
from sandbox_console.service.reads.scope import scoped, shown

ANSWER_S = 8.0
"""How long a backend may take to answer a read before it counts as unreachable, unless it is configured."""

Remember = Callable[[Key, str], Awaitable[bool]]


class Fleet:
    """Every backend on every host, by (backend, host). ``permitted`` holds each to its permits.

    ``names`` is what is known about hosts that do not answer, ``timeouts`` how long each may take, in seconds.
    ``tables`` has the groups and labels of hosts; with ``spread`` a sandbox is made where the fewest run. ``remember``
    says whether other records have a name on a host whose list is not stored.
    """

    def __init__(
        self, backends: Iterable[Backend], names: KnownNames | None = None,
        timeouts: Mapping[Key, float] | None = None, tables: HostTables | None = None, *, spread: bool = False,
    ) -> None:  # fmt: skip
        self.names = names or KnownNames()
        self.tables = tables or HostTables({})
        self._spread = spread
        self.remember: Remember | None = None
        self.holds: Holds | None = None
        """The sandboxes in quarantine, which lists show."""
        self._timeouts = dict(timeouts or {})
        self._backends = {(backend.name, backend.host): scoped(permitted(backend)) for backend in backends}
        self._opened: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._closed = False

    @property
    def keys(self) -> list[tuple[str, str]]:
        """All (backend, host) pairs, in the order of the config."""
        return list(self._backends)

    async def use(self, name: str, host: str) -> Backend:
        """One backend, opened. Raises UsageError if there is no such backend, or the console is closed."""
        self.need_open()
        backend = self._backends.get((name, host))
        if backend is None:
            raise UsageError(f"no backend {name!r} on host {host!r}", hint=f"there is: {self.described()}")
        opening = self._opened.get((name, host))
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            self._opened[name, host] = asyncio.create_task(backend.open())
        await shielded(self._opened[name, host])
        return backend

    def need_open(self) -> None:
        """Raise UsageError if the fleet is closed, as nobody would close a backend that is opened now."""
        if self._closed:
            raise UsageError("the console is closed", hint="use it inside the block of open_console")

    def capabilities(self, name: str, host: str) -> Capabilities:
        """What one backend can do, whether it is open or not; nothing if there is no such backend."""
        backend = self._backends.get((name, host))
        return backend.capabilities() if backend else Capabilities()

    def may_have(self, health: BackendHealth, capability: Capability) -> bool:
        """Whether a host that does not answer may have a capability, because it answered before, or hangs."""
        if health.ok or not self.capabilities(health.backend, health.host).has(capability):
            return False
        hangs = health.silent and health.state is not HealthState.UNAVAILABLE
        return hangs or bool(self.names.of((health.backend, health.host)).answered_at)

    def described(self) -> str:
        """The names of the backends: ``bubblewrap, docker (default)``."""
        return ", ".join(name if host == "local" else f"{name} ({host})" for name, host in self._backends) or "none"

    async def close(self) -> None:
        """Close the backends that were opened. None is opened again."""
        self._closed = True
        for key, opening in self._opened.items():
            opening.cancel()
            await asyncio.gather(opening, self._backends[key].close(), return_exceptions=True)
        self._opened.clear()

    async def listing(self, backend: str = "") -> tuple[list[Sandbox], list[BackendHealth]]:
        """All sandboxes of the backends that answer, and each backend's health. A silent one takes its full timeout."""
        answers = await asyncio.gather(*(self.ask(*key) for key in self._of(backend)))
        return [sandbox for sandboxes, _ in answers for sandbox in sandboxes], [health for _, health in answers]

    async def brief(self, backend: str = "") -> tuple[list[Sandbox], list[BackendHealth]]:
        """Like ``listing``, but without details, and without a health check of a host that lists its sandboxes."""
        answers = await asyncio.gather(*(self.ask(*key, brief=True) for key in self._of(backend)))
        return [sandbox for sandboxes, _ in answers for sandbox in sandboxes], [health for _, health in answers]

    async def as_answered(
        self, backend: str = "", patience_s: float = 0.0
    ) -> AsyncGenerator[tuple[tuple[list[Sandbox], list[BackendHealth]], list[Key]], None]:
        """Like ``listing``, in parts: those that answer within ``patience_s``, then the others as they arrive.

        Each part names those that have not answered yet.
        """
        requests = {key: asyncio.create_task(self.ask(*key)) for key in self._of(backend)}
        async with aclosing(in_parts(self.names, requests, patience_s)) as parts:
            async for answers, waiting in parts:
                sandboxes = [sandbox for some, _ in answers for sandbox in some]
                yield (sandboxes, [health for _, health in answers]), waiting

    async def health(self) -> Sequence[BackendHealth]:
        """Query every backend."""
        return await asyncio.gather(*(self._health(*key) for key in self._backends))

    async def healths(self, keys: Sequence[Key]) -> AsyncGenerator[BackendHealth, None]:
        """Query these in parallel and yield each one's health in order; those that were silent last time come last."""
        requests = {key: asyncio.create_task(self._health(*key)) for key in keys}
        try:
            for key in sorted(keys, key=lambda key: self.names.of(key).silent):
                yield await requests[key]
        finally:
            for task in requests.values():
                task.cancel()
            await asyncio.gather(*requests.values(), return_exceptions=True)

    async def healths_as_answered(
        self, keys: Sequence[Key], patience_s: float
    ) -> AsyncGenerator[tuple[Sequence[BackendHealth], Sequence[Key]], None]:
        """Like ``healths``, in parts as in ``as_answered``."""
        requests = {key: asyncio.create_task(self._health(*key)) for key in keys}
        async with aclosing(in_parts(self.names, requests, patience_s)) as parts:
            async for part in parts:
                yield part

    async def choose(self, requested: str, default: str) -> Key:
        """Where to make a sandbox: ``requested`` (a name or name/host), else the default, else the first that answers.

        If hosts were selected, it is the one with the fewest running. Raises UsageError for an unknown one, NoRoom, and
        BackendUnreachable, as a dead default is never replaced silently.
        """
        name, _, host = requested.partition("/")
        keys = [key for key in self._backends if name in ("", key[0]) and host in ("", key[1])]
        if not keys:
            raise UsageError(f"no backend is called {requested!r}", hint="sandbox-console doctor")
        if self._spread and len(keys) > 1:
            return await fewest_running(self, one_backend(keys, name or default), self.tables.of)
        keys = [key for key in keys if key[0] == (name or default)] or keys
        silent: dict[Key, BackendHealth] = {}
        async with aclosing(self.healths(keys)) as healths:
            async for health in healths:
                if health.ok:
                    return health.backend, health.host
                silent[health.backend, health.host] = health
        first = silent[keys[0]]
        raise BackendUnreachable(f"{first.backend} does not answer: {first.reason}", hint=first.hint)

    async def find(
        self, words: Sequence[str], *, changing: bool, only_answering: bool, creating: bool = False
    ) -> list[LookupResult | ConsoleError]:
        """What each NAME means, or why that is unknown.

        A NAME is a name, ``backend:name``, ``backend/host/id``, an id or its beginning.

        The errors are NotFound (which names the backends that did not answer), Ambiguous, and BackendUnreachable: if no
        host that answers has the name and a silent one may, or for a ``changing`` verb if both may. ``only_answering``
        treats silent hosts as empty. ``creating`` does not wait to learn that a name is nowhere.
        """
        return await Lookup(self, words).run(changing=changing, only_answering=only_answering, creating=creating)

    async def made_by(
        self, file: str, backend: str = "", *, only_answering: bool = False
    ) -> tuple[list[Sandbox], list[BackendHealth]]:
        """The sandboxes that ``up`` made of a file, and the hosts that do not answer and may have some of them.

        They are as the provider lists them, without details. Raises UsageError for an unknown backend.
        """
        return await made_by(self, self._of(backend), file, only_answering=only_answering)

    def known_of(self, file: str, backend: str = "") -> list[str]:
        """The names of what ``up`` made of a file, as each host last listed them. No host is asked."""
        if access().labels:  # what was listed tells no labels
            return []
        return sorted({name for key in self._of(backend) for name in self.names.of(key).made_by(file)})

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One sandbox as it is now. Raises NotFound, BackendUnreachable after the host's timeout."""
        seconds = self.timeout_s((ref.backend, ref.host))
        try:
            async with asyncio.timeout(seconds):
                return self.marked(await (await self.use(ref.backend, ref.host)).inspect(ref))
        except TimeoutError as error:
            silent = self._silent((ref.backend, ref.host))
            raise BackendUnreachable(
                f"{host_label(silent)} does not answer: {silent.reason}", hint=silent.hint
            ) from error

    def marked(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox with its quarantine, if it is in one."""
        return sandbox if self.holds is None else self.holds.marked(sandbox)

    async def holders(self, name: str) -> list[BackendHealth]:
        """The hosts that had a name when they last answered and that do not answer now."""
        if access().labels:
            return []
        keys = [key for key in self._backends if self.names.of(key).holds(name)]
        answers = await asyncio.gather(*(self.ask(*key, brief=True) for key in keys))
        return [health for _, health in answers if not health.ok]

    async def recall(self, key: Key, name: str) -> bool:
        """Whether other records than lists have a name on a host."""
        return self.remember is not None and await self.remember(key, name)

    def timeout_s(self, key: Key) -> float:
        """How long a host may take to answer a read, in seconds."""
        return self._timeouts.get(key, ANSWER_S)

    async def ask(self, name: str, host: str, *, brief: bool = False) -> Answer:
        """One host's sandboxes, as far as the acting person may see them, and its health.

        ``brief`` returns them as the provider lists them, without details; a host that lists them counts as healthy.
        """
        began = time.time()
        answer = await self._ask(name, host, brief=brief)
        if self.holds is not None and self.holds.all():
            answer = [self.marked(sandbox) for sandbox in answer[0]], answer[1]
        if answer[1].ok:
            self.names.listed((name, host), answer[0], began)
        elif answer[1].silent:
            self.names.fell_silent((name, host))
        else:
            self.names.went_away((name, host))
        return shown(answer[0]), answer[1]

    def _of(self, backend: str) -> list[Key]:
        keys = [key for key in self._backends if not backend or key[0] == backend]
        if backend and not keys:
            raise UsageError(f"no backend is called {backend!r}", hint=f"there is: {self.described()}")
        return keys

    async def _ask(self, name: str, host: str, *, brief: bool) -> Answer:
        try:
            async with asyncio.timeout(self.timeout_s((name, host))):
                backend = await self.use(name, host)
                if brief:  # a list is enough: a full health check would cost a command 100 ms
                    rows = await (backend.brief() if isinstance(backend, ListsQuickly) else backend.list())
                    return rows, BackendHealth(name, host, HealthState.OK)
                return await backend.list(), await backend.health()
        except TimeoutError:
            return [], self._silent((name, host))
        except Exception as error:  # noqa: BLE001 - one backend's bug must not hide the others
            health = await self._asked_health(name, host)
            if health.ok:  # it answered the ping but the list failed, which is what matters
                health = structs.replace(_failed(name, host, error), silent=True)
            return [], health

    async def _health(self, name: str, host: str) -> BackendHealth:
        health = await self._asked_health(name, host)
        if health.ok:
            self.names.answers((name, host))
        elif health.silent:
            self.names.fell_silent((name, host))
        return health

    async def _asked_health(self, name: str, host: str) -> BackendHealth:
        try:
            async with asyncio.timeout(self.timeout_s((name, host))):
                return await (await self.use(name, host)).health()
        except TimeoutError:
            return self._silent((name, host))
        except Exception as error:  # noqa: BLE001 - as above
            return _failed(name, host, error)

    def _silent(self, key: Key) -> BackendHealth:
        reason = f"no answer within {self.timeout_s(key):g} s"
        return BackendHealth(*key, HealthState.UNREACHABLE, reason, "is it frozen?", silent=True)


def _failed(name: str, host: str, error: Exception) -> BackendHealth:
    if isinstance(error, ConsoleError):
        return BackendHealth(name, host, HealthState.UNREACHABLE, error.message, error.hint)
    return BackendHealth(name, host, HealthState.UNREACHABLE, f"{type(error).__name__}: {error}")
