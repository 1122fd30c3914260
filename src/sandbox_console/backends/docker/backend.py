"""The Docker backend: one engine, as the protocol of ``backends.base``."""

from __future__ import annotations

import asyncio
import builtins
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from sandbox_console.backends import gateway_rules
from sandbox_console.backends.base import Process, Progress, Secrets, Terminal
from sandbox_console.backends.common.installation import Installation
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.docker import capabilities as abilities
from sandbox_console.backends.docker import diagnosis, executor, hardening, lifecycle, logs, stats, translate
from sandbox_console.backends.docker import watch as events
from sandbox_console.backends.docker.connection import Connection
from sandbox_console.backends.docker.drift_abilities import DriftAbilities
from sandbox_console.backends.docker.failures import Refused, about
from sandbox_console.backends.docker.gateways import Gateways, Options, token_of
from sandbox_console.backends.docker.lifetime_limits import LifetimeLimits
from sandbox_console.backends.docker.listing import Listing
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.reaper import Reaper
from sandbox_console.backends.docker.requested_specs import RequestedSpecs
from sandbox_console.errors import ConsoleError, InvalidSpec, NotFound, TimedOut, Unsupported, UsageError
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.event import BackendEvent
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Sandbox, SandboxRef, Stats
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from sandbox_console.backends.abilities import RecordEnd
    from sandbox_console.backends.docker.engine import Engine, Params
    from sandbox_console.hostfs.guest_writable import GuestFolders

ENDED_S = 10.0
"""How long a killed container may take to disappear before it counts as a failure."""


