"""Translates a sandbox's record into the console's model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sandbox_console.backends.bubblewrap import drift, jail, ports, syscall_filter
from sandbox_console.backends.bubblewrap.limits import Limiter
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.backends.common.messages import UNCOUNTED
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status

NAME, HOST = "bubblewrap", "local"
_ENDED = (Status.EXITED, Status.FAILED)


def sandbox(record: Record, limiter: Limiter, options: Options) -> Sandbox:
    """The sandbox, with the limits and settings that really apply to it."""
    raw = record.raw
    end = raw.get("exit") if record.status in _ENDED else None
    return Sandbox(
        ref=SandboxRef(NAME, HOST, record.id),
        name=record.spec.name,
        status=record.status,
        image=record.spec.image or "host",
        created_at=record.created_at,
        started_at=raw.get("started_at"),
        finished_at=raw.get("finished_at") if record.status in _ENDED else None,
        exit=Exit(end.get("code"), end.get("signal"), end.get("oom"), end.get("reason", "")) if end else None,
        labels=record.spec.labels,
        maker="sandbox-console",
        spec=record.spec,
        effective=tuple(_facts(record, limiter, options)),
        found=drift.found(record, options),
        untold=drift.untold(record, limiter),
        pid=raw.get("pid") if record.status.live else None,
        restarts=max(0, (raw.get("starts") or 1) - 1),
        detail=record.detail,
    )


def _facts(record: Record, limiter: Limiter, options: Options) -> Iterator[Fact]:
    spec = record.spec
    yield Fact("image", spec.image or "host", "read-only; /tmp, /run and the home folder are in memory")
    yield Fact("command", " ".join(spec.command or jail.IDLE), "" if spec.command else "no command: it idles")
    yield Fact("network", "none", "a network namespace with nothing but its own loopback")
    if spec.egress:
        yield Fact("egress", ", ".join(spec.egress), "the gateway at 127.0.0.1:3128 is the only way out")
    yield from ports.facts(record)
    try:
        yield Fact("user", _user(record), "no capability, no_new_privs")
        yield Fact("workdir", jail.workdir_of(spec))
    except ValueError as error:  # its image is gone or has changed, but the sandbox still exists
        yield Fact("image", str(error), "it cannot be entered or started", enforced=False)
    yield syscall_filter.fact(record)
    if spec.workspace:
        yield Fact("workspace", spec.workspace, f"read-write at /workspace; nosuid, nodev; {UNCOUNTED}")
    for name, controller, value in _limits(record, options):
        reason = limiter.why_not(controller)
        how = "cgroup" if controller in limiter.parents else "RLIMIT_NPROC"
        each = "; each process is held to it" if controller == "memory" else ""
        yield Fact(name, value, f"{reason}{each}" if reason else how, enforced=not reason)
    yield Fact("pause", *_pause(limiter))
    yield Fact("tmpfs /tmp", f"{options.tmp_mib} MiB", "of any number of files: bwrap has no option to limit it")
    rate = f"{options.log_rate_mib} MiB/s" if options.log_rate_mib else "unlimited"
    yield Fact("log_rate", rate, "more is left out, and a gap says how much" if options.log_rate_mib else "")


def _limits(record: Record, options: Options) -> Iterator[tuple[str, str, str]]:
    spec = record.spec
    if spec.memory_mib is not None:
        yield "memory_mib", "memory", f"{spec.memory_mib} MiB"
    if spec.cpus is not None:
        yield "cpus", "cpu", f"{spec.cpus:g}"
    yield "pids", "pids", str(spec.pids or options.pids)


def _pause(limiter: Limiter) -> tuple[str, str]:
    if limiter.can_freeze:
        return "freezer cgroup", ""
    return "SIGSTOP", "no writable freezer cgroup: the sandbox's processes can notice that they were stopped"


def _user(record: Record) -> str:
    name, uid, _gid = jail.identity(record.spec.user, jail_root(record))
    outside = f"uid {record.uid} on the host" if record.uid is not None else "you on the host"
    return f"{name} ({uid}), {outside}"


def jail_root(record: Record) -> Path | None:
    """The image's folder, if it still exists. A sandbox is shown even if its image is gone."""
    try:
        return jail.root_of(record.spec.image)
    except ValueError:
        return None
