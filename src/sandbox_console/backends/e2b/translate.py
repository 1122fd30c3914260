"""Translates E2B's sandboxes into the console's model, and a spec into what E2B takes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import UNSET

from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.e2b.client import Box
from sandbox_console.model.sandbox import Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "e2b"
NAMED = "name"
_YEAR_9999 = 253_370_764_800.0
_STATES = {"running": Status.RUNNING, "paused": Status.PAUSED}


def of_box(host: str, box: Box, entry: Entry | None) -> Sandbox:
    """A sandbox that the account has, with what this console asked for."""
    spec = entry.spec if entry is not None else None
    metadata = box.metadata or {}
    return Sandbox(
        ref=SandboxRef(BACKEND, host, entry.id if entry is not None else box.sandbox_id),
        name=spec.name if spec is not None else metadata.get(NAMED) or box.sandbox_id,
        status=_STATES.get(box.state, Status.UNKNOWN),
        image=spec.image if spec is not None else box.alias or box.template_id,
        created_at=entry.created_at if entry is not None else _seconds(box.started_at),
        started_at=entry.started_at if entry is not None else _seconds(box.started_at),
        labels=dict(spec.labels) if spec is not None else metadata,
        managed=entry is not None,
        maker="" if entry is not None else "e2b",
        spec=spec,
        effective=tuple(_facts(box)),
    )


def _facts(box: Box) -> list[Fact]:
    facts = [Fact("id", box.sandbox_id, "as E2B calls it"), Fact("template", box.template_id)]
    if box.end_at is not None:
        pauses = box.lifecycle is not None and box.lifecycle.on_timeout == "pause"
        facts.append(Fact("expires", box.end_at.isoformat(), f"E2B {'pauses' if pauses else 'ends'} it then"))
    for name, value in (("cpus", box.cpu_count), ("memory_mib", box.memory_mb), ("disk_mib", box.disk_size_mb)):
        facts.append(Fact(name, "unknown" if value is None else f"{value:g}", "set in the template"))
    return [*facts, _egress(box)]


def _egress(box: Box) -> Fact:
    if box.allow_internet_access is False:
        return Fact("egress", "none")
    if box.allow_internet_access is UNSET:
        return Fact("egress", "unknown", "E2B does not tell it in lists", enforced=False)
    return Fact("egress", "any host", "E2B gives a sandbox the internet unless asked not to", enforced=False)


def asked(spec: SandboxSpec, lifetime_s: int) -> Mapping[str, Any]:
    """What E2B is asked for: a sandbox without internet access that ends after ``lifetime_s``."""
    return {
        "templateID": spec.image,
        "timeout": lifetime_s,
        "secure": True,
        "allow_internet_access": False,
        "metadata": {NAMED: spec.name},
        "envVars": dict(spec.env),
    }


def _seconds(when: datetime | None) -> float | None:
    try:
        at = when.timestamp() if when is not None else -1.0
    except (ValueError, OverflowError):  # no time of this machine's calendar
        return None
    return at if 0 <= at < _YEAR_9999 else None
