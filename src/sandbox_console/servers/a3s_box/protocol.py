"""The bridge of A3S Box, version 4: its requests, its envelope and its codes.

From its SDK (``a3s_box.runtime`` and ``a3s_box._sandbox_requests`` of a3s-box 3.2.7 on PyPI), and for defaults and
codes from ``src/sdk/src/bridge.rs`` of github.com/A3S-Lab/Box.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from sandbox_console.errors import BackendUnreachable, Conflict, ConsoleError, NotFound, Unsupported, UsageError
from sandbox_console.model.text import clean

PROTOCOL = 4
OPERATIONS = (
    "sdk_capabilities", "runtime_diagnostics", "runtime_disk_usage", "image_build", "image_pull", "image_get",
    "image_list", "image_inspect", "image_history", "image_tag", "image_push", "image_remove", "image_evict",
    "volume_create", "volume_get", "volume_list", "volume_remove", "volume_prune", "network_create", "network_get",
    "network_list", "network_remove", "network_prune", "sandbox_list", "sandbox_get", "sandbox_create",
    "sandbox_inspect", "sandbox_stop", "sandbox_restart", "sandbox_remove", "sandbox_kill", "sandbox_pause",
    "sandbox_resume", "sandbox_logs", "sandbox_stats", "sandbox_processes", "sandbox_runtime_stats", "sandbox_events",
    "sandbox_update_resources", "sandbox_snapshot_create", "filesystem_snapshot_list", "filesystem_snapshot_get",
    "filesystem_snapshot_size", "filesystem_snapshot_delete", "command_run", "file_write", "file_read",
    "filesystem_stat", "filesystem_list", "filesystem_make_dir", "filesystem_move", "filesystem_remove",
)  # fmt: skip
_CODES: tuple[tuple[type[ConsoleError], str], ...] = (
    (NotFound, "not_found"),
    (Conflict, "conflict"),
    (UsageError, "invalid_request"),
    (Unsupported, "unavailable"),
    (BackendUnreachable, "unavailable"),
)
_Seconds = Annotated[int, Meta(ge=0, le=1 << 40)]
_Count = Annotated[int, Meta(ge=1, le=1 << 24)]


class Identity(Struct):
    """One generation of a sandbox."""

    sandbox_id: str
    generation: int = 0


class Create(Struct):
    """``sandbox_create``."""

    image: str = "alpine:3.20"
    command: list[str] | None = None
    entrypoint: list[str] | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=1 << 40)] = 3600
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    name: str | None = None
    cpus: _Count | None = None
    memory_mb: _Count | None = None
    isolation: str = "microvm"
    filesystem_snapshot_id: str | None = None
    workspace: str | None = None
    workdir: str | None = None
    user: str | None = None
    hostname: str | None = None
    mounts: list[dict[str, Any]] = field(default_factory=list)
    tmpfs: list[dict[str, Any]] = field(default_factory=list)
    network: dict[str, str] = field(default_factory=dict)
    ports: list[dict[str, int]] = field(default_factory=list)
    dns: list[str] = field(default_factory=list)
    host_aliases: dict[str, str] = field(default_factory=dict)
    read_only: bool = False


class Restart(Identity, kw_only=True):
    """``sandbox_restart``."""

    operation_id: str
    stop_timeout_seconds: _Seconds | None = None


class Logs(Identity, kw_only=True):
    """``sandbox_logs``."""

    tail: Annotated[int, Meta(ge=1, le=10_000)] = 100


class Events(Identity, kw_only=True):
    """``sandbox_events``."""

    after_sequence: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=4096)] = 256
    wait_timeout_ms: Annotated[int, Meta(ge=0)] | None = None


class Resources(Identity, kw_only=True):
    """``sandbox_update_resources``."""

    operation_id: str
    resources: dict[str, Any] = field(default_factory=dict)


class SnapshotOf(Identity, kw_only=True):
    """``sandbox_snapshot_create``."""

    snapshot_id: str


class Command(Identity, kw_only=True):
    """``command_run``."""

    argv: Annotated[list[str], Meta(min_length=1)]
    timeout_ms: Annotated[int, Meta(ge=1, le=1 << 50)] | None = None
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    user: str | None = None
    stdin_base64: str | None = None
    request_id: str | None = None


class File(Identity, kw_only=True):
    """What is done with a path."""

    path: str
    user: str | None = None
    data_base64: str = ""
    max_bytes: Annotated[int, Meta(ge=0)] | None = None
    depth: Annotated[int, Meta(ge=1, le=64)] = 1
    destination: str = ""
    request_id: str | None = None


class Named(Struct):
    """What is asked of an image, a snapshot or a sandbox by name."""

    reference: str = ""
    snapshot_id: str = ""
    query: str = ""
    name: str = ""
    force: bool = False
    all: bool = True
    platform: str | None = None
    credentials: dict[str, Any] | None = None
    signature_policy: dict[str, Any] | None = None


def success(result: object) -> bytes:
    """The answer to what was done."""
    return msgspec.json.encode({"protocol_version": PROTOCOL, "ok": True, "result": result})


def failure(error: ConsoleError) -> bytes:
    """The answer to what was not done: its code, and why."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "runtime_error")
    message = clean(f"{error.message}. {error.hint}" if error.hint else error.message)
    told = {"code": code, "message": message}
    return msgspec.json.encode({"protocol_version": PROTOCOL, "ok": False, "error": told})
