"""The console: everything that a face can do, over every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from msgspec import structs

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.access import access
from sandbox_console.model.action import (
    Action,
    ChangeEgress,
    DenyEgress,
    EndShell,
    Exec,
    OpenShell,
    Quarantine,
    Release,
    Update,
)
from sandbox_console.model.audit import AuditEntry, AuditQuery, Verification
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.egress_advice import advice
from sandbox_console.model.event import Changed
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.secret import Secret
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Decision
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.admission import Admission
from sandbox_console.service.config import Config
from sandbox_console.service.config_reload import LIVE, ConfigReload
from sandbox_console.service.effects.change_plan import Plan, masked, plan_for, within_bounds
from sandbox_console.service.effects.secret_definition import SecretDefinitions
from sandbox_console.service.fleet_reads import FleetReads
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.gate import Consent, Gate
from sandbox_console.service.gate.local_change import refuse_files
from sandbox_console.service.gate.operation import ActionResult, ExecIO, Operation, OwnedTasks
from sandbox_console.service.gate.quarantine_store import Holds
from sandbox_console.service.gate.shipper import Shipper
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.performer import Performer
from sandbox_console.service.reads import shared_folders
from sandbox_console.service.reads.denials import DenialFeed
from sandbox_console.service.reads.drift import Drifts
from sandbox_console.service.reads.egress import Outbound
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.folder_guard import FolderGuard, OwnFolders
from sandbox_console.service.reads.host_requests import HostRequests
from sandbox_console.service.reads.hub import Hub, Subscription
from sandbox_console.service.reads.inspection import Inspection
from sandbox_console.service.reads.live_logs import LiveLogs
from sandbox_console.service.reads.losses import Losses, LossReader
from sandbox_console.service.reads.masking import Masking
from sandbox_console.service.reads.name_changes import recorded
from sandbox_console.service.reads.placement import emptiest
from sandbox_console.service.reads.recordings import Recordings
from sandbox_console.service.reads.retained_logs import Retained
from sandbox_console.service.reads.secrets import Secrets
from sandbox_console.service.reads.visible_records import VisibleRecords
from sandbox_console.service.reads.watcher import Watcher
from sandbox_console.service.sessions.kept_shells import KeptShells
from sandbox_console.service.sessions.lost_recreations import LostRecreations
from sandbox_console.service.sessions.lost_shells import LostShells
from sandbox_console.service.sessions.open_sessions import OpenSessions
from sandbox_console.service.sessions.shell import ShellSession
from sandbox_console.service.sessions.shell_records import ShellRecords
from sandbox_console.service.templates import Templates


class Console(FleetReads):
    """One console. It is made, and closed, by :func:`sandbox_console.service.open_console`.

    Reads go straight to the backends; every change goes through the gate. The console owns what it started. Closing a
    view ends nothing; closing the console cancels what is in flight and records that.
    """

    def __init__(
        self, config: Config, fleet: Fleet, audit_log: AuditLog, hub: Hub, own: OwnFolders | None = None,
        secrets: Mapping[str, Secret] | None = None, options: Sequence[str] = (), templates: Path | None = None,
    ) -> None:  # fmt: skip
        """``options`` are those of the command line by which another process finds the same configuration.

        ``templates`` is the folder of templates, by default one beside the state.
        """
        self.config, self.audit_log = config, audit_log
        fleet.remember = recorded(audit_log)
        state, kept = audit_log.path.parents[1], config.logs
        audit_log.guest_folders = lambda: shared_folders.everywhere(state).ground()
        self._vault = Vault(config.secrets, audit_log.guest_folders, secrets)
        recreations = LostRecreations(state / "recreations", fleet, audit_log, self._vault, lambda: self.read_only)
        self.records = records = VisibleRecords(fleet, audit_log)
        self.retained = Retained(state / "logs", kept.retain_mib << 20, kept.retain_each_mib << 20, records)
        logs = LiveLogs(fleet, self._vault, self.retained if kept.retain else None)
        super().__init__(fleet, hub, Masking(self._vault), recreations, logs, config.tui.stats_interval_s)
        self._vault.on_new = self.mask_again
        self._watcher = Watcher(fleet, hub.publish, self.masking)
        self.inside = Inspection(fleet, self._vault)
        self.denials = DenialFeed(fleet, hub, self._watcher.start, self._vault)
        self._asks = HostRequests(audit_log, hub, self.denials.ask)
        self.egress = Outbound(fleet, self.denials, self._asks, self._vault, audit_log)
        self._wire_records(state, templates or state.parent / "templates")
        self._wire_actions(state, own or OwnFolders(state), options)
        self._work = OwnedTasks(fleet.need_open)
        self.reload: ConfigReload | None = None

    def _wire_records(self, state: Path, templates: Path) -> None:
        """Make what reads and keeps the console's own files: secrets, templates, recordings, rows of the log."""
        config, fleet, audit_log = self.config, self.fleet, self.audit_log
        self.drifts = Drifts(audit_log)
        self.secrets = Secrets(self._vault, fleet, state, self._look, self.ground)
        self.definitions = SecretDefinitions(self._vault, audit_log, lambda: self.config.policy)
        self.templates = Templates(templates, lambda: self.config, self.secrets, audit_log)
        self.shipper = Shipper(audit_log)
        self.recordings = Recordings(
            state / "recordings",
            config.recording,
            lambda: self.config.policy,
            audit_log,
            self._vault.redactor,
            self.records,
        )

    def _wire_actions(self, state: Path, own: OwnFolders, options: Sequence[str]) -> None:
        """Make what carries actions out, and what looks after the shells and replacements that they begin."""
        config, fleet, audit_log = self.config, self.fleet, self.audit_log
        self._shares = FolderGuard(fleet, own)
        self._gate = gate = Gate(audit_log, self._vault, self.hub.publish, config.policy)
        self.holds = Holds(state / "quarantine")
        fleet.holds = self.holds
        self._admission = Admission(
            fleet, self.inside, self._vault, self._shares, config.policy, self.holds, self.masking
        )
        records = ShellRecords(state / "shells")
        self._lost = LostShells(records, fleet, audit_log, self._vault, self.recordings, options)
        self.kept_shells = KeptShells(records, config.shell, self._lost, audit_log.actor, options, self.records)
        self.sessions = OpenSessions(self.holds, self.kept_shells.end_all, self.records.may_enter)
        self._performer = Performer(
            self._admission, gate, fleet, audit_log, self._vault, self._shares, self.recordings, self.holds,
            self._lost, self.kept_shells, self.sessions.end, self.recreations,
        )  # fmt: skip

    # Watching, the configuration and the records

    @property
    def read_only(self) -> bool:
        """Whether the policy, or the role of whoever asks, forbids every change."""
        return self.config.policy.read_only or access().role == "viewer"

    async def ground(self) -> GuestFolders:
        """The folders of this machine that guests can change, for a caller that opens files here: see ``hostfs``.

        A backend that does not answer costs a second. Raises ConfigError if the console's own state belongs to a guest,
        and Denied, with a row, for people other than admins: the files belong to whoever runs the console.
        """
        if access().role != "admin":
            await refuse_files(self.audit_log)
        return await self._shares.ground()

    async def passing_ground(self) -> GuestFolders:
        """Like `ground`, for files on their way between a browser and a sandbox: they belong to the person.

        Where they are on this machine is not the person's choice, so no role is needed. The transfer itself is an
        action, which roles and labels decide.
        """
        return await self._shares.ground()

    def connect_few(self) -> None:
        """Begin to watch the first hosts, before :meth:`watch` begins with all."""
        self._watcher.start(few=True)

    def watch(self) -> Subscription:
        """Subscribe to everything that changes, beginning with the current state. Close it when done."""
        self.denials.start()
        self._asks.start()
        if self.reload is not None:
            self.reload.start()
        return self.hub.subscribe()

    def follow_config(self, path: Path, load: Callable[[], Config]) -> None:
        """Read the configuration again when the file changes, once somebody watches. ``load`` raises ConfigError."""
        self.reload = ConfigReload(path, load, self.config, self._adopt, self.hub.publish)
        self.definitions.follows = self.reload

    def _adopt(self, config: Config) -> None:
        """Use the parts of a configuration that apply at once."""
        self.config = structs.replace(self.config, **{name: getattr(config, name) for name in LIVE})
        self._vault.adopt(config.secrets)
        self._gate.rules = self._admission.policy = config.policy

    async def channel_secret(self, name: str) -> str:
        """The value of a secret that a channel of ``[alerts]`` names. Raises SecretError, or UsageError for another."""
        if all(name not in channel.secrets for channel in self.config.alerts.channels.values()):
            raise UsageError(f"no alert channel uses the secret {name!r}")
        [found] = await self._vault.resolve([name])
        return found.value

    async def backend_key(self, name: str) -> str:
        """The value of a secret that a backend's table names as the key of a server. Raises SecretError."""
        [found] = await self._vault.resolve([name])
        return found.value

    def mask_key(self, value: str) -> None:
        """Hide a backend's key that is no secret of the configuration in all output."""
        self._vault.mask([value])

    async def history(self, query: AuditQuery) -> Sequence[AuditEntry]:
        """Recorded actions, newest first, as far as whoever asks may see their sandboxes."""
        return await self.records.history(query)

    async def audit_entry(self, seq: int) -> AuditEntry:
        """One recorded action. Raises NotFound."""
        return await self.records.entry(seq)

    async def verify(self) -> Verification:
        """Verify the chain of the audit log."""
        return await self.audit_log.verify()

    # Before a change

    async def targets(self) -> Sequence[tuple[str, str]]:
        """Where a sandbox can currently be made: (backend, host), the default first."""
        known = list(self.hub.health.values()) if self._watcher.running else await self.health()
        healthy = [(health.backend, health.host) for health in known if health.ok]
        return sorted(healthy, key=lambda key: key[0] != self.config.backend)

    async def place_for(self, backend: str = "") -> tuple[str, str]:
        """Where to make a sandbox: (backend, host). See ``Fleet.choose``."""
        return await self.fleet.choose(backend, self.config.backend)

    def fewest_running(self, places: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """Which of these hosts has the fewest running sandboxes and room, by what is watched. Raises NoRoom."""
        running = dict.fromkeys(places, 0)
        for sandbox in self.hub.sandboxes.values():
            key = (sandbox.ref.backend, sandbox.ref.host)
            if key in running and sandbox.status.live:
                running[key] += 1
        return emptiest(running, self.fleet.tables.of)

    async def problems(self, spec: SandboxSpec, backend: str, host: str) -> Mapping[str, str]:
        """What is wrong with a spec, by field, for this backend; empty when nothing is."""
        return await self._admission.problems(spec, backend, host)

    async def plan(self, sandbox: Sandbox, spec: SandboxSpec) -> Plan:
        """Which changes lead from a sandbox's spec to another, and how each is made. Known secrets are masked."""
        await self.masking.ready()
        sandbox = self.masking.original(sandbox)
        spec = self.masking.restored(spec, sandbox)
        capabilities = await self.capabilities(sandbox.ref.backend, sandbox.ref.host)
        plan = plan_for(sandbox, spec, capabilities, self._vault.injects(capabilities))
        backend = await self.fleet.use(sandbox.ref.backend, sandbox.ref.host)
        plan = await within_bounds(plan, backend, sandbox, spec)
        notes = tuple(self.notes(spec, sandbox.ref.backend, sandbox.ref.host))
        return masked(structs.replace(plan, notes=notes), self.secrets.masked, self.masking.ends)

    def notes(self, spec: SandboxSpec, backend: str, host: str) -> Sequence[str]:
        """Warnings about a spec: secrets that nothing restricts to their hosts, and egress that is too wide."""
        return [*self.secrets.notes(spec, backend, host), *advice(spec.egress)]

    async def losses(self, sandbox: Sandbox) -> Losses:
        """What would be lost now if a sandbox was recreated."""
        return await LossReader(self.inside, self.sessions.count, self.kept_shells.of).read(sandbox)

    async def decide(self, action: Action, target: Sandbox | None = None) -> Decision:
        """What the policy says about an action, without doing it."""
        return await self._admission.decide(action, target)

    # Changes

    def give_secret(self, name: str, secret: Secret) -> None:
        """Add a secret by value, for as long as this console is open. Raises SecretError, Conflict."""
        self._vault.give(name, secret)

    def perform(self, action: Action, *, consent: Consent = Consent(), io: ExecIO | None = None) -> Operation:  # noqa: B008 - frozen
        """Carry an action out. The operation's result raises what went wrong, with the row's id."""
        operation = Operation(action)
        operation.run(self._work.begin(self._perform(action, consent, io or ExecIO(), operation)))
        self.sessions.note(operation)
        return operation

    async def _perform(self, action: Action, consent: Consent, io: ExecIO, operation: Operation) -> ActionResult:
        try:
            return await self._performer.perform(action, consent, io, operation)
        finally:
            if isinstance(action, Quarantine | Release) and (found := self.hub.sandboxes.get(action.ref)) is not None:
                self.hub.publish(Changed(self.holds.marked(found)))
            if isinstance(action, ChangeEgress | DenyEgress | Update) and action.ref in self.hub.sandboxes:
                with suppress(ConsoleError):  # no backend reports a change of rules, or of what was asked for
                    self.hub.publish(Changed(await self.inspect(action.ref)))

    async def refuse(self, action: Action, reason: ConsoleError) -> NoReturn:
        """Record an action that a server does not allow its caller, and raise ``reason`` with the row's id.

        A Denied in ``reason`` makes the row say denied. Raises AuditUnavailable if no row can be written.
        """
        await self._performer.refuse(action, reason)
        raise reason

    async def sentence(self, text: str) -> str:
        """What somebody writes, as it may be kept: without values of secrets (docs/secrets.md)."""
        return await self._gate.sentence(text)

    async def shell(self, request: OpenShell, *, consent: Consent = Consent()) -> ShellSession:  # noqa: B008 - frozen
        """Open a shell through the gate; its end is noted when it is closed."""
        return await self._work.begin(self._shell(request, consent))

    async def end_lost_shells(self) -> int:
        """End shells whose console was killed, and note their ends. Returns how many; looks once for each console."""
        return 0 if self.read_only else await shielded(self._lost.look())

    async def _shell(self, request: OpenShell, consent: Consent) -> ShellSession:
        if not self.read_only:
            self._lost.look()
        session = await self._performer.shell(request, consent)
        self.sessions.add(session)
        return session

    async def end_shell(self, action: EndShell, *, consent: Consent = Consent()) -> ActionResult:  # noqa: B008 - frozen
        """End a kept shell through the gate; returns once its end is on record."""
        return await self._work.begin(self._performer.end_shell(action, consent))

    async def close(self) -> None:
        """Cancel what is in flight (each action is recorded as cancelled), end the shells and close the backends."""
        await self._work.cancel()
        await self.sessions.close()
        await self._lost.close()
        await self.recreations.close()
        if self.reload is not None:
            await self.reload.close()
        await self.close_stats()
        await self._watcher.close()
        await self._asks.close()
        await self.denials.close()
        await self.shipper.close()
        try:
            await self.fleet.close()
        finally:
            await self.audit_log.close()

    async def _look(self, action: Exec, io: ExecIO) -> ActionResult:
        """Run a command whose output is not shown, and therefore not masked. The scan for leaks uses it."""
        return await self._performer.perform(action, Consent(), io, Operation(action), Redactor())
