"""The sandboxes that the shim shows: those of one host, each with its generation."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from msgspec import structs

from sandbox_console import service
from sandbox_console.errors import BackendUnreachable, Conflict, Unsupported
from sandbox_console.library import Console, SandboxHandle, SandboxSpec
from sandbox_console.model.access import access
from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import RestoreSnapshot
from sandbox_console.model.sandbox import HealthState, Sandbox, SandboxRef
from sandbox_console.servers.a3s_box.generations import Generations
from sandbox_console.servers.a3s_box.protocol import Create, Identity
from sandbox_console.service.server_options import from_template, with_labels

_IDLE = ("sleep", "2147483647")


class Boxes:
    """The sandboxes of the host that ``[a3s_box]`` names."""

    def __init__(self, opened: service.Console) -> None:
        self.opened = opened
        self.console = Console(opened)
        self.options = opened.config.a3s_box
        self.generations = Generations(opened.audit_log.path.parents[1] / "a3s-box")

    async def place(self) -> tuple[str, str]:
        """The backend and the host."""
        return await self.opened.place_for(self.options.backend)

    async def every(self) -> Sequence[Sandbox]:
        """All sandboxes. Raises BackendUnreachable if their host is silent."""
        backend, host = await self.place()
        rows, healths = await self.console.list(backend)
        for health in healths:
            if health.host == host and health.state is not HealthState.OK:
                raise BackendUnreachable(f"{backend} does not answer: {health.reason}", hint=health.hint)
        return [row for row in rows if row.ref.host == host]

    async def find(self, id_: str) -> Sandbox:
        """One by its id. Raises NotFound."""
        return await self.opened.inspect(SandboxRef(*await self.place(), id_))

    async def fenced(self, asked: Identity) -> tuple[Sandbox, SandboxHandle]:
        """The sandbox to act on. Raises NotFound, and Conflict if its generation is another by now."""
        found = await self.find(asked.sandbox_id)
        number = self.generations.of(found).number
        if number != asked.generation:
            text = f"sandbox {asked.sandbox_id} generation changed from {asked.generation} to {number}"
            raise Conflict(text, hint="connect to it again")
        return found, self.handle(found)

    def handle(self, found: Sandbox) -> SandboxHandle:
        """A sandbox to act on, without consent, so that what needs a confirmation is refused."""
        return SandboxHandle(self.opened, found.ref, found.name, service.Consent())

    async def create(self, asked: Create) -> SandboxHandle:
        """Make and start a sandbox, or make one that starts with its first command. Raises a ConsoleError."""
        refuse_unknown(asked)
        name = asked.name or f"a3s-{secrets.token_hex(6)}"
        if asked.filesystem_snapshot_id:
            action = RestoreSnapshot(*await self.place(), asked.filesystem_snapshot_id, name)
            result = await self.console.perform(action).result()
            assert result.ref is not None  # noqa: S101 - a restore that ended well has made one
            return SandboxHandle(self.opened, result.ref, name, service.Consent())
        return await self.console.create(await self._spec(asked, name), backend=self.options.backend)

    async def _spec(self, asked: Create, name: str) -> SandboxSpec:
        spec = from_template(self.opened.config.templates, self.options.template, name)
        spec = with_labels(spec, {**asked.labels, **access().labels})
        able = await self.opened.capabilities(*await self.place())
        words = (*(asked.entrypoint or ()), *(asked.command or ()))
        lived = asked.timeout_seconds if able.has(Capability.MAX_DURATION) else None
        return structs.replace(
            spec, image=spec.image or asked.image, command=words or spec.command or _IDLE,
            env={**spec.env, **asked.env}, workdir=asked.workdir or spec.workdir, user=asked.user or spec.user,
            cpus=asked.cpus or spec.cpus, memory_mib=asked.memory_mb or spec.memory_mib,
            workspace=asked.workspace or spec.workspace, read_only_root=asked.read_only or spec.read_only_root,
            egress=() if asked.network.get("mode") == "none" else spec.egress,
            ports=(*spec.ports, *(f"{one.get('host_port', 0)}:{one.get('guest_port', 0)}" for one in asked.ports)),
            max_duration_s=spec.max_duration_s or lived,
        )  # fmt: skip


def refuse_unknown(asked: Create) -> None:
    """Raise Unsupported for what no sandbox of the console can have."""
    for field in ("mounts", "tmpfs", "dns", "host_aliases", "hostname"):
        if getattr(asked, field):
            raise Unsupported(f"{field} is not taken here", hint="the template of [a3s_box] decides what one has")
    if asked.network.get("mode") == "bridge":
        raise Unsupported("there are no networks between sandboxes here", hint="egress of a template opens hosts")
