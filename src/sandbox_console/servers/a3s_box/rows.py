"""Sandboxes, files, images and events in the words of A3S Box."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any

from sandbox_console.model.guest import FileInfo, FileKind, GuestEvent
from sandbox_console.model.image import Image, Snapshot
from sandbox_console.model.log import LogRecord
from sandbox_console.model.sandbox import Sandbox, Stats, Status

_STATES = {
    Status.CREATED: "created",
    Status.STARTING: "creating",
    Status.RUNNING: "running",
    Status.PAUSED: "paused",
    Status.STOPPING: "running",
    Status.EXITED: "stopped",
    Status.FAILED: "failed",
    Status.LOST: "failed",
    Status.UNKNOWN: "failed",
}
_MICROVMS = ("microsandbox", "e2b")
_KINDS = {
    "create": "container-created", "start": "container-started", "die": "container-stopped",
    "stop": "container-stopped", "destroy": "container-deleted", "pause": "container-paused",
    "unpause": "container-resumed", "resume": "container-resumed", "update": "resources-updated",
    "exec_create": "process-created", "exec_start": "process-started", "exec_die": "process-exited",
}  # fmt: skip
_TYPES = {FileKind.FILE: ("file", stat.S_IFREG), FileKind.DIRECTORY: ("directory", stat.S_IFDIR)}


def told(sandbox: Sandbox, generation: int) -> dict[str, Any]:
    """The identity of a sandbox. ``isolation`` is what the backend has, whatever was asked for."""
    return {
        "sandbox_id": sandbox.ref.id,
        "generation": generation,
        "state": _STATES[sandbox.status],
        "isolation": isolation(sandbox.ref.backend),
    }


def isolation(backend: str) -> str:
    """What keeps a backend's sandboxes apart: a kernel of their own, or this machine's."""
    return "microvm" if backend in _MICROVMS else "sandbox"


def summary(sandbox: Sandbox) -> dict[str, Any]:
    """A row of the list. The protocol has no word for what is not known: 0 CPUs or MiB are no limit."""
    spec, state, id_ = sandbox.spec, _STATES[sandbox.status], sandbox.ref.id
    ended = sandbox.exit is not None and sandbox.exit.code is not None and state == "stopped"
    return {
        "id": id_,
        "short_id": id_.replace("-", "")[:12],
        "name": sandbox.name,
        "image": sandbox.image,
        "isolation": isolation(sandbox.ref.backend),
        "status": state,
        "status_summary": f"stopped (Exit {sandbox.exit.code})" if ended and sandbox.exit else state,
        "active": state in ("running", "paused"),
        "pid": sandbox.pid,
        "cpus": ceil(spec.cpus) if spec is not None and spec.cpus else 0,
        "memory_mb": (spec.memory_mib or 0) if spec is not None else 0,
        "ports": [*spec.ports] if spec is not None else [],
        "command": [*spec.command] if spec is not None else [],
        "health": "none",
        "labels": dict(sandbox.labels),
        "created_at": when(sandbox.created_at),
        "started_at": when(sandbox.started_at) if sandbox.started_at is not None else None,
        "network_name": None,
        "volume_names": [],
    }


def measured(sandbox: Sandbox, sample: Stats) -> dict[str, Any]:
    """What a sandbox uses. The console measures rates of the network and of disks, so their counters are 0."""
    cpus = ceil(sandbox.spec.cpus) if sandbox.spec is not None and sandbox.spec.cpus else 1
    used, most, busy = sample.memory_bytes or 0, sample.memory_limit or 0, sample.cpu_percent or 0.0
    return {
        "id": sandbox.ref.id, "short_id": sandbox.ref.id.replace("-", "")[:12], "name": sandbox.name,
        "status": _STATES[sandbox.status], "pid": sandbox.pid or 0, "cpus": cpus,
        "cpu_percent": busy, "cpu_percent_scaled": busy / cpus, "memory_bytes": used, "memory_limit_bytes": most,
        "memory_percent": 100 * used / most if most else 0.0, "network_rx_bytes": 0, "network_tx_bytes": 0,
        "block_read_bytes": 0, "block_write_bytes": 0,
    }  # fmt: skip


def log_entry(record: LogRecord) -> dict[str, Any]:
    """A line of the log, whose time has nanoseconds."""
    seconds, ns = divmod(record.at_ns, 10**9)
    at = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    stream = "stderr" if record.stream == "stderr" else "stdout"
    return {"stream": stream, "log": record.data.decode("utf-8", "replace"), "time": f"{at}.{ns:09d}Z"}


def events(found: Sequence[GuestEvent]) -> list[dict[str, Any]]:
    """All events so far, numbered from 1. What A3S Box has no word for is a runtime-warning with ours."""
    return [
        {
            "sequence": number,
            "timestamp_unix_ns": str(int(one.at * 1e9)),
            "process_id": None,
            "kind": _KINDS.get(one.what, "runtime-warning"),
            "attributes": {**dict(one.attributes), "event": one.what, **({"detail": one.detail} if one.detail else {})},
        }
        for number, one in enumerate(found, 1)
    ]


def entry(path: str, info: FileInfo) -> dict[str, Any]:
    """A file or a folder."""
    kind, bits = _TYPES.get(info.kind, ("unspecified", stat.S_IFLNK if info.kind is FileKind.LINK else 0))
    at = info.modified_at or 0.0
    return {
        "name": posixpath.basename(path.rstrip("/")) or "/", "type": kind, "path": path, "size": info.size,
        "mode": info.mode, "permissions": stat.filemode(bits | info.mode), "owner": _owner(info.uid),
        "group": _owner(info.gid), "modified_seconds": int(at), "modified_nanos": int(at % 1 * 10**9),
        "symlink_target": info.target or None,
    }  # fmt: skip


def _owner(number: int | None) -> str:
    return "" if number is None else str(number)


def image(found: Image, name: str) -> dict[str, Any]:
    """An image by one of its names."""
    return {
        "reference": name, "digest": found.digest or found.id, "size_bytes": found.size_bytes or 0,
        "pulled_at": when(found.created_at), "last_used": when(found.created_at), "path": "",
    }  # fmt: skip


def snapshot(found: Snapshot) -> dict[str, Any]:
    """A snapshot. The console does not store what its sandbox was made of."""
    return {
        "id": found.name, "name": found.name, "source_box_id": found.of, "image": "", "vcpus": 0, "memory_mb": 0,
        "volumes": [], "command": [], "port_map": [], "labels": {}, "network_mode": None,
        "size_bytes": found.size_bytes or 0, "created_at": when(found.created_at), "description": "",
    }  # fmt: skip


def when(at: float | None) -> str:
    """A time as RFC 3339; 1970 for one that is not known, as the protocol has no word for that."""
    return datetime.fromtimestamp(at or 0, UTC).isoformat()
