"""The tools. Their descriptions are fixed texts, which nothing from a sandbox gets into."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field

from sandbox_console.errors import Denied, NotFound, UsageError
from sandbox_console.model.action import ChangeEgress, Remove
from sandbox_console.model.actor import acting
from sandbox_console.model.egress import REASONS, EgressRule
from sandbox_console.model.egress_rules import rule_problems
from sandbox_console.model.log import LogRecord
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.servers.mcp.sandboxes import Visible
from sandbox_console.servers.mcp.text import cleaned, lines, untrusted
from sandbox_console.service import has_gateway
from sandbox_console.service.incident.cause import judge
from sandbox_console.service.reads.host_requests import RULE
from sandbox_console.service.reads.lookup import host_label

Name = Annotated[str, Field(description="a sandbox's name or ref, as list gives it", max_length=256)]
Path = Annotated[str, Field(description="an absolute path in the sandbox", max_length=4096)]

Command = Annotated[list[str], Field(description="a program and its arguments; no shell", min_length=1)]

_MOST_LINES = 1000


class Tools:
    """All tools, by their names in ``[mcp] allow``."""

    def __init__(self, visible: Visible) -> None:
        self._visible = visible
        self._most = visible.options.max_output_kib * 1024

    def allowed(self) -> dict[str, Callable[..., Any]]:
        """The tools of ``[mcp] allow``."""
        return {name: getattr(self, name) for name in dict.fromkeys(self._visible.options.allow)}

    async def list(self) -> str:
        """List the sandboxes that you may see, with their status and image."""
        sandboxes, silent = await self._visible.every()
        data: dict[str, Any] = {"sandboxes": [await self._visible.summary(sandbox) for sandbox in sandboxes]}
        if silent:
            data["not_answering"] = [{"backend": host_label(health), "why": health.reason} for health in silent]
        return untrusted(cleaned(data))

    async def inspect(self, name: Name) -> str:
        """Show one sandbox: its spec, and which parts of it are enforced."""
        return untrusted(cleaned(await self.described(await self._visible.detailed(name))))

    async def described(self, sandbox: Sandbox) -> dict[str, Any]:
        """A sandbox with its spec, but only the names of variables."""
        spec = sandbox.spec.to_dict() if sandbox.spec else {}
        if "env" in spec:
            spec["env"] = sorted(spec["env"])
        facts = [{"field": fact.field, "value": fact.value} for fact in sandbox.effective]
        return {**await self._visible.summary(sandbox), "spec": spec, "effective": facts}

    async def logs(
        self,
        name: Name,
        tail: Annotated[int, Field(description="how many of the last lines", ge=1, le=_MOST_LINES)] = 100,
    ) -> str:
        """Read the end of the output of a sandbox's main process."""
        return untrusted({"log": await self.log_of(await self._visible.find(name), tail)})

    async def log_of(self, sandbox: Sandbox, tail: int) -> str:
        """The last lines of a log, capped."""
        kept = bytearray()
        async with aclosing(self._visible.handle(sandbox).logs(tail=tail)) as items:  # type: ignore[type-var]
            async for item in items:
                kept += item.data if isinstance(item, LogRecord) else b"[output was lost here]\n"
                del kept[: max(0, len(kept) - 4 * self._most)]
        return lines(bytes(kept), self._most)

    async def why(self, name: Name) -> str:
        """Tell why a sandbox ended: its exit, signal or limit, and who stopped it."""
        sandbox = await self._visible.detailed(name)
        judged = await judge(self._visible.opened, sandbox)
        data: dict[str, Any] = {"status": str(sandbox.status), "why": "it has not ended", "evidence": []}
        if judged is not None:
            data |= {"why": judged.headline, "evidence": list(judged.evidence), "sure": judged.sure}
        return untrusted(cleaned(data))

    async def denied(
        self,
        name: Name,
        host: Annotated[str, Field(description="a host name", max_length=255)],
        port: Annotated[int, Field(ge=1, le=65535)] = 443,
    ) -> str:
        """Tell whether a sandbox may reach a host, by which rule, and if not, why. No connection is made."""
        sandbox = await self._visible.find(name)
        decision, rule = await self._visible.opened.egress.explain(sandbox.ref, host, port)
        data = {
            "host": host, "port": port, "allowed": decision.allowed, "rule": rule.pattern if rule else "",
            "why": "" if decision.allowed else REASONS.get(decision.reason, decision.reason), "hint": decision.hint,
        }  # fmt: skip
        return untrusted(cleaned(data))

    async def create(
        self,
        template: Annotated[str, Field(description="one of the allowed templates", max_length=128)],
        name: Annotated[str, Field(description="what to call it", max_length=63)],
    ) -> str:
        """Make a sandbox from a template and start it. The template decides everything; you only choose the name."""
        handle = await self._visible.create(template, name)
        return untrusted({"name": handle.name, "ref": str(handle.ref)})

    async def exec(
        self,
        name: Name,
        command: Command,
        timeout_s: Annotated[float, Field(gt=0, le=86400)] = 60.0,
    ) -> str:
        """Run a command in a sandbox to its end. Exit code 124 means that it timed out."""
        handle = self._visible.handle(await self._visible.find(name))
        done = await handle.exec(command, timeout_s=min(timeout_s, self._visible.options.max_timeout_s))
        data = {"stdout": lines(done.stdout, self._most), "stderr": lines(done.stderr, self._most)}
        return untrusted({"exit_code": done.exit_code, "timed_out": done.timed_out, **data})

    async def read_file(self, name: Name, path: Path) -> str:
        """Read a file of a sandbox, as text, or as base64 if it is not text."""
        data = await self._visible.handle(await self._visible.find(name)).read_file(path, max_bytes=self._most)
        try:
            return untrusted({"path": cleaned(path), "text": lines(data.decode(), self._most)})
        except UnicodeDecodeError:
            return untrusted({"path": cleaned(path), "base64": base64.b64encode(data).decode()})

    async def write_file(
        self,
        name: Name,
        path: Path,
        content: Annotated[str, Field(description="all of it, as text", max_length=1 << 20)],
    ) -> str:
        """Write a text file in a sandbox. An existing file is replaced; missing parent folders are made."""
        handle = self._visible.handle(await self._visible.find(name))
        await handle.write_file(path, content)
        return untrusted({"path": cleaned(path), "bytes": len(content.encode())})

    async def ask_host(
        self, name: Name, host: Annotated[str, Field(description="a host, host:port or *.suffix", max_length=255)]
    ) -> str:
        """Ask the operator to let a sandbox reach a host. Nothing is opened until a person agrees."""
        sandbox = await self._visible.detailed(name)
        asks = ChangeEgress(sandbox.ref, add=(EgressRule(host, source="asked"),))
        if wrong := rule_problems(asks, allow_ip=False):
            raise UsageError(f"host: {wrong['egress']}")
        if not has_gateway(sandbox):
            raise UsageError("it was made without egress: nobody can open it", hint="its template needs a host")
        try:
            await self._visible.refuse(asks, Denied(f"asked for by {acting()}: a person has to allow it", rule=RULE))
        except Denied as denied:
            if denied.rule != RULE:
                raise
            row = denied.audit_id
        return untrusted({"asked": cleaned(host), "audit_id": row, "answer": "the operator's, whose inbox shows it"})

    async def remove(self, name: Name) -> str:
        """Remove a sandbox that you made, with everything in it."""
        sandbox = await self._visible.find(name)
        await self._visible.need_own(sandbox, Remove(sandbox.ref, force=True))
        try:
            await self._visible.handle(sandbox).remove(force=True)
        except NotFound:
            raise UsageError("it was already removed") from None
        return untrusted({"removed": cleaned(sandbox.name)})
