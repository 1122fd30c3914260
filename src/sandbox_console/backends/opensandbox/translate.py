"""Translates the server's sandboxes into the console's model, and a spec into what the server takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.opensandbox.client import Box
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "opensandbox"
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""The value of a label, which the server keeps a name as."""
NAMED = "name"
_CODE = re.compile(r"exited with code ([0-9]{1,9})")
POOL = "pool:"
"""An image that begins so is a pool of the server."""
SHORTEST_S = 60
"""The shortest life that the server takes."""
_YEAR_9999 = 253_370_764_800.0
_IDLE = ("tail", "-f", "/dev/null")
_STATES = {
    "Running": Status.RUNNING,
    "Paused": Status.PAUSED,
    "Pending": Status.STARTING,
    "Pausing": Status.STOPPING,
    "Resuming": Status.STARTING,
    "Stopping": Status.STOPPING,
    "Terminated": Status.EXITED,
}


def of_box(host: str, box: Box, entry: Entry | None) -> Sandbox:
    """A sandbox that the server has, with what this console asked for."""
    spec = entry.spec if entry is not None else None
    status, code = _STATES.get(box.status.state, Status.UNKNOWN), _CODE.search(box.status.message)
    if box.status.state == "Failed":
        status = Status.EXITED if code else Status.FAILED
    exited = status is Status.EXITED
    changed = seconds(box.status.last_transition_at)
    metadata = box.metadata or {}
    return Sandbox(
        ref=SandboxRef(BACKEND, host, entry.id if entry is not None else box.id),
        name=spec.name if spec is not None else metadata.get(NAMED) or box.id,
        status=status,
        image=spec.image if spec is not None else box.image.uri if box.image is not None else "",
        created_at=entry.created_at if entry is not None else seconds(box.created_at),
        started_at=entry.started_at if entry is not None else seconds(box.created_at),
        finished_at=changed if exited else None,
        exit=Exit(int(code[1]) if code else 0) if exited else None,
        labels=dict(spec.labels) if spec is not None else metadata,
        managed=entry is not None,
        maker="" if entry is not None else "opensandbox",
        spec=spec,
        effective=tuple(_facts(box, spec)),
        detail="" if status in (Status.RUNNING, Status.PAUSED) else box.status.message[:300],
    )


def _facts(box: Box, spec: SandboxSpec | None) -> list[Fact]:
    facts = [Fact("id", box.id, "as the server calls it")]
    if box.expires_at is not None:
        facts.append(Fact("expires", box.expires_at.isoformat(), "the server removes it then"))
    if spec is None:
        untold = "an OpenSandbox server does not tell"
        return [*facts, *(Fact(name, "unknown", untold, enforced=False) for name in ("cpus", "memory_mib", "egress"))]
    facts += [Fact("cpus", f"{spec.cpus:g}")] if spec.cpus is not None else []
    facts += [Fact("memory_mib", str(spec.memory_mib))] if spec.memory_mib is not None else []
    return facts


def asked(spec: SandboxSpec, *, no_network: bool) -> Mapping[str, Any]:
    """What the server is asked for. It requires limits, so those that are not asked for are left empty."""
    limits = {
        "cpu": None if spec.cpus is None else f"{round(spec.cpus * 1000)}m",
        "memory": None if spec.memory_mib is None else f"{spec.memory_mib}Mi",
    }
    pool = spec.image.removeprefix(POOL) if spec.image.startswith(POOL) else ""
    found = {
        "image": None if pool else {"uri": spec.image},
        "extensions": {"poolRef": pool} if pool else None,
        "entrypoint": list(spec.command or _IDLE),
        "env": dict(spec.env) or None,
        "timeout": None if spec.max_duration_s is None else math.ceil(spec.max_duration_s),
        "resourceLimits": {name: value for name, value in limits.items() if value is not None},
        "metadata": {NAMED: spec.name},
        "networkPolicy": None if no_network else {"defaultAction": "deny", "egress": []},
    }
    return {name: value for name, value in found.items() if value is not None}


def seconds(when: datetime | None) -> float | None:
    """A time of the server's; None for one that is not of this machine's calendar."""
    try:
        at = when.timestamp() if when is not None else -1.0
    except (ValueError, OverflowError):  # no time of this machine's calendar
        return None
    return at if 0 <= at < _YEAR_9999 else None
