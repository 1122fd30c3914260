"""A running sandbox's processes, and everything on disk about it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandbox_console.backends.bubblewrap import jail, stats
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.backends.common.messages import not_running
from sandbox_console.model.guest import GuestProcess

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MASK = "***"
_COMMAND_CAP = 4096


def processes(record: Record) -> list[GuestProcess]:
    """The guest's processes, with their pids inside. Blocks: about 0.1 ms a process. Raises Conflict."""
    if not record.status.live:
        raise not_running(record.spec.name, record.status)
    name, uid, _gid = jail.identity(record.spec.user, jail.root_of(record.spec.image))
    outer = os.geteuid() if record.uid is None else record.uid
    pids = stats.processes(record.raw)
    inside = dict(_inside(pids))
    return [
        process for pid in sorted(pids, key=lambda pid: inside.get(pid, 0))
        if (process := _process(pid, inside, {outer: f"{name} ({uid})" if name != "root" else name})) is not None
    ]  # fmt: skip


def _inside(pids: list[int]) -> Iterator[tuple[int, int]]:
    """Each process with its pid in the innermost namespace: the last of ``NSpid`` in proc_pid_status(5)."""
    for pid in pids:
        for line in _read(pid, "status").splitlines():
            if line.startswith(b"NSpid:"):
                yield pid, int(line.split()[-1])


def _process(pid: int, inside: Mapping[int, int], users: Mapping[int, str]) -> GuestProcess | None:
    """One process from proc_pid_stat(5); None if it has ended meanwhile."""
    head, _, rest = _read(pid, "stat").rpartition(b")")
    if not head or pid not in inside:
        return None
    fields = rest.split()
    words = _read(pid, "cmdline")[:_COMMAND_CAP].rstrip(b"\0").replace(b"\0", b" ")
    owner = _owner(pid)
    return GuestProcess(
        pid=inside[pid],
        parent=inside.get(int(fields[1]), 0),
        user=users.get(owner, str(owner)),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory_bytes=int(fields[21]) * _PAGE,
        state=fields[0].decode(),
        command=(words or b"[" + head.partition(b"(")[2] + b"]").decode("utf-8", "surrogateescape"),
    )


def _owner(pid: int) -> int:
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[2])
    return -1


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def raw(record: Record) -> dict[str, Any]:
    """What is stored about a sandbox; the values of its variables are masked."""
    spec = record.spec.to_dict()
    if "env" in spec:
        spec["env"] = dict.fromkeys(spec["env"], _MASK)
    uid = os.geteuid() if record.uid is None else record.uid
    return {
        "id": record.id,
        "folder": str(record.folder),
        "created_at": record.created_at,
        "uid": uid,
        "user": _name(uid),
        "state": str(record.status),
        "detail": record.detail,
        "spec": spec,
        "status": dict(record.raw),
        "logs": [
            {"file": path.name, "bytes": path.stat().st_size} for path in sorted((record.folder / "logs").glob("*.log"))
        ],
    }


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
