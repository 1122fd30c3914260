"""``sandbox-console mcp``: serves one caller, who started it, on standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from sandbox_console.errors import Unsupported
from sandbox_console.service import open_console


def need_package() -> None:
    """Raise Unsupported if the protocol's package is not installed."""
    try:
        import mcp.server.mcpserver  # noqa: F401
    except ImportError:
        hint = "pip install 'sandbox-console-tui[mcp]'"
        raise Unsupported("MCP is not served: the package mcp is not installed", hint=hint) from None


def serve_stdio(config: Path | None, backend: str, hosts: Sequence[str] = (), *, read_only: bool) -> int:
    """Serve until the input ends or a signal arrives. Returns the exit code. Raises Unsupported, ConfigError."""
    need_package()
    return asyncio.run(_run(config, backend, hosts, read_only=read_only))


async def _run(config: Path | None, backend: str, hosts: Sequence[str], *, read_only: bool) -> int:
    from sandbox_console.servers.mcp.server import make
    from sandbox_console.web.run import stop_signal

    stopped = asyncio.ensure_future(stop_signal().wait())
    opening = open_console(config_file=config, read_only=read_only, only_backend=backend, only_hosts=hosts)
    async with opening as console:
        actor = f"mcp:{console.audit_log.actor.partition(':')[2] or console.audit_log.actor}"
        serving = asyncio.ensure_future(make(console, lambda _: actor).run_stdio_async())
        await asyncio.wait([stopped, serving], return_when=asyncio.FIRST_COMPLETED)
        for one in (stopped, serving):
            one.cancel()
        await asyncio.gather(stopped, serving, return_exceptions=True)
    return 0
