"""The sandboxes that MCP shows: this console's own that have the labels of ``[mcp]``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from sandbox_console import service
from sandbox_console.errors import BackendUnreachable, ConfigError, Denied, NotFound, UsageError
from sandbox_console.library import Console, SandboxHandle
from sandbox_console.model.access import access
from sandbox_console.model.action import Action, Create
from sandbox_console.model.actor import acting
from sandbox_console.model.check import name_problem
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox
from sandbox_console.service.reads.lookup import host_label
from sandbox_console.service.server_options import from_template, maker, with_labels

CALLER = "mcp.caller"
"""The label that names the caller who made a sandbox."""


class Visible:
    """Looks up names among the visible sandboxes, so that others do not seem to exist."""

    def __init__(self, opened: service.Console) -> None:
        self.opened = opened
        self.console = Console(opened)
        self.options = opened.config.mcp
        self._labels = _labels(self.options.labels)

    async def every(self) -> tuple[list[Sandbox], list[BackendHealth]]:
        """All visible sandboxes, without details, and the hosts that should answer and do not."""
        sandboxes, healths = await self.opened.names(self.options.backend.partition("/")[0])
        silent = [one for one in healths if one.state not in (HealthState.OK, HealthState.UNAVAILABLE)]
        return [one for one in sandboxes if one.managed and self._labels.items() <= one.labels.items()], silent

    async def find(self, name: str) -> Sandbox:
        """A sandbox by its name or full reference, without details.

        Raises NotFound, also for one that is not visible, and BackendUnreachable if a silent host may have it.
        """
        every, silent = await self.every()
        sandboxes = [sandbox for sandbox in every if name in (sandbox.name, str(sandbox.ref))]
        if len(sandboxes) > 1:
            raise UsageError("several sandboxes have that name", hint="use the ref that list gives")
        if sandboxes:
            return sandboxes[0]
        for health in silent if not access().labels else ():  # what it had may be somebody else's
            known = self.opened.fleet.names.of((health.backend, health.host))
            if known.holds(name.rpartition("/")[2]) or not known.answered_at:
                raise BackendUnreachable(f"{host_label(health)} does not answer: {health.reason}", hint=health.hint)
        raise NotFound("no sandbox that you may see has that name", hint="the tool list shows which there are")

    async def detailed(self, name: str) -> Sandbox:
        """A sandbox as ``find`` finds it, with its spec and its end. Raises the same."""
        return await self.opened.inspect((await self.find(name)).ref)

    def handle(self, sandbox: Sandbox) -> SandboxHandle:
        """The sandbox to act on, without consent, so actions that need a confirmation are refused."""
        return SandboxHandle(self.opened, sandbox.ref, sandbox.name, service.Consent())

    async def create(self, template: str, name: str) -> SandboxHandle:
        """Make a sandbox from an allowed template. Raises Denied (with a row), UsageError."""
        if template not in self.options.templates:
            raise UsageError("that template is not allowed", hint=f"allowed: {', '.join(self.options.templates)}")
        if wrong := name_problem(name):
            raise UsageError(f"name: {wrong}")
        labels = {**self._labels, CALLER: acting()}
        spec = with_labels(from_template(self.opened.config.templates, template, name), labels)
        own = [sandbox for sandbox in (await self.every())[0] if maker(sandbox.labels, CALLER) == acting()]
        if len(own) >= self.options.max_sandboxes:
            host = await self.opened.place_for(self.options.backend)
            denied = Denied(f"you have made {len(own)} sandboxes, the most allowed", rule="mcp.max_sandboxes")
            await self.refuse(Create(spec, *host), denied)
        return await self.console.create(spec, backend=self.options.backend)

    async def need_own(self, sandbox: Sandbox, action: Action) -> None:
        """Raise Denied, with a row, if the caller did not make the sandbox."""
        if maker(sandbox.labels, CALLER) != acting():
            await self.refuse(action, Denied("somebody else made it, so you may not remove it", rule="mcp.own"))

    async def refuse(self, action: Action, denied: Denied) -> NoReturn:
        """Record a refused action, and raise ``why``."""
        await self.opened.refuse(action, denied)

    async def summary(self, sandbox: Sandbox) -> Mapping[str, Any]:
        """A summary of a sandbox."""
        return {
            "name": sandbox.name, "ref": str(sandbox.ref), "status": str(sandbox.status), "image": sandbox.image,
            "labels": dict(sandbox.labels),
        }  # fmt: skip


def _labels(texts: Sequence[str]) -> dict[str, str]:
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            raise ConfigError(f"mcp.labels: {text!r} is not KEY=VALUE", hint='labels = ["team=web"]')
    return {key: value for key, _, value in (text.partition("=") for text in texts)}
