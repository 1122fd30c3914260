"""The sandboxes of old clients: each belongs to a token, and is called by the client's namespace and name."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec import structs

from sandbox_console import service
from sandbox_console.errors import BackendUnreachable, ConsoleError, Denied, NotFound, UsageError
from sandbox_console.library import Console, SandboxHandle, SandboxSpec
from sandbox_console.model.access import access, full, limited_to
from sandbox_console.model.action import Create
from sandbox_console.model.sandbox import HealthState, Sandbox, Stats, Status
from sandbox_console.servers.microsandbox.protocol import Config, Place
from sandbox_console.service.server_options import from_template, maker, may_name, with_labels

TOKEN, NAMESPACE, NAME = "msb.token", "msb.namespace", "msb.name"
"""The labels with the owner of a sandbox, and what the client calls it."""
_IDLE = ("sleep", "2147483647")
_SAMPLE_S, _PATIENCE_S = 0.2, 3.0
_LONGEST_NAME = 46


class Sandboxes:
    """The sandboxes on one console."""

    def __init__(self, opened: service.Console) -> None:
        self._opened = opened
        self.console = Console(opened)
        self._options = opened.config.microsandbox
        self._coming = 0
        self._turns: dict[tuple[str, str, str], asyncio.Lock] = {}

    @asynccontextmanager
    async def turn(self, token: str, place: Place) -> AsyncIterator[None]:
        """Only one at a time starts or stops what a client calls by one name."""
        key = token, place.namespace, place.sandbox
        async with self._turns.setdefault(key, asyncio.Lock()):
            yield

    async def every(self, token: str = "") -> Sequence[Sandbox]:
        """All sandboxes of clients; with a token, its own. Raises BackendUnreachable if their host is silent."""
        backend, host = await self._opened.place_for(self._options.backend)
        with limited_to(full):  # the limits count everybody's
            rows, healths = await self._opened.names(backend)
        for health in healths:
            if health.host == host and health.state is not HealthState.OK:
                raise BackendUnreachable(f"{backend} does not answer: {health.reason}", hint=health.hint)
        return [
            one
            for one in rows
            if one.managed and one.ref.host == host and maker(one.labels, TOKEN) and one.labels.get(NAME)
            if not token or (token == one.labels[TOKEN] and access().sees(one.labels))
        ]

    async def find(self, token: str, place: Place) -> Sandbox | None:
        """What a client calls by this name."""
        for one in await self.every(token):
            if (one.labels.get(NAMESPACE, ""), one.labels.get(NAME)) == (place.namespace, place.sandbox):
                return one
        return None

    async def handle(self, token: str, place: Place) -> SandboxHandle:
        """The sandbox to act on. Raises NotFound."""
        found = await self.find(token, place)
        if found is None:
            raise NotFound(f"sandbox {place.sandbox!r} not found", hint="start it first")
        return self.handle_of(found)

    def handle_of(self, found: Sandbox) -> SandboxHandle:
        """A sandbox to act on."""
        return SandboxHandle(self._opened, found.ref, found.name, service.Consent())

    async def create(self, token: str, place: Place, config: Config) -> SandboxHandle:
        """Make and start a sandbox. Raises Denied (with a row) if it is not allowed, UsageError, ConsoleError."""
        spec = self._spec(token, place, config)
        why = self._not_allowed(spec, config) or self._full(len(await self.every()))
        if why is not None:
            await self._opened.refuse(Create(spec, *await self._opened.place_for(self._options.backend)), why)
        self._coming += 1
        try:
            return await self.console.create(spec, backend=self._options.backend)
        finally:
            self._coming -= 1

    async def sample(self, found: Sandbox) -> Stats | None:
        """One sample of a running sandbox; None if the backend has none."""
        if found.status is not Status.RUNNING:
            return None
        with suppress(ConsoleError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S), aclosing(self._opened.stats(found.ref, _SAMPLE_S)) as samples:  # type: ignore[type-var]
                async for sample in samples:
                    if sample.cpu_percent is not None:
                        return sample
        return None

    def _spec(self, token: str, place: Place, config: Config) -> SandboxSpec:
        for name in ("volumes", "ports", "depends_on", "scripts"):
            if getattr(config, name):
                raise UsageError(f"{name} is not taken here", hint="the server's template decides what a sandbox has")
        spec = from_template(
            self._opened.config.templates, self._options.template,
            f"{place.sandbox[:_LONGEST_NAME]}-{secrets.token_hex(4)}",
        )  # fmt: skip
        spec = with_labels(spec, {**access().labels, TOKEN: token, NAMESPACE: place.namespace, NAME: place.sandbox})
        command = (config.shell or "/bin/sh", "-c", config.exec) if config.exec else spec.command or _IDLE
        return structs.replace(
            spec, image=spec.image or config.image, command=command, env={**spec.env, **_env(config)},
            workdir=config.workdir or spec.workdir, memory_mib=config.memory or spec.memory_mib,
            cpus=config.cpus or spec.cpus,
        )  # fmt: skip

    def _not_allowed(self, spec: SandboxSpec, config: Config) -> Denied | None:
        options = self._options
        if not may_name(config.image, options.images):
            return Denied(f"image {config.image!r} is not among those allowed", rule="microsandbox.images")
        for field, cap in (("memory_mib", options.max_memory_mib), ("cpus", options.max_cpus)):
            if (getattr(spec, field) or 0) > cap:
                return Denied(f"{field} is above the maximum of {cap:g}", rule=f"microsandbox.max_{field}")
        return None

    def _full(self, there: int) -> Denied | None:
        if there + self._coming < self._options.max_sandboxes:
            return None
        return Denied(f"there are {there} sandboxes, the most allowed", rule="microsandbox.max_sandboxes")


def _env(config: Config) -> dict[str, str]:
    pairs = [one.partition("=") for one in config.envs]
    if any(not name or not equals for name, equals, _ in pairs):
        raise UsageError("envs: each is NAME=VALUE")
    return {name: value for name, _, value in pairs}
