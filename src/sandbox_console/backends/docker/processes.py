"""A container's processes, its changed files, and the engine's own description of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sandbox_console.backends.docker.failures import Refused, about
from sandbox_console.backends.docker.labels import SPEC
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.model.guest import GuestProcess, PathChange
from sandbox_console.model.secret import MASK

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

_COLUMNS = "-eo pid,ppid,uid,cputimes,rss,stat,args"
"""Columns for procps' ps, which the engine's host runs. The engine joins everything from the last one's start on."""

_KINDS = {0: "changed", 1: "added", 2: "deleted"}


async def processes(engine: Engine, id: str) -> Sequence[GuestProcess]:
    """The processes that are running in it, with its own pids if the engine is on this host, else the host's.

    Raises NotFound, or Conflict if it is not running.
    """
    with about(described(id)):
        try:
            found = await engine.call("GET", container_path(id, "top"), params={"ps_args": _COLUMNS})
        except Refused as error:
            if error.status in (404, 409):
                raise
            # busybox's ps on the engine's host has none of these columns.
            found = await engine.call("GET", container_path(id, "top"))
    titles = [_word(title) for title in found["Titles"]]
    rows = [_process(dict(zip(titles, row, strict=False))) for row in found["Processes"] or ()]
    if engine.endpoint.socket is None:
        return rows
    return await asyncio.to_thread(_as_seen_inside, id, rows)


async def changes(engine: Engine, id: str) -> Sequence[PathChange]:
    """How its root differs from its image, by path."""
    with about(described(id)):
        found = await engine.call("GET", container_path(id, "changes"), timeout_s=120)
    return [PathChange(str(one["Path"]), _KINDS.get(one["Kind"], "changed")) for one in found or ()]


async def raw(engine: Engine, id: str) -> Mapping[str, Any]:
    """The engine's inspect. The values of environment variables are masked, also where our label repeats them."""
    with about(described(id)):
        found: dict[str, Any] = await engine.call("GET", container_path(id, "json"))
    config = found.get("Config") or {}
    config["Env"] = [f"{entry.partition('=')[0]}={MASK}" for entry in config.get("Env") or ()]
    labels = config.get("Labels") or {}
    if SPEC in labels:
        labels[SPEC] = _masked_spec(labels[SPEC])
    return found


def _masked_spec(text: str) -> str:
    try:
        spec = json.loads(text)
        spec["env"] = dict.fromkeys(spec.get("env") or {}, MASK)
        return json.dumps(spec, sort_keys=True)
    except (ValueError, TypeError, AttributeError):
        return MASK  # a forged one may contain anything


def _as_seen_inside(id: str, rows: list[GuestProcess]) -> list[GuestProcess]:
    """Processes with the pids of the innermost namespace; unchanged if this host's /proc is not the engine's."""
    known = {row.pid: pids[-1] for row in rows if (pids := _pids_of(row.pid, id))}
    if not known:
        return rows
    return [
        structs.replace(row, pid=known[row.pid], parent=known.get(row.parent or 0, 0))
        for row in rows
        if row.pid in known  # the others have ended meanwhile
    ]


def _pids_of(pid: int, id: str) -> list[int]:
    """A process's pid in each namespace that it is in (proc(5), NSpid); empty if it is not the container's."""
    folder = Path(f"/proc/{pid}")
    try:
        if id not in (folder / "cgroup").read_text():
            return []
        lines = (folder / "status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next(([int(word) for word in line.split()[1:]] for line in lines if line.startswith("NSpid:")), [])


def _word(title: str) -> str:
    return {"CMD": "COMMAND", "UID": "USER"}.get(title.upper(), title.upper())


def _process(row: Mapping[str, str]) -> GuestProcess:
    memory = _number(row.get("RSS", ""))
    return GuestProcess(
        pid=_number(row.get("PID", "")) or 0,
        parent=_number(row.get("PPID", "")),
        user=_user(row.get("USER", "")),
        cpu_s=_cpu(row.get("TIME", "")),
        memory_bytes=memory * 1024 if memory is not None else None,
        state=row.get("STAT", ""),
        command=row.get("COMMAND", ""),
    )


def _user(uid: str) -> str:
    # Users are numbers, as names would be those of the engine's host.
    return "root" if uid == "0" else uid


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _cpu(text: str) -> float | None:
    """Seconds, from a number or from ps -f's format [[days-]hours:]minutes:seconds."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+)*", text):
        return None
    days, _, rest = text.rpartition("-")
    total = 0
    for part in rest.split(":"):
        total = total * 60 + int(part)
    return float(total + int(days or 0) * 86400)
