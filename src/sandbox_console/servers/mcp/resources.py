"""The resources: specs, logs and rows of the audit log of the visible sandboxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox_console.model.audit import AuditQuery
from sandbox_console.servers.mcp.sandboxes import Visible
from sandbox_console.servers.mcp.text import cleaned, untrusted
from sandbox_console.servers.mcp.tools import Tools

_ROWS = 50
_LINES = 200


class Resources:
    """The resources. Each exists if the tool that reports the same data is allowed."""

    def __init__(self, visible: Visible, tools: Tools) -> None:
        self._visible, self._tools = visible, tools

    def allowed(self) -> dict[str, Callable[..., Any]]:
        """The address of each allowed resource, and the function that reads it."""
        every = {
            "inspect": ("sandbox://{name}/spec", self.spec),
            "logs": ("sandbox://{name}/logs", self.logs),
            "why": ("sandbox://{name}/audit", self.audit),
        }
        return dict(found for tool, found in every.items() if tool in self._visible.options.allow)

    async def spec(self, name: str) -> str:
        """The spec of a sandbox, and which parts of it are enforced."""
        return untrusted(cleaned(await self._tools.described(await self._visible.detailed(name))))

    async def logs(self, name: str) -> str:
        """The end of the output of a sandbox's main process."""
        return untrusted({"log": await self._tools.log_of(await self._visible.find(name), _LINES)})

    async def audit(self, name: str) -> str:
        """The actions on a sandbox, by whom, and with what outcome; newest first."""
        sandbox = await self._visible.find(name)
        entries = await self._visible.opened.history(AuditQuery(limit=_ROWS, target=str(sandbox.ref)))
        rows = [
            {
                "id": entry.attempt.seq, "at": entry.attempt.at_ns / 1e9, "actor": entry.attempt.actor,
                "action": entry.attempt.action, "outcome": entry.outcome,
            }
            for entry in entries
        ]  # fmt: skip
        return untrusted({"rows": cleaned(rows)})
