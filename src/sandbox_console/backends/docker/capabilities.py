"""What an engine can do, according to its /info, and what a spec requires of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.backends.docker import podman_dialect
from sandbox_console.errors import Unsupported
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.spec import SandboxSpec

LOG_RATE = "the engine writes the log itself and limits no rate; a flood rotates older lines away, and LOG/S shows it"
FAR = "the engine is on another machine, and its connection belongs to the console's own process"
_MISSING = {
    **ONE_CONTAINER,
    Capability.LIMIT_LOG_RATE: LOG_RATE,
    Capability.SYSTEM_CALLS: "their filter is the engine's matter; debuggers work",
    Capability.UPDATE_LABELS: "the engine cannot change labels; the sandbox is recreated",
    Capability.SECRET_PLACEHOLDER: "the egress gateway looks into no TLS; inject as env or file",
    Capability.UPDATE_MAX_DURATION: "its keeper keeps the limit that it began with; the sandbox is recreated",
    Capability.SNAPSHOT: "the engine's checkpoints are experimental and need CRIU; commit makes an image of the disk",
    Capability.FORK: "a container's memory cannot be copied",
}
_OF_GATEWAY = (Capability.EGRESS_ALLOWLIST, Capability.EGRESS_UPDATE, Capability.EGRESS_RECORDS, Capability.PORTS)
_OR = 'leave it out, or set limits = "best-effort"'
_LIMITS = {
    Capability.LIMIT_CPU: ("CpuCfsQuota", "the engine's kernel has no CPU quota"),
    Capability.LIMIT_MEMORY: ("MemoryLimit", "the engine's kernel has no memory limit"),
    Capability.LIMIT_PIDS: ("PidsLimit", "the engine's kernel has no limit of processes"),
    Capability.UPDATE_CPU: ("CpuCfsQuota", "the engine's kernel has no CPU quota"),
    Capability.UPDATE_MEMORY: ("MemoryLimit", "the engine's kernel has no memory limit"),
    Capability.UPDATE_PIDS: ("PidsLimit", "the engine's kernel has no limit of processes"),
}


def capabilities(
    info: Mapping[str, Any], no_gateway: str = "", no_keeper: str = "", *, local: bool = True
) -> Capabilities:
    """The capabilities that /info reports; before it was read, everything that an engine usually has.

    ``no_gateway`` and ``no_keeper`` are the reasons why there is no gateway or keeper.
    """
    reasons = dict(_MISSING)
    if not local:
        reasons[Capability.SHELL_KEEP] = FAR
    if podman_dialect.is_podman(info):
        reasons |= podman_dialect.MISSING
    if no_keeper:
        reasons[Capability.MAX_DURATION] = reasons[Capability.IDLE_TIMEOUT] = no_keeper
    if no_gateway:
        reasons |= dict.fromkeys(_OF_GATEWAY, no_gateway)
    reasons |= {capability: reason for capability, (key, reason) in _LIMITS.items() if not info.get(key, True)}
    return Capabilities(frozenset(Capability) - reasons.keys(), reasons)


def refuse_unsupported(spec: SandboxSpec, able: Capabilities) -> None:
    """Raise Unsupported for the first requested thing that is missing. Limits on best effort are allowed."""
    strict = spec.limits == "strict"
    requested = (
        (bool(spec.egress), "egress", Capability.EGRESS_ALLOWLIST, "leave the list empty"),
        (bool(spec.ports), "ports", Capability.PORTS, "leave them out"),
        (spec.seccomp is not None, "seccomp", Capability.SYSTEM_CALLS, "leave it out"),
        (spec.ptrace, "ptrace", Capability.SYSTEM_CALLS, "leave it out"),
        (spec.nested_userns, "nested_userns", Capability.SYSTEM_CALLS, "leave it out"),
        (strict and spec.max_duration_s is not None, "max_duration_s", Capability.MAX_DURATION, _OR),
        (strict and spec.idle_timeout_s is not None, "idle_timeout_s", Capability.IDLE_TIMEOUT, _OR),
        (strict and spec.cpus is not None, "cpus", Capability.LIMIT_CPU, _OR),
        (strict and spec.memory_mib is not None, "memory_mib", Capability.LIMIT_MEMORY, _OR),
        (strict and spec.pids is not None, "pids", Capability.LIMIT_PIDS, _OR),
    )
    for wanted, field, capability, hint in requested:
        if wanted and not able.has(capability):
            verb = "publish" if field == "ports" else "enforce"
            raise Unsupported(f"docker cannot {verb} {field}: {able.reason(capability)}", hint=hint)


def value_problems(spec: SandboxSpec, info: Mapping[str, Any], *, local: bool) -> dict[str, str]:
    """What is wrong with a spec's values for this engine, by field; makes no request."""
    runtimes = sorted(info.get("Runtimes") or ())
    found = {
        "name": "docker needs two characters or more" if len(spec.name) == 1 else "",
        "image": "" if spec.image.strip() else "an image is needed, for example alpine:3",
        "cpus": _above(spec.cpus, info.get("NCPU"), "CPUs"),
        "memory_mib": _memory(spec, info),
        "workspace": _workspace(spec.workspace) if local and spec.workspace else "",
        "runtime": f"this engine has {', '.join(runtimes)}" if _unknown(spec.runtime, runtimes) else "",
    }
    return {field: text for field, text in found.items() if text}


def _unknown(runtime: str | None, runtimes: list[str]) -> bool:
    return bool(runtime and runtimes and runtime not in runtimes)


def _above(requested: float | None, available: int | None, unit: str) -> str:
    return (
        f"{requested:g} is above the engine's {available} {unit}"
        if requested and available and requested > available
        else ""
    )


def _memory(spec: SandboxSpec, info: Mapping[str, Any]) -> str:
    if spec.memory_mib is not None and spec.memory_mib < 6:
        return "docker needs 6 MiB or more"
    total = info.get("MemTotal")
    return _above(spec.memory_mib, total // (1024 * 1024) if total else None, "MiB")


def _workspace(folder: str) -> str:
    try:
        if Path(folder).samefile("/"):
            return f"{folder!r} is '/' in the end, which would give the sandbox this whole host"
        return "" if Path(folder).is_dir() else f"{folder!r} is not a folder"
    except FileNotFoundError:
        return f"{folder!r} does not exist"
    except OSError as error:
        return f"{folder!r} cannot be used: {error.strerror}"
