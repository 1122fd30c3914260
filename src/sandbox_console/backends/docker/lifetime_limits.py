"""Manages the time limits of one engine's sandboxes: stored on creation, and enforced by a keeper process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker.keeper_process import Answer, KeeperProcess, serve
from sandbox_console.backends.docker.lifecycle import remove_quietly
from sandbox_console.backends.docker.lifetime_files import Lifetime, LifetimeFiles, asks
from sandbox_console.backends.docker.translate import spec_of
from sandbox_console.errors import BackendError, Conflict
from sandbox_console.model.sandbox import Diagnosis, Fact

if TYPE_CHECKING:
    from sandbox_console.backends.abilities import RecordEnd
    from sandbox_console.backends.docker.connection import Connection
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.gateways import Gateways
    from sandbox_console.model.spec import SandboxSpec

SEE_S = 10.0
"""How often, in seconds, a watching console checks the keeper."""

_FIELDS = ("max_duration_s", "idle_timeout_s")


class LifetimeLimits:
    """The lifetimes of one engine's sandboxes. ``problem`` is why they cannot be enforced; empty if they can."""

    def __init__(self, connection: Connection, state_dir: Path | None, gateways: Gateways) -> None:
        self._connection, self._folder, self._gateways = connection, state_dir, gateways
        self._files = LifetimeFiles(state_dir / "lifetimes") if state_dir is not None else None
        self._process: KeeperProcess | None = None
        self.problem = ""
        if self._files is None:
            self.problem = "the process that enforces it needs a state folder, and none was given"
        elif sys.platform != "linux":
            self.problem = "the process that enforces it runs only on Linux"

    @property
    def _engine(self) -> str:
        return str(self._connection.info.get("ID") or "")

    def _keeper(self) -> KeeperProcess | None:
        if self._process is None and self._folder is not None and self._engine and not self.problem:
            self._process = KeeperProcess(
                self._folder, self._connection.backend, self._connection.context, self._engine
            )
        return self._process

    async def add(self, engine: Engine, id: str, spec: SandboxSpec) -> None:
        """Write a new container's limits. If that fails the container is removed. Raises BackendError."""
        if self._files is None or self.problem or not asks(spec):
            return
        try:
            await asyncio.to_thread(self._files.add, id, self._engine, spec)
        except BaseException:
            await remove_quietly(engine, id)
            raise

    async def hold(self, id: str, held: bool) -> None:
        """Suspend a container's limits, or enforce them again. Raises BackendError."""
        if self._files is not None and await self._known(id) is not None:
            await asyncio.to_thread(self._files.hold, id, held)

    async def need(self, data: Mapping[str, Any]) -> None:
        """Check before a start that its limits will hold. Raises Conflict, BackendError, unless on best effort."""
        spec = spec_of(data)
        if spec is None or not asks(spec):
            return
        strict = spec.limits == "strict"
        known, keeper = await self._known(str(data["Id"])), self._keeper()
        if known is not None and keeper is not None:
            try:
                await asyncio.to_thread(keeper.need)
            except BackendError:
                if strict:
                    raise
        elif strict:
            name = str(data["Name"]).lstrip("/")
            raise Conflict(
                f"{name} has a time limit, but this console's state has no record of it: nothing would end it",
                hint="recreate it, or start it with docker",
            )

    async def forget(self, id: str) -> None:
        """Forget a container that is gone."""
        if self._files is not None:
            await asyncio.to_thread(self._files.forget, id)

    async def see(self) -> None:
        """Start a keeper if there is something to keep and none runs, without waiting for it."""
        keeper = self._keeper()
        if keeper is not None and await self._any(self._engine):
            await asyncio.to_thread(keeper.see)

    async def see_on(self) -> None:
        """Check on the keeper until cancelled."""
        while True:
            await asyncio.sleep(SEE_S)
            await self.see()

    async def enforce(self, engine: str, record: RecordEnd) -> None:
        """Run as the keeper."""
        from sandbox_console.backends.docker.lifetime_keeper import LifetimeKeeper

        if self._files is not None and self._folder is not None:
            await serve(LifetimeKeeper(self._connection, self._files, self._gateways, record), self._folder, engine)
            await self._once_more(engine)

    async def _once_more(self, engine: str) -> None:
        """Start another keeper for a container that was created while the keeper was ending."""
        if self._folder is not None and await self._any(engine):
            KeeperProcess(self._folder, self._connection.backend, self._connection.context, engine).see()

    async def facts(self, data: Mapping[str, Any]) -> Sequence[Fact]:
        """The facts about a container's time limits."""
        spec = spec_of(data)
        if spec is None or not asks(spec):
            return ()
        known = await self._known(str(data["Id"]))
        answer = await self._answer() if known is not None else None
        return tuple(_facts(spec, known, answer))

    async def end_reason(self, data: Mapping[str, Any]) -> str:
        """Why its keeper ended a container's last run; empty if it did not."""
        known = await self._known(str(data["Id"])) if asks(spec_of(data)) else None
        return known.why if known is not None and known.ended == data["State"].get("StartedAt") else ""

    async def diagnosed(self) -> Sequence[Diagnosis]:
        """The doctor's line; none if nothing has a limit."""
        if not await self._any(self._engine):
            return ()
        answer = await self._answer()
        if answer is None:
            text = "no keeper enforces max_duration_s and idle_timeout_s"
            return (Diagnosis("lifetimes", "warning", text, "any command on docker starts it; check whether it ends"),)
        return (Diagnosis("lifetimes", "ok", f"process {answer.pid} holds {answer.held} that run to their limits"),)

    async def _any(self, engine: str) -> bool:
        return self._files is not None and bool(await asyncio.to_thread(self._files.all, engine))

    async def _answer(self) -> Answer | None:
        keeper = self._keeper()
        return await asyncio.to_thread(keeper.look) if keeper is not None else None

    async def _known(self, id: str) -> Lifetime | None:
        known = await asyncio.to_thread(self._files.get, id) if self._files is not None else None
        return known if known is not None and known.engine == self._engine else None


def _facts(spec: SandboxSpec, known: Lifetime | None, answer: Answer | None) -> Iterator[Fact]:
    for field in _FIELDS:
        requested = getattr(known or spec, field)
        if requested is None:
            continue
        if known is None:
            yield Fact(field, "not enforced", note="this console's state has no record of it", enforced=False)
        elif answer is None:
            yield Fact(field, "not enforced", note="its keeper is not running; sandbox-console doctor", enforced=False)
        else:
            yield Fact(field, f"{requested:g}", note=f"its keeper, process {answer.pid}, ends it")
