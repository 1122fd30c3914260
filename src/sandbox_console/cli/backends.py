"""``backends``: each backend on each host, whether it answers, and what it can do or why it cannot."""

from __future__ import annotations

from typing import Any

from sandbox_console.cli.context import Context
from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import BackendHealth
from sandbox_console.service import Console

_HEAD = ("BACKEND", "STATE", "VERSION", "CAN", "WHY NOT")


async def backends(context: Context) -> int:
    """Print a row for each. With ``--json``, print an object whose ``capabilities`` has every ability by name."""
    rows: list[tuple[str, ...]] = []
    async with context.open() as console:
        for health in await console.health():
            known = await _known(console, health)
            if context.json:
                context.record(_record(health, known))
                continue
            name = health.backend if health.host == "local" else f"{health.backend}/{health.host}"
            can = f"{len(known.supported)} of {len(Capability)}" if known else "-"
            rows.append((name, str(health.state), health.version or "-", can, health.reason or "-"))
    if not context.json:
        context.table(_HEAD, rows)
    return 0


async def _known(console: Console, health: BackendHealth) -> Capabilities | None:
    """What it can do; None if it cannot be queried."""
    try:
        return await console.capabilities(health.backend, health.host) if health.ok else None
    except ConsoleError:
        return None


def _record(health: BackendHealth, known: Capabilities | None) -> dict[str, Any]:
    abilities = {
        str(one): {"supported": known.has(one), "reason": "" if known.has(one) else known.reason(one)}
        for one in Capability
    } if known else {}  # fmt: skip
    return {
        "backend": health.backend, "host": health.host, "state": str(health.state), "version": health.version,
        "reason": health.reason, "hint": health.hint, "capabilities": abilities,
    }  # fmt: skip