class DockerBackend(DriftAbilities):
    """The containers of one docker context; ``host`` is the context's name."""

    name = "docker"

    def __init__(
        self, context: str, state_dir: Path | None = None, options: Options | None = None, kept: Sequence[str] = (),
        tmp_mib: int = hardening.TMP_MIB,
    ) -> None:  # fmt: skip
        self.host = context
        self._kept, self._tmp_mib = tuple(kept), tmp_mib
        self._connection = self._connected(context)
        self._installation = Installation(state_dir)
        self._gateways = Gateways(self._connection, state_dir, options or Options())
        self._asked = RequestedSpecs(state_dir / "asked" if state_dir else None)
        self._lives = LifetimeLimits(self._connection, state_dir, self._gateways)
        self._listing = Listing(self._connection, self._installation, self._gateways, self.inspect)
        self._listed = False  # listed since the last health check: such an engine is healthy

    def _connected(self, context: str) -> Connection:
        return Connection(context)

    def apart_from(self, guests: Callable[[], GuestFolders]) -> None:
        """Refuse an engine that guests could pretend to be. ``guests`` reads which folders they can change."""
        self._connection.guests = guests

    async def open(self) -> None:
        await self.health()

    async def close(self) -> None:
        await self._connection.close()

    def capabilities(self) -> Capabilities:
        local = self._connection.local or not self._connection.info  # before it was read, what an engine usually has
        return abilities.capabilities(self._connection.info, self._gateways.problem, self._lives.problem, local=local)

    async def health(self) -> BackendHealth:
        listed, self._listed = self._listed, False
        if listed and self._connection.read_within(events.JUST_NOW_S):
            return await self._connection.health(events.JUST_NOW_S)
        looking = asyncio.create_task(self._gateways.look())  # done meanwhile, it saves each command a round trip
        try:
            health = await self._connection.health()
            if health.ok:
                with suppress(ConsoleError):  # it failed in between: the next check reports it
                    await looking
                await self._lives.see()
            return health
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def diagnose(self) -> Sequence[Diagnosis]:
        if not (await self.health()).ok:
            return ()
        diagnoses = diagnosis.look(self._connection.info, self._gateways.problem, apart=await self._gateways.apart())
        return (*diagnoses, *await self._lives.diagnosed())

    async def list(self) -> builtins.list[Sandbox]:
        rows = await self._listing.detailed()
        self._listed = True
        return rows

    async def brief(self) -> Sequence[Sandbox]:
        return await self._listing.brief()

    async def shares(self) -> Sequence[str]:
        found = await (await self._engine()).call("GET", "containers/json", params={"all": 1})
        if not self._connection.local:  # folders of another machine
            return ()
        places = [mount for data in found for mount in data.get("Mounts") or () if mount.get("RW")]
        return [str(mount["Source"]) for mount in places if mount.get("Source")]

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        engine = await self._engine()
        data = await self._inspected(ref)
        history = self._connection.history
        image = await history.image(engine, str(data.get("Image", "")))
        spec = await self._last_requested(data)
        published = (*await self._gateways.walled(engine, data), *await self._gateways.published(engine, data))
        return translate.from_inspect(
            self.host, data, self._connection.info, image=image, oom_at=history.ooms.get(data["Id"]),
            published=published, ours=self._installation.id, backend=self.name, lives=await self._lives.facts(data),
            end_reason=await self._lives.end_reason(data), asked=spec, rules=await self._rules(data, spec),
        )  # fmt: skip

    async def watch(self) -> AsyncIterator[BackendEvent]:
        seeing = asyncio.create_task(self._lives.see_on())
        try:
            async with aclosing(events.watch(self._connection, self._listing.as_answered, self.inspect)) as found:
                async for event in found:
                    yield event
        finally:
            seeing.cancel()

    async def enforce(self, engine: str, record: RecordEnd) -> None:
        await self._lives.enforce(engine, record)

    def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        return logs.read(self._connection, ref.id, query)

    async def stats(self, ref: SandboxRef, interval_s: float) -> AsyncIterator[Stats]:
        engine = await self._engine()
        with about(_name(ref)):
            info = self._connection.info
            async with aclosing(
                stats.follow(engine, ref.id, interval_s, info.get("MemTotal"), str(info.get("DockerRootDir", "")))
            ) as samples:
                async for sample in samples:
                    yield sample

    def validate(self, spec: SandboxSpec) -> Mapping[str, str]:
        return abilities.value_problems(spec, self._connection.info, local=self._connection.local)

    async def create(self, permit: Permit, spec: SandboxSpec, secrets: Secrets, progress: Progress) -> SandboxRef:
        need(permit)
        engine = await self._engine()
        if not self._connection.info:
            await self._connection.refresh()
        if spec.egress or spec.ports:
            await self._gateways.look()
        abilities.refuse_unsupported(spec, self.capabilities())
        if problems := await asyncio.to_thread(self.validate, spec):
            raise InvalidSpec(problems)
        progress(f"creating {spec.name} from {spec.image}")
        return SandboxRef(self.name, self.host, await self._made(engine, spec, secrets))

    async def _made(self, engine: Engine, spec: SandboxSpec, secrets: Secrets) -> str:
        own = await asyncio.to_thread(self._installation.made)
        gateway = await self._gateways.make(engine, self._connection.info, spec) if spec.egress or spec.ports else None
        try:
            made = await lifecycle.create(
                engine, self._connection.info, spec, secrets, gateway,
                kept=self._kept, tmp_mib=self._tmp_mib, installation=own,
            )  # fmt: skip
            await self._lives.add(engine, made, spec)
        except BaseException:
            if gateway is not None:
                await run_to_completion(self._gateways.discard(engine, gateway.token))
            raise
        return made

    async def start(self, permit: Permit, ref: SandboxRef, secrets: Secrets) -> None:
        need(permit)
        engine = await self._engine()
        data = await self._inspected(ref)
        await self._lives.need(data)
        token = token_of(data)
        if token:
            await self._gateways.start(engine, token, data)
        try:
            await lifecycle.start(engine, ref.id, _name(ref), secrets)
        except BaseException:
            if token:
                await run_to_completion(self._not_alone(ref, token))
            raise

    async def _not_alone(self, ref: SandboxRef, token: str) -> None:
        """Stop the gateway of a sandbox that did not start, as it would keep its ports on the host."""
        with suppress(ConsoleError):
            if not (await self._inspected(ref))["State"]["Running"]:
                await self._gateways.stop(await self._engine(), token)

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        need(permit)
        whole = max(0, math.ceil(grace_s))  # the engine takes whole seconds
        await self._post(ref, "stop", {"t": whole}, timeout_s=whole + 30)
        await self._ended(ref)

    async def kill(self, permit: Permit, ref: SandboxRef, signal: str) -> None:
        need(permit)
        try:
            await self._post(ref, "kill", {"signal": signal})
        except Refused as error:
            if error.status == 400:
                raise UsageError(f"{signal!r} is not a signal", hint="for example SIGTERM, SIGHUP, SIGKILL") from error
            raise
        if signal.upper().removeprefix("SIG") in ("KILL", "9"):
            await self._ended(ref)

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._post(ref, "pause")

    async def resume(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        await self._post(ref, "unpause")

    async def hold(self, permit: Permit, ref: SandboxRef, held: bool) -> None:
        need(permit)
        await self._lives.hold(ref.id, held)

    async def rename(self, permit: Permit, ref: SandboxRef, name: str) -> None:
        need(permit)
        await self._post(ref, "rename", {"name": name})
        await self._keep_name(ref, name)
        if token := await self._token(ref):
            await asyncio.to_thread(gateway_rules.rename, self._gateways.folder(token), name)

    async def remove(self, permit: Permit, ref: SandboxRef, force: bool) -> None:
        need(permit)
        engine = await self._engine()
        token = await self._token(ref)
        await self._removed(engine, ref, force)
        await self._lives.forget(ref.id)
        await asyncio.to_thread(self._asked.forget, ref.id)
        if token:
            await run_to_completion(self._gateways.discard(engine, token))

    async def _removed(self, engine: Engine, ref: SandboxRef, force: bool) -> None:
        with about(_name(ref)):
            try:
                await engine.call("DELETE", container_path(ref.id), params={"force": int(force), "v": 1}, timeout_s=60)
            except Refused as error:
                if error.status != 409 or "already in progress" not in error.message:
                    raise
                await engine.call("POST", container_path(ref.id, "wait"), params={"condition": "removed"}, timeout_s=60)

    async def update(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        need(permit)
        engine = await self._engine()
        data = await self._inspected(ref)
        sandbox = translate.from_inspect(self.host, data, self._connection.info, ours=self._installation.id)
        now = sandbox.spec
        for field in ("memory_mib", "cpus"):
            if now is not None and getattr(spec, field) is None and sandbox.found[field] is not None:
                raise Unsupported(f"docker cannot lift the limit {field} while it lives", hint="recreate the sandbox")
        abilities.refuse_unsupported(structs.replace(spec, egress=(), ports=()), self.capabilities())
        limits = hardening.limits(spec, self._connection.info)
        if now is None:
            limits = hardening.changed_limits(limits, spec, data["HostConfig"])
        with about(_name(ref)):
            await engine.call("POST", container_path(ref.id, "update"), body=limits)
        if now is not None:
            await self._keep(data, spec)

    async def exec(self, permit: Permit, request: Exec, secrets: Secrets) -> Process:
        need(permit)
        return await executor.start_command(await self._engine(), request, secrets)

    async def shell(self, permit: Permit, request: OpenShell, secrets: Secrets) -> Terminal:
        need(permit)
        return await executor.open_shell(await self._engine(), request, secrets)

    async def end_lost_shell(self, permit: Permit, ref: SandboxRef, user: str | None, mark: str) -> None:
        need(permit)
        with about(_name(ref)):
            await Reaper(await self._engine(), ref.id, user or "", mark).kill()

    async def _post(
        self, ref: SandboxRef, verb: str, params: Params | None = None, *, timeout_s: float | None = 30
    ) -> None:
        engine = await self._engine()
        with about(_name(ref)):
            await engine.call("POST", container_path(ref.id, verb), params=params, timeout_s=timeout_s)

    async def _ended(self, ref: SandboxRef) -> None:
        """Wait until no process is left; a container that was removed meanwhile has ended too."""
        try:
            async with asyncio.timeout(ENDED_S):
                await self._post(ref, "wait", {"condition": "not-running"}, timeout_s=None)
        except NotFound:
            return
        except TimeoutError as error:
            raise TimedOut(f"{_name(ref)} was killed and has not ended in {ENDED_S:g} s") from error
        with suppress(NotFound):
            if token := await self._token(ref):
                await self._gateways.stop(await self._engine(), token)


def _name(ref: SandboxRef) -> str:
    return described(ref.id)
