"""Translates A3S Box's sandboxes into the console's model, and a spec into what its SDK takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sandbox_console.backends.a3s.options import Runtime
from sandbox_console.backends.common.ledger import Entry
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from a3s_box import FilesystemSnapshotSummary, SandboxSummary

BACKEND = "a3s"
GENERATION = "generation"
"""Under this name the ledger has the generation that this console started."""
_YEAR_9999 = 253_370_764_800.0
_EXIT = re.compile(r"\(Exit (-?\d{1,9})\b", re.ASCII)
_STATES = {
    "creating": Status.STARTING,
    "created": Status.CREATED,
    "starting": Status.STARTING,
    "running": Status.RUNNING,
    "updating_resources": Status.RUNNING,
    "snapshotting": Status.RUNNING,
    "pausing": Status.PAUSED,
    "paused": Status.PAUSED,
    "resuming": Status.RUNNING,
    "killing": Status.STOPPING,
    "restart_stopping": Status.STOPPING,
    "restart_starting": Status.STARTING,
    "removing": Status.STOPPING,
    "stopped": Status.EXITED,
    "dead": Status.EXITED,
    "failed": Status.FAILED,
}
"""The states of ``src/runtime/src/box_record.rs`` in github.com/A3S-Lab/Box."""


def of_box(host: str, box: SandboxSummary, entry: Entry | None) -> Sandbox:
    """A sandbox that the runtime has, with what this console asked for."""
    spec = entry.spec if entry is not None else None
    status = _STATES.get(box.status, Status.UNKNOWN)
    created, started = seconds(box.created_at), seconds(box.started_at)
    return Sandbox(
        ref=SandboxRef(BACKEND, host, entry.id if entry is not None else box.id),
        name=spec.name if spec is not None else box.name or box.id,
        status=status,
        image=spec.image if spec is not None else box.image,
        created_at=entry.created_at if entry is not None else created,
        started_at=(entry.started_at if entry is not None else None) or started,
        finished_at=entry.finished_at if entry is not None and status is Status.EXITED else None,
        exit=_exit(box.status_summary) if status is Status.EXITED else None,
        labels=dict(spec.labels) if spec is not None else box.labels,
        managed=entry is not None,
        maker="" if entry is not None else "a3s",
        spec=spec,
        effective=tuple(_facts(box, entry)),
    )


def _exit(summary: str) -> Exit:
    if (found := _EXIT.search(summary)) is None:
        return Exit(reason="the runtime does not tell how it ended")
    code = int(found[1])
    return Exit(code, code - 128 if 128 < code < 193 else None)


def _facts(box: SandboxSummary, entry: Entry | None) -> list[Fact]:
    wall = "a microVM with a kernel of its own" if box.isolation == "microvm" else "it shares this machine's kernel"
    facts = [
        Fact("id", box.id, "as A3S Box calls it"),
        Fact("isolation", box.isolation, wall),
        Fact("cpus", str(box.cpus)),
        Fact("memory_mib", str(box.memory_mb)),
        _egress(box, entry),
    ]
    facts += [Fact("port", port) for port in box.ports]
    if box.volume_names:
        facts.append(Fact("volumes", ", ".join(box.volume_names)))
    if box.health and box.health != "none":
        facts.append(Fact("health", box.health))
    return facts


def _egress(box: SandboxSummary, entry: Entry | None) -> Fact:
    if entry is not None:
        return Fact("egress", "none")
    if box.network_name:
        return Fact("egress", "any host", f"through the network {box.network_name}", enforced=False)
    return Fact("egress", "unknown", "the runtime does not tell it", enforced=False)


def asked(spec: SandboxSpec, runtime: Runtime, snapshot: str = "") -> Mapping[str, Any]:
    """What ``AsyncSandbox.create`` is called with: a sandbox without a network that stays when it stops."""
    from a3s_box import SandboxNetwork

    return {
        "template": spec.image,
        "command": spec.command or None,
        "timeout": runtime.lifetime_s,
        "envs": dict(spec.env),
        "metadata": dict(spec.labels),
        "name": spec.name,
        "cpus": math.ceil(spec.cpus) if spec.cpus else None,
        "memory_mb": spec.memory_mib,
        "isolation": runtime.isolation,
        "filesystem_snapshot_id": snapshot or None,
        "workspace": spec.workspace,
        "workdir": spec.workdir,
        "user": spec.user,
        "network": SandboxNetwork.disabled(),
        "read_only": spec.read_only_root,
        "persistent": True,
        "auto_remove": False,
    }


def restored(name: str, snapshot: FilesystemSnapshotSummary, spec: SandboxSpec | None) -> SandboxSpec:
    """The spec of a sandbox that is made from a snapshot: that of its source if it is known, else what is told."""
    if spec is not None:
        return structs.replace(spec, name=name)
    return SandboxSpec(name, image=snapshot.image, command=snapshot.command, memory_mib=snapshot.memory_mb or None)


def seconds(when: str | None) -> float | None:
    """A time in seconds since the epoch; None for one that is not of this machine's calendar."""
    try:
        at = datetime.fromisoformat(when).timestamp() if when else -1.0
    except (ValueError, OverflowError):
        return None
    return at if 0 <= at < _YEAR_9999 else None
