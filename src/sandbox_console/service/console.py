"""The console: all that a face may do, over every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from msgspec import structs

from sandbox_console.backends.abilities import Diagnosable
from sandbox_console.errors import BackendError, Conflict, ConsoleError, InvalidSpec
from sandbox_console.hostfs.places import Ground
from sandbox_console.model import check, ports
from sandbox_console.model.action import (
    Action,
    ChangeEgress,
    Create,
    DenyEgress,
    Exec,
    Fork,
    Forward,
    OpenShell,
    Permit,
    Remove,
    Rename,
    Restart,
    RestoreSnapshot,
    Start,
    Update,
    place_of,
    ref_of,
)
from sandbox_console.model.audit import AuditEntry, AuditQuery, Outcome, Verification
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.egress_rules import rule_problems
from sandbox_console.model.inside import Snapshot
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, Sandbox, SandboxRef, Stats
from sandbox_console.model.secret import ResolvedSecret, Secret
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.waiting import to_the_end
from sandbox_console.policy.decide import decide
from sandbox_console.policy.rules import Allow, Decision, Deny
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.config import Config
from sandbox_console.service.effects.call import Call
from sandbox_console.service.effects.dispatch import carry_out
from sandbox_console.service.effects.plan import Plan, differing, plan_for, within_bounds
from sandbox_console.service.gate.gate import Consent, Gate, Request
from sandbox_console.service.gate.masking import masked
from sandbox_console.service.gate.operation import ActionResult, ExecIO, Operation
from sandbox_console.service.gate.shipper import Shipper
from sandbox_console.service.gate.trail import Trail
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads import given
from sandbox_console.service.reads.denials import DenialFeed
from sandbox_console.service.reads.egress import Outbound
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.hub import Hub, Subscription
from sandbox_console.service.reads.inside import Inside
from sandbox_console.service.reads.live_logs import LiveLogs
from sandbox_console.service.reads.lookup import Found, place
from sandbox_console.service.reads.recall import note_after, note_before, recorded
from sandbox_console.service.reads.recordings import Recordings
from sandbox_console.service.reads.retained_logs import Retained
from sandbox_console.service.reads.secrets import Secrets
from sandbox_console.service.reads.shares import Own, Shares
from sandbox_console.service.reads.watcher import StatsPump, Watcher
from sandbox_console.service.sessions.shell import ShellSession


class Console:
    """One console. Made by :func:`sandbox_console.service.open_console`, which closes it as well.

    Reads go straight to the backends; every change goes through the gate. What it started it owns:
    closing a view ends nothing, closing the console cancels what is in flight and records that.
    """

    def __init__(
        self, config: Config, fleet: Fleet, trail: Trail, hub: Hub, own: Own | None = None,
        secrets: Mapping[str, Secret] | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.hub = hub
        self.fleet = fleet
        self.trail = trail
        fleet.remember = recorded(trail)
        self._vault = Vault(config.secrets, lambda: given.everywhere(trail.path.parents[1]).ground(), secrets)
        self._gate = Gate(trail, self._vault, hub.publish, config.policy)
        self._watcher = Watcher(fleet, hub.publish)
        self._stats = StatsPump(fleet, hub.publish, config.tui.stats_interval_s, lambda: [*hub.sandboxes.values()])
        self.inside = Inside(fleet, self._vault)
        self.denials = DenialFeed(fleet, hub, self._watcher.start, self._vault)
        self.egress = Outbound(fleet, self.denials, self._vault)
        kept = config.logs
        self.retained = Retained(trail.path.parents[1] / "logs", kept.retain_mib << 20, kept.retain_each_mib << 20)
        self._logs = LiveLogs(fleet, self._vault, self.retained if kept.retain else None)
        self.secrets = Secrets(self._vault, fleet, trail.path.parents[1], self._look)
        self.shipper = Shipper(trail)
        self._shares = Shares(fleet, own or Own(trail.path.parents[1]))
        folder = trail.path.parents[1] / "recordings"
        self.recordings = Recordings(folder, config.recording, trail, self._vault.redactor)
        self._operations: set[asyncio.Task[Any]] = set()
        self._shells: set[ShellSession] = set()

    # Reads

    @property
    def read_only(self) -> bool:
        """Whether the policy forbids every change."""
        return self.config.policy.read_only

    async def list(self, backend: str = "") -> tuple[Sequence[Sandbox], Sequence[BackendHealth]]:
        """All sandboxes now, and the health of each backend asked."""
        return await self.fleet.listing(backend)

    def list_as_answered(
        self, backend: str = "", patience_s: float = 0.0
    ) -> AsyncGenerator[tuple[tuple[Sequence[Sandbox], Sequence[BackendHealth]], Sequence[tuple[str, str]]], None]:
        """As ``list``, in parts as they come, each with the (backend, host) pairs still waited for.

        First of all that answer within ``patience_s`` seconds, then of each as it does.
        """
        return self.fleet.as_answered(backend, patience_s)

    def healths(self, places: Sequence[tuple[str, str]]) -> AsyncGenerator[BackendHealth, None]:
        """Each place's health in this order, all asked at once; those last that were silent the last time."""
        return self.fleet.healths(places)

    async def find(self, name: str, *, changing: bool = False, only_answering: bool = False) -> Sandbox:
        """The sandbox that NAME means. Raises NotFound, Ambiguous, BackendUnreachable."""
        [found] = await self.find_all([name], changing=changing, only_answering=only_answering)
        if isinstance(found, ConsoleError):
            raise found
        return found.sandbox

    async def find_all(
        self, names: Sequence[str], *, changing: bool = False, only_answering: bool = False
    ) -> Sequence[Found | ConsoleError]:
        """What each NAME means, or why that is not known; one list of each host for all. See ``Fleet.find``."""
        return await self.fleet.find(names, changing=changing, only_answering=only_answering)

    async def refuse_held(self, name: str) -> None:
        """Raise Conflict where a host that does not answer held this name: there would be two when it is back."""
        for health in await self.fleet.holders(name):
            text = f"{place(health)} does not answer and held {name!r}: {health.reason}"
            raise Conflict(text, hint="choose another name, or give --only-answering")

    def tell_once(self, health: BackendHealth) -> bool:
        """Whether nobody was told yet that a backend cannot work here; from now on they were."""
        return self.fleet.names.tell_once((health.backend, health.host))

    async def inspect(self, ref: SandboxRef) -> Sandbox:
        """One sandbox as it is now. Raises NotFound, BackendUnreachable after the host's timeout."""
        return await self.fleet.inspect(ref)

    @property
    def places(self) -> Sequence[tuple[str, str]]:
        """Every (backend, host), in the order of the config."""
        return self.fleet.keys

    async def health(self) -> Sequence[BackendHealth]:
        """Every backend's health, asked now."""
        return await self.fleet.health()

    async def capabilities(self, backend: str, host: str) -> Capabilities:
        """What a backend can do here."""
        return (await self.fleet.use(backend, host)).capabilities()

    async def diagnose(self, backend: str, host: str) -> Sequence[Diagnosis]:
        """What a backend finds on the machine it works on; empty where it has nothing to look at."""
        found = await self.fleet.use(backend, host)
        return await found.diagnose() if isinstance(found, Diagnosable) else ()

    async def ground(self) -> Ground:
        """The folders of this machine that guests can change, for who opens files here: see ``hostfs``.

        A backend that does not answer costs a second. Raises ConfigError where the console's own state is a guest's.
        """
        return await self._shares.ground()

    def watch(self) -> Subscription:
        """Everything that changes, from the state as it is. Close it when done."""
        self.denials.start()
        return self.hub.subscribe()

    def show_stats(self, refs: Iterable[SandboxRef], *, rest_soon: bool = False) -> None:
        """Publish samples of just these sandboxes: the running ones on screen; of all others now and then.

        ``rest_soon``: the others too are sorted or filtered by their samples; see service/reads/stats_sweep.py.
        """
        self._stats.show(refs, rest_soon=rest_soon)

    async def stats(self, ref: SandboxRef, interval_s: float = 1.0) -> AsyncIterator[Stats]:
        """Samples of one sandbox until it stops."""
        backend = await self.fleet.use(ref.backend, ref.host)
        async for stats in backend.stats(ref, interval_s):
            yield stats

    def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        """Batches of a sandbox's output, known secrets masked, else the bytes as they were written."""
        return self._logs.read(ref, query)

    async def history(self, query: AuditQuery) -> Sequence[AuditEntry]:
        """Actions on record, newest first."""
        return await self.trail.entries(query)

    async def audit_entry(self, seq: int) -> AuditEntry:
        """One action on record. Raises NotFound."""
        return await self.trail.entry(seq)

    async def verify(self) -> Verification:
        """Walk the audit log's chain."""
        return await self.trail.verify()

    # Before a change

    async def targets(self) -> Sequence[tuple[str, str]]:
        """Where a sandbox can be made now: (backend, host), the default first."""
        known = list(self.hub.health.values()) if self._watcher.running else await self.health()
        healthy = [(health.backend, health.host) for health in known if health.ok]
        return sorted(healthy, key=lambda key: key[0] != self.config.backend)

    async def place_for(self, backend: str = "") -> tuple[str, str]:
        """Where to make a sandbox: (backend, host). See ``Fleet.choose``."""
        return await self.fleet.choose(backend, self.config.backend)

    async def problems(self, spec: SandboxSpec, backend: str, host: str) -> Mapping[str, str]:
        """What is wrong with a spec, by field, for this backend; empty when nothing is."""
        found = check.problems(spec, allow_ip=self.config.policy.egress_ip)
        if unknown := self._vault.undefined(spec.secrets):
            found["secrets"] = f"{unknown[0]!r} is not defined in the config"
        asked = await self.fleet.use(backend, host)
        offered = await asyncio.to_thread(asked.validate, spec)
        folders = await self._shares.problems(spec)
        return {**{field: text for field, text in offered.items() if text}, **folders, **found}

    async def plan(self, sandbox: Sandbox, spec: SandboxSpec) -> Plan:
        """Which changes lead from a sandbox's spec to another, and how each is made."""
        capabilities = await self.capabilities(sandbox.ref.backend, sandbox.ref.host)
        plan = plan_for(sandbox, spec, capabilities, self._vault.injects(capabilities))
        asked = await self.fleet.use(sandbox.ref.backend, sandbox.ref.host)
        plan = await within_bounds(plan, asked, sandbox, spec)
        notes = self.secrets.notes(spec, sandbox.ref.backend, sandbox.ref.host)
        return structs.replace(plan, notes=tuple(notes))

    async def decide(self, action: Action, target: Sandbox | None = None) -> Decision:
        """What the policy says to an action, without doing it."""
        backend, host = place_of(action)
        capabilities = await self.capabilities(backend, host)
        injects = self._vault.injects(capabilities)
        return decide(action, self.config.policy, capabilities, target=target, injects=injects)

    # Changes

    def give_secret(self, name: str, secret: Secret) -> None:
        """Know a secret by value, for as long as this console is open. Raises SecretError, Conflict."""
        self._vault.give(name, secret)

    def perform(self, action: Action, *, consent: Consent = Consent(), io: ExecIO | None = None) -> Operation:  # noqa: B008 - frozen
        """Carry an action out. The operation's result raises what went wrong, with the row's id."""
        operation = Operation(action)
        task = asyncio.create_task(self._perform(action, consent, io or ExecIO(), operation))
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        operation.run(task)
        return operation

    async def refuse(self, action: Action, why: ConsoleError) -> NoReturn:
        """Record an action that a server does not let a caller do, and raise ``why`` with the row's id.

        ``why`` is Denied for a row that says denied. Raises AuditUnavailable where there can be no row.
        """
        asked = Request(action, place_of(action)[0], None, Deny(why.message, "request"), problem=why)
        await self._gate.run(asked, _nothing, _facts)
        raise why

    async def shell(self, request: OpenShell, *, consent: Consent = Consent()) -> ShellSession:  # noqa: B008 - frozen
        """Open a shell through the gate; its end is noted when it is closed."""
        task = asyncio.create_task(self._open_shell(request, consent))
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)
        return await task

    async def _open_shell(self, request: OpenShell, consent: Consent) -> ShellSession:
        asked = await self._request(request, consent)
        opened: list[ShellSession] = []
        without: list[str] = []

        async def effect(permit: Permit, secrets: list[ResolvedSecret]) -> ShellSession:
            without.extend(_lacking(asked.target, secrets))
            backend = await self.fleet.use(request.ref.backend, request.ref.host)
            name = asked.target.name if asked.target else ""
            recorder = await self.recordings.begin(request, name, permit.audit_id)
            try:
                terminal = await backend.shell(permit, request, secrets)
            except BaseException:
                if recorder is not None:
                    await to_the_end(recorder.discard())
                raise
            session = ShellSession(
                request, permit.audit_id, terminal, self._vault.redactor, note_end(permit), recorder, self.recordings
            )
            self._shells = {one for one in self._shells if not one.closed} | {session}
            session.without = tuple(without)
            opened.append(session)
            return session

        def note_end(permit: Permit) -> Any:
            async def note(body: Mapping[str, Any]) -> None:
                journal = await self.trail.journal()
                await journal.note(permit, asked.backend, str(request.ref), masked(body, self._vault.redactor.text))

            return note

        try:
            return await self._gate.run(asked, effect, lambda _: (Outcome.OK, {"opened": True} | _without(without), ""))
        except BaseException:  # nobody got the session, so nobody else would end it
            for session in opened:
                await session.close()
            raise

    async def close(self) -> None:
        """Cancel what is in flight (each is recorded as cancelled), end shells, let go of the backends."""
        for task in self._operations:
            task.cancel()
        await asyncio.gather(*self._operations, return_exceptions=True)
        await asyncio.gather(*(shell.close() for shell in self._shells), return_exceptions=True)
        await self._stats.close()
        await self._watcher.close()
        await self.denials.close()
        await self.shipper.close()
        try:
            await self.fleet.close()
        finally:
            await self.trail.close()

    async def _look(self, action: Exec, io: ExecIO) -> ActionResult:
        """A command whose output nobody is shown, so it is not masked: how the scan for leaks looks into a sandbox."""
        return await self._perform(action, Consent(), io, Operation(action), Redactor())

    async def _perform(
        self, action: Action, consent: Consent, io: ExecIO, operation: Operation, mask: Redactor | None = None
    ) -> ActionResult:
        request = await self._request(action, consent)
        redactor = mask or self._vault.redactor
        made: list[SandboxRef] = []

        async def effect(permit: Permit, secrets: list[ResolvedSecret]) -> ActionResult:
            backend = await self.fleet.use(*place_of(action))
            await self._give_folder(request)
            note_before(self.fleet.names, action)
            injects = self._vault.injects(backend.capabilities())
            handed = [structs.replace(one, inject=injects[one.name]) for one in secrets]
            call = Call(backend, request.target, handed, operation.report, io, redactor, injects)
            result = await carry_out(action, permit, call)
            if isinstance(action, Exec):
                told = _without(_lacking(request.target, secrets))
                result = structs.replace(result, details={**result.details, **told})
            if isinstance(action, Create) and result.ref is not None:
                made.append(result.ref)
            note_after(self.fleet.names, action)
            return result

        try:
            return await self._gate.run(request, effect, _facts)
        except asyncio.CancelledError:
            for ref in made:  # it was there already, and nobody was told
                await to_the_end(self._take_back(ref))
            raise
        finally:
            if isinstance(action, (Create, Update, Remove)) and _folder_of(action, request.target):
                await self._shares.refresh(*place_of(action))

    async def _take_back(self, ref: SandboxRef) -> None:
        """Remove what a create made that was cancelled after its last step; on record as a removal."""
        action = Remove(ref, force=True)
        backend = await self.fleet.use(ref.backend, ref.host)

        async def effect(permit: Permit, _: list[ResolvedSecret]) -> ActionResult:
            note_before(self.fleet.names, action)
            await backend.remove(permit, ref, force=True)
            note_after(self.fleet.names, action)
            return ActionResult(permit.audit_id, ref)

        with suppress(ConsoleError):  # the cancellation is what is told
            await self._gate.run(Request(action, ref.backend, None, Allow()), effect, _facts)

    async def _request(self, action: Action, consent: Consent) -> Request:
        """Find the target and decide. What goes wrong on the way is carried along, so that it gets its row too."""
        backend = place_of(action)[0]
        target: Sandbox | None = None
        snapshot: Snapshot | None = None
        try:
            if (ref := ref_of(action)) is not None:
                target = await self.inspect(ref)
            if isinstance(action, RestoreSnapshot):
                snapshot = await self.inside.snapshot(action.backend, action.host, action.snapshot)
            await self._check_spec(action, target)
            decision = await self.decide(action, target)
        except ConsoleError as error:
            return Request(action, backend, target, Deny(error.message, "request"), consent, error)
        except Exception as error:  # noqa: BLE001 - a bug of a backend's leaves its row like any other failure
            failure = BackendError(f"{backend} failed unexpectedly: {type(error).__name__}: {error}")
            return Request(action, backend, target, Deny(failure.message, "request"), consent, failure)
        return Request(action, backend, target, decision, consent, snapshot=snapshot)

    async def _check_spec(self, action: Action, target: Sandbox | None) -> None:
        if isinstance(action, (Create, Update)):
            problems = await self.problems(action.spec, *place_of(action))
            if target is not None and target.spec is None:  # what another tool chose is not ours to judge
                problems = differing(target, action.spec, problems)
            if problems:
                raise InvalidSpec(problems)
        if isinstance(action, (ChangeEgress, DenyEgress)) and (
            wrong := rule_problems(action, allow_ip=self.config.policy.egress_ip)
        ):
            raise InvalidSpec(wrong)
        if isinstance(action, (Rename, Fork, RestoreSnapshot)) and (off := check.name_problem(action.name)):
            raise InvalidSpec({"name": off})
        if isinstance(action, Forward):
            await self._check_forward(action, target)
        if isinstance(action, Exec) and (wrong := check.command_problems(action.argv, action.env, action.workdir)):
            raise InvalidSpec(wrong)

    async def _give_folder(self, request: Request) -> None:
        """Refuse folders that no guest may have any more; one that is given is known as a guest's before it is."""
        action, spec = request.action, None
        if isinstance(action, (Create, Update)):
            spec = action.spec
        elif request.target and isinstance(action, (Start, Restart, Fork)):
            spec = request.target.spec
        elif request.snapshot and isinstance(action, RestoreSnapshot):
            spec = SandboxSpec(action.name, workspace=request.snapshot.workspace or None)
        if spec is None:
            return
        if not isinstance(action, (Create, Update)) and (problems := await self._shares.problems(spec)):
            raise InvalidSpec(problems)
        if spec.workspace:
            await self._shares.remember(*place_of(action), spec.workspace)

    async def _check_forward(self, action: Forward, target: Sandbox | None) -> None:
        try:
            ports.parse(str(action.published))
        except ValueError as error:
            raise InvalidSpec({"port": str(error)}) from None
        if target is None or target.spec is None or not target.spec.egress:
            return
        asked = await self.fleet.use(target.ref.backend, target.ref.host)
        spec = structs.replace(target.spec, ports=(str(action.port),))  # the gateway's own is the guest's alone
        if why := (await asyncio.to_thread(asked.validate, spec)).get("ports"):
            raise InvalidSpec({"port": why})


async def _nothing(permit: Permit, _: list[ResolvedSecret]) -> ActionResult:
    return ActionResult(permit.audit_id)


def _lacking(target: Sandbox | None, secrets: Sequence[ResolvedSecret]) -> list[str]:
    """The secrets of a sandbox that is entered without them: they cannot be read here."""
    names = target.spec.secrets if target and target.spec else ()
    return [name for name in names if name not in {one.name for one in secrets}]


def _without(names: Sequence[str]) -> dict[str, list[str]]:
    return {"without_secrets": list(names)} if names else {}


def _folder_of(action: Action, target: Sandbox | None) -> str:
    spec = action.spec if isinstance(action, (Create, Update)) else target.spec if target else None
    return (spec.workspace if spec else None) or (target.spec.workspace if target and target.spec else None) or ""


def _facts(result: ActionResult) -> tuple[Outcome, Mapping[str, Any], str]:
    outcome = Outcome.TIMED_OUT if result.timed_out else Outcome.OK
    return outcome, result.details, str(result.ref) if result.ref else ""
