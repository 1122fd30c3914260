"""Reads a container's usage from the cgroup files of this machine, in the format of the engine's samples.

The engine does work for each sample requested from it (0.13 % of a core per row every 2 s on 20.10). It reads these
files itself, and any user may read them. Files and units: the kernel's cgroup-v1 and cgroup-v2 documents, proc(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path("/sys/fs/cgroup")
_NS_A_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


def read(pid: int, id: str) -> Mapping[str, Any] | None:
    """One sample; None if ``pid`` is not a process of the container ``id`` here, or the files cannot be read."""
    try:
        groups = dict(_groups(pid, id))
        sample = _second(groups[""]) if _unified() else _first(groups)
        sample["networks"] = dict(_networks(pid))
    except (OSError, ValueError, LookupError):
        return None
    sample["read"] = datetime.now(UTC).isoformat()
    sample["cpu_stats"] |= {"system_cpu_usage": _host_cpu(), "online_cpus": os.sysconf("SC_NPROCESSORS_ONLN")}
    return sample


def _unified() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def _groups(pid: int, id: str) -> Iterator[tuple[str, Path]]:
    """The controllers and their folders that belong to the container. Version 2 has one controller, ``""``."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if id in path:
            for name in names.split(","):
                yield name, ROOT / name / path.lstrip("/")


def _first(groups: Mapping[str, Path]) -> dict[str, Any]:
    memory, blocks = groups["memory"], groups.get("blkio")
    return {
        "cpu_stats": {"cpu_usage": {"total_usage": _number(groups["cpuacct"] / "cpuacct.usage")}},
        "memory_stats": {
            "usage": _number(memory / "memory.usage_in_bytes"),
            "limit": _number(memory / "memory.limit_in_bytes"),
            "stats": _table(memory / "memory.stat"),
        },
        "pids_stats": {"current": _number(groups["pids"] / "pids.current")} if "pids" in groups else {},
        "blkio_stats": {"io_service_bytes_recursive": [*_blocks(blocks)] if blocks else None},
    }


def _blocks(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "blkio.throttle.io_service_bytes_recursive").read_text().splitlines():
        words = line.split()  # "8:0 Read 4096", and a total of two words
        if len(words) == 3:
            yield {"op": words[1], "value": int(words[2])}


def _second(folder: Path) -> dict[str, Any]:
    limit = (folder / "memory.max").read_text().strip()
    return {
        "cpu_stats": {"cpu_usage": {"total_usage": _table(folder / "cpu.stat")["usage_usec"] * 1000}},
        "memory_stats": {
            "usage": _number(folder / "memory.current"),
            "limit": None if limit == "max" else int(limit),
            "stats": _table(folder / "memory.stat"),
        },
        "pids_stats": {"current": _number(folder / "pids.current")},
        "blkio_stats": {"io_service_bytes_recursive": [*_devices(folder)]},
    }


def _devices(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "io.stat").read_text().splitlines():  # "8:0 rbytes=4096 wbytes=0 ..."
        found = dict(word.partition("=")[::2] for word in line.split()[1:])
        for name, operation in (("rbytes", "read"), ("wbytes", "write")):
            yield {"op": operation, "value": int(found.get(name, 0))}


def _networks(pid: int) -> Iterator[tuple[str, dict[str, int]]]:
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if name.strip() != "lo":
            yield name.strip(), {"rx_bytes": int(fields[0]), "tx_bytes": int(fields[8])}


def _host_cpu() -> int:
    """Nanoseconds of all processors since boot, idle time included; guests' time is already part of the users' time."""
    first = Path("/proc/stat").read_text().split("\n", 1)[0]
    return sum(map(int, first.split()[1:9])) * _NS_A_TICK


def _number(path: Path) -> int:
    return int(path.read_text())


def _table(path: Path) -> dict[str, int]:
    return {key: int(value) for key, _, value in (line.partition(" ") for line in path.read_text().splitlines())}
