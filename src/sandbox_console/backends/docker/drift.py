"""Reads what a container is now, in the words of a spec, so that it can be compared with what was asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sandbox_console.backends.docker.labels import EGRESS
from sandbox_console.model.drift import (
    BLKIO,
    CPUSET,
    CPUSET_MEMS,
    NETWORK,
    REALTIME,
    RESERVATION,
    RESTART,
    SHARES,
    SWAP,
)  # fmt: skip
from sandbox_console.model.quantities import size_text
from sandbox_console.model.spec import SandboxSpec

DEFAULT_PIDS = 256
"""The limit of processes if none is requested."""

DEFAULT_SHARES = 1024
"""The weight of a container that was given none (docker run --cpu-shares)."""

_MIB = 1024 * 1024

UNTOLD = {
    "secrets": "their values are handed over at each start, and the engine does not keep them",
    "max_duration_s": "the console enforces it, not the engine",
    "idle_timeout_s": "the console enforces it, not the engine",
    "workspace": "the engine reports the path that it mounted, not what is there now",
}
"""Why the engine does not report a field."""


def found(data: Mapping[str, Any], info: Mapping[str, Any], spec: SandboxSpec, rules: Any) -> dict[str, Any]:
    """The fields that other tools can change, as the engine reports them.

    ``info`` is what the engine says about itself; ``rules`` is what the gateway's rules amount to: see
    `gateway_rules.found`.
    """
    host = data["HostConfig"]
    memory, nano, pids = (host.get(key) or 0 for key in ("Memory", "NanoCpus", "PidsLimit"))
    return {
        "name": str(data["Name"]).lstrip("/"),
        "memory_mib": _memory(memory),
        "cpus": _cpus(host, nano, spec),
        "pids": spec.pids if pids == (spec.pids or DEFAULT_PIDS) else pids if pids > 0 else None,
        "egress": rules,
        NETWORK: wrong_network(data),
        RESTART: restart_policy(data),
        SWAP: swap(host, info),
        CPUSET: cpuset(host, info),
        SHARES: shares(host),
        CPUSET_MEMS: str(host.get("CpusetMems") or ""),
        RESERVATION: _size(host.get("MemoryReservation") or 0),
        BLKIO: str(host.get("BlkioWeight") or ""),
        REALTIME: _realtime(host),
    } | _unenforced(memory, nano, pids, spec)


def _memory(memory: int) -> float | int | None:
    return (memory // _MIB if memory % _MIB == 0 else memory / _MIB) if memory else None


def _cpus(host: Mapping[str, Any], nano: int, spec: SandboxSpec) -> float | None:
    if spec.cpus is not None and nano == int(spec.cpus * 1e9):
        return spec.cpus
    if nano:
        return float(nano) / 1e9
    quota, period = host.get("CpuQuota") or 0, host.get("CpuPeriod") or 100_000
    return quota / period if quota > 0 else None


def _unenforced(memory: int, nano: int, pids: int, spec: SandboxSpec) -> dict[str, Any]:
    """Limits that the engine's kernel did not take, and that the spec accepts without: they have not drifted."""
    if spec.limits == "strict":
        return {}
    unset = {"memory_mib": not memory, "cpus": not nano, "pids": not pids}
    return {name: getattr(spec, name) for name, none in unset.items() if none}


def networks(data: Mapping[str, Any]) -> tuple[str, set[str]]:
    """The network that a sandbox was created in, and those that it is in now."""
    token = (data["Config"].get("Labels") or {}).get(EGRESS)
    mode = str(data["HostConfig"].get("NetworkMode", ""))
    own = mode if token and mode == f"sandbox-console-{token}" else "none"
    return own, set((data.get("NetworkSettings") or {}).get("Networks") or {})


def wrong_network(data: Mapping[str, Any]) -> str:
    """How the networks of a sandbox differ from the one that it was created in; empty if they do not."""
    own, now = networks(data)
    other = now - {own, "none"}
    parts = [f"also on {_listed('network', other)}"] if other else []
    if own != "none" and own not in now:
        parts.insert(0, "cut off from its gateway")
    return ", ".join(parts)


def restart_policy(data: Mapping[str, Any]) -> str:
    """When the engine starts a container again that ended, as ``docker update`` writes it; empty for never.

    With one, a sandbox would outlive its limit of time, and what ended it.
    """
    policy = data["HostConfig"].get("RestartPolicy") or {}
    name, most = str(policy.get("Name") or "no"), policy.get("MaximumRetryCount") or 0
    return "" if name == "no" else f"{name}:{most}" if most else name


def swap(host: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """What a container may swap beyond its memory; empty if nothing, or if nothing limits its memory.

    An engine whose kernel cannot limit swap says so in ``info``; each container on it may swap, whoever made it.
    """
    memory, both = host.get("Memory") or 0, host.get("MemorySwap") or 0
    if not memory or both == memory or not info.get("SwapLimit", True):
        return ""
    return size_text(math.ceil((both - memory) / _MIB)) if both > memory else "no limit"


def cpuset(host: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """The CPUs that a container is tied to, such as ``0-1,4``; empty if it may use all."""
    tied = str(host.get("CpusetCpus") or "")
    return tied if tied and _numbers(tied) != _numbers(every_cpu(info)) else ""


def shares(host: Mapping[str, Any]) -> str:
    """The weight of a container when CPUs are short, if it is not that of one without a weight."""
    weight = host.get("CpuShares") or DEFAULT_SHARES
    return "" if weight == DEFAULT_SHARES else str(weight)


def _size(octets: int) -> str:
    return size_text(math.ceil(octets / _MIB)) if octets else ""


def _realtime(host: Mapping[str, Any]) -> str:
    """The time for real-time tasks, and the period that it is of, in microseconds."""
    runtime, period = (host.get(f"CpuRealtime{key}") or 0 for key in ("Runtime", "Period"))
    return f"{runtime} of {period or 'the default'} us" if runtime or period else ""


def every_cpu(info: Mapping[str, Any]) -> str:
    """All CPUs of an engine, as ``docker update --cpuset-cpus`` takes them. It cannot take "no such limit"."""
    return f"0-{int(info.get('NCPU') or 1) - 1}"


def _numbers(cpus: str) -> set[int]:
    """The CPUs of a list such as ``0-2,4``, which the engine has checked."""
    ranges = (one.partition("-") for one in cpus.split(","))
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def _listed(word: str, names: Iterable[str]) -> str:
    found = sorted(names)
    return f"{word}{'s' if len(found) > 1 else ''} {', '.join(found)}"
