"""Reads what a sandbox is now, in the words of a spec, so that it can be compared with what was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox_console.backends import gateway_rules
from sandbox_console.backends.bubblewrap import egress, limits
from sandbox_console.backends.bubblewrap.limits import Limiter
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.backends.bubblewrap.state import Record, Store
from sandbox_console.backends.bubblewrap.supervise import cgroup
from sandbox_console.model.spec import SandboxSpec

_MIB = 1 << 20
_NO_LIMIT = 1 << 62
"""Above this, what version 1 reports is "no limit" (PAGE_COUNTER_MAX)."""

_OF = {"memory_mib": "memory", "cpus": "cpu", "pids": "pids"}
_UNTOLD = {
    "secrets": "their values are handed over at each start, and are not kept",
    "max_duration_s": "its supervisor keeps it, and does not report it",
    "idle_timeout_s": "its supervisor keeps it, and does not report it",
}


def watched(store: Store) -> list[Path]:
    """The folders where another program's change shows: the cgroups of each sandbox, and its gateway's rules."""
    return [folder for record in store.all() for folder in _watched(record)]


def _watched(record: Record) -> list[Path]:
    groups: Mapping[str, str] = record.raw.get("cgroups") or {}
    own = [Path(groups[one]) for one in _OF.values() if one in groups]
    return list(dict.fromkeys([*own, *([egress.folder(record) / "policy"] if record.spec.egress else [])]))


def found(record: Record, options: Options) -> dict[str, Any]:
    """The fields that can be read back now: limits from the kernel, rules and folders from the disk."""
    spec = record.spec
    values: dict[str, Any] = {}
    if record.status.live:
        values |= dict(_limits(record, options))
    if spec.egress and egress.folder(record).is_dir():
        values["egress"] = gateway_rules.found(egress.folder(record), spec.egress)
    if spec.workspace:
        values["workspace"] = _workspace(record, spec.workspace)
    if spec.image.startswith("dir:"):
        root = spec.image.removeprefix("dir:")
        values["image"] = spec.image if Path(root).is_dir() else f"{root} is gone"
    return values


def limits_differ(record: Record, spec: SandboxSpec, options: Options) -> bool:
    """Whether the limits of a spec are not those that were asked for, or not those that hold now."""
    if limits.wanted(spec, options) != limits.wanted(record.spec, options):
        return True
    return any(getattr(spec, name) not in (None, value) for name, value in _limits(record, options))


def untold(record: Record, limiter: Limiter) -> Mapping[str, str]:
    """Why other fields cannot be read back."""
    off = {name: limiter.why_not(controller) or "it is not in a cgroup" for name, controller in _OF.items()}
    stopped = dict.fromkeys(_OF, f"it does not run: it is {record.status}")
    return _UNTOLD | (off if record.status.live else stopped)


def _limits(record: Record, options: Options) -> Iterator[tuple[str, float | None]]:
    groups: Mapping[str, str] = record.raw.get("cgroups") or {}
    spec = record.spec
    if text := _first(groups.get("memory"), "memory.max", "memory.limit_in_bytes"):
        memory = _number(text)
        asked = spec.memory_mib * _MIB if spec.memory_mib else None
        exact = memory // _MIB if memory is not None and memory % _MIB == 0 else memory and memory / _MIB
        yield "memory_mib", spec.memory_mib if memory == asked else exact
    if text := _first(groups.get("pids"), "pids.max"):
        pids = _number(text)
        yield "pids", spec.pids if pids == (spec.pids or options.pids) else pids
    if text := _first(groups.get("cpu"), "cpu.max", "cpu.cfs_quota_us"):
        yield "cpus", _cpus(text, spec.cpus)


def _cpus(text: str, asked: float | None) -> float | None:
    quota = _number(text.split(maxsplit=1)[0])
    if quota is None or quota < 0:
        return None
    return asked if asked and quota == max(1000, int(asked * cgroup.CPU_PERIOD_US)) else quota / cgroup.CPU_PERIOD_US


def _first(folder: str | None, *names: str) -> str:
    return next((text for name in names if folder and (text := cgroup.read(f"{folder}/{name}").strip())), "")


def _number(text: str) -> int | None:
    return None if text == "max" or int(text) > _NO_LIMIT else int(text)


def _workspace(record: Record, folder: str) -> str:
    """The folder, or in words why it is no longer the one that the guest has."""
    try:
        now = Path(folder).stat()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not record.status.live or not record.raw.get("pid"):
        return folder
    try:
        st = Path(f"/proc/{record.raw['pid']}/root/workspace").stat()
    except OSError:  # its process is ending, or belongs to another user
        return folder
    return folder if os.path.samestat(now, st) else f"{folder} is another folder now"
