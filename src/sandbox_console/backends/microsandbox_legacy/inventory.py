"""Puts together what a server lists, which is little, and what this console asked it for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from sandbox_console.backends.common.ledger import Entry
from sandbox_console.backends.microsandbox_legacy.rpc import Row
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "microsandbox_legacy"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_UNTOLD = "a microsandbox server of version 0.1 or 0.2 does not tell"
_LOST = "the server does not have it any more"


def place(namespace: str, name: str) -> str:
    """What the server calls a sandbox. A hostile server may list any name, so odd characters are escaped."""
    return f"{quote(namespace, safe='')}.{quote(name, safe='')}"


def merged(host: str, rows: Iterable[Row], entries: Mapping[str, Entry]) -> list[Sandbox]:
    """All sandboxes: those that the server lists, and those that were created and not started yet."""
    by_place = {entry.place: entry for entry in entries.values()}
    listed = {place(row.namespace, row.name): row for row in rows}
    found = [_of_row(host, row, by_place.get(where)) for where, row in listed.items()]
    return found + [_unlisted(host, entry) for where, entry in by_place.items() if where not in listed]


def _of_row(host: str, row: Row, entry: Entry | None) -> Sandbox:
    if entry is None:
        status = Status.RUNNING if row.running else Status.EXITED
        return _sandbox(host, place(row.namespace, row.name), row.name, status, row, None)
    if row.running:
        status = Status.RUNNING
    else:
        status = Status.EXITED if entry.started_at is not None else Status.CREATED
    return _sandbox(host, entry.id, row.name, status, row, entry)


def _unlisted(host: str, entry: Entry) -> Sandbox:
    status = Status.CREATED
    if entry.started_at is not None:
        status = Status.LOST if entry.finished_at is None else Status.EXITED
    name = entry.spec.name if entry.spec is not None else entry.place.rpartition(".")[2]
    return _sandbox(host, entry.id, name, status, None, entry)


def _sandbox(host: str, id_: str, name: str, status: Status, row: Row | None, entry: Entry | None) -> Sandbox:
    spec = entry.spec if entry is not None else None
    runs = status is Status.RUNNING
    return Sandbox(
        ref=SandboxRef(BACKEND, host, id_),
        name=name,
        status=status,
        image=spec.image if spec is not None else "",
        created_at=entry.created_at if entry else None,
        started_at=entry.started_at if entry else None,
        finished_at=entry.finished_at if entry and not runs else None,
        exit=_exit(status, entry),
        labels=dict(spec.labels) if spec is not None else {},
        managed=entry is not None,
        maker="" if entry is not None else "microsandbox",
        spec=spec,
        effective=tuple(_facts(row, spec)),
        detail=_LOST if status is Status.LOST else "",
    )


def _exit(status: Status, entry: Entry | None) -> Exit | None:
    if status is not Status.EXITED:
        return None
    return (entry.exit if entry is not None else None) or Exit(reason="the server does not tell how it ended")


def _facts(row: Row | None, spec: SandboxSpec | None) -> Sequence[Fact]:
    """What is known; what the server does not tell is said to be unknown."""
    facts = [Fact("namespace", row.namespace)] if row is not None and row.namespace else []
    if spec is None:
        return [*facts, *(Fact(name, "unknown", _UNTOLD, enforced=False) for name in ("image", "cpus", "memory_mib"))]
    facts += [Fact("cpus", f"{spec.cpus:g}")] if spec.cpus is not None else []
    facts += [Fact("memory_mib", str(spec.memory_mib))] if spec.memory_mib is not None else []
    if row is not None and row.disk_usage is not None:
        facts.append(Fact("disk", str(row.disk_usage), "bytes, as the server says"))
    return [*facts, Fact("egress", "none", "as no_network in the configuration says")]
