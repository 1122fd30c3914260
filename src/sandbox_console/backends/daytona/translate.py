"""Translates Daytona's sandboxes into the console's model, and a spec into what Daytona takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.daytona.client import Box
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "daytona"
_YEAR_9999 = 253_370_764_800.0
_UNTOLD = Exit(reason="Daytona does not tell how it ended")
_STARTING = ("creating", "restoring", "starting", "pending_build", "building_snapshot", "pulling_snapshot", "resuming")
_STATES = {
    "started": Status.RUNNING,
    "paused": Status.PAUSED,
    "stopped": Status.EXITED,
    "archived": Status.EXITED,
    "error": Status.FAILED,
    "build_failed": Status.FAILED,
    "stopping": Status.STOPPING,
    "pausing": Status.STOPPING,
    "archiving": Status.STOPPING,
    **dict.fromkeys(_STARTING, Status.STARTING),
}


def of_box(host: str, box: Box, entry: Entry | None) -> Sandbox:
    """A sandbox that the organization has, with what this console asked for."""
    spec = entry.spec if entry is not None else None
    status = _STATES.get(box.state, Status.UNKNOWN)
    ended = status is Status.EXITED
    return Sandbox(
        ref=SandboxRef(BACKEND, host, entry.id if entry is not None else box.id),
        name=spec.name if spec is not None else box.name or box.id,
        status=status,
        image=spec.image if spec is not None else box.snapshot or "",
        created_at=entry.created_at if entry is not None else _seconds(box.created_at),
        started_at=entry.started_at if entry is not None else _seconds(box.created_at),
        finished_at=_seconds(box.updated_at) if ended else None,
        exit=_UNTOLD if ended else None,
        labels=dict(spec.labels) if spec is not None else box.labels or {},
        managed=entry is not None,
        maker="" if entry is not None else "daytona",
        spec=spec,
        effective=tuple(_facts(box)),
        detail=(box.error_reason or "")[:300] or ("archived: a start takes longer" if box.state == "archived" else ""),
    )


def _facts(box: Box) -> list[Fact]:
    facts = [Fact("id", box.id, "as Daytona calls it"), Fact("snapshot", box.snapshot or "unknown")]
    if box.auto_destroy_at:
        facts.append(Fact("expires", box.auto_destroy_at, "Daytona removes it then"))
    if box.auto_stop_interval:
        facts.append(Fact("auto_stop", f"{box.auto_stop_interval:g} min", "Daytona stops it after this long idle"))
    if box.auto_delete_interval is not None and box.auto_delete_interval >= 0:
        facts.append(
            Fact("auto_delete", f"{box.auto_delete_interval:g} min", "Daytona removes it this long after a stop")
        )
    sizes = (("cpus", box.cpu, 1), ("memory_mib", box.memory, 1024), ("disk_mib", box.disk, 1024))
    facts += [
        Fact(name, "unknown" if value is None else f"{value * unit:g}", "set in the snapshot")
        for name, value, unit in sizes
    ]
    return [*facts, _egress(box)]


def _egress(box: Box) -> Fact:
    if box.network_block_all:
        return Fact("egress", "none")
    if allowed := [one for one in (box.network_allow_list, box.domain_allow_list) if one]:
        return Fact("egress", ",".join(allowed)[:300])
    if box.network_block_all is None:
        return Fact("egress", "unknown", "Daytona does not tell", enforced=False)
    return Fact("egress", "any host", "Daytona gives a sandbox a network unless asked not to", enforced=False)


def asked(spec: SandboxSpec, auto_stop_minutes: int) -> Mapping[str, Any]:
    """What Daytona is asked for: a sandbox without a network that stops after ``auto_stop_minutes`` idle."""
    return {
        "name": spec.name,
        "snapshot": spec.image,
        "env": dict(spec.env),
        "labels": {},
        "public": False,
        "networkBlockAll": True,
        "autoStopInterval": auto_stop_minutes,
    }


def _seconds(when: str | None) -> float | None:
    try:
        at = datetime.fromisoformat(when).timestamp() if when else -1.0
    except (ValueError, OverflowError):  # no time of this machine's calendar
        return None
    return at if 0 <= at < _YEAR_9999 else None
