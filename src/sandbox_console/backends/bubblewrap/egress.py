"""A sandbox's egress: its rules and records on disk, and its gateway, reached from inside the sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from sandbox_console import egress
from sandbox_console.backends import gateway_rules
from sandbox_console.backends.bubblewrap.client import Connection
from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.backends.bubblewrap.supervise.gateway import PORT
from sandbox_console.egress import ask, rule_files
from sandbox_console.egress.records import follow
from sandbox_console.errors import BackendError, ConsoleError
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.spec import SandboxSpec

_PROGRAM = Path(egress.__file__).with_name("__main__.py")


def variables(spec: SandboxSpec) -> dict[str, str]:
    """The variables that point every command to the gateway; empty without a network."""
    return rule_files.variables(f"http://127.0.0.1:{PORT}") if spec.egress else {}


def folder(record: Record) -> Path:
    """Where the gateway's rules and records are."""
    return record.folder / "egress"


def prepare(record: Record, options: Options) -> dict[str, Any] | None:
    """The gateway's settings for the supervisor; None if there is none. Creates a missing folder."""
    if not record.spec.egress:
        return None
    gateway_rules.prepare(folder(record), record.spec.name, record.spec.egress, options.egress_hosts)
    # The gateway has a user of its own, so neither the guest nor another sandbox's gateway can touch it.
    uid = None if record.uid is None else record.uid + options.uid_count
    return {"program": str(_PROGRAM), "folder": str(folder(record)), "uid": uid}


def renamed(record: Record, name: str) -> None:
    """Write the sandbox's new name into the rules, if a start has created them."""
    if record.spec.egress and folder(record).is_dir():
        gateway_rules.rename(folder(record), name)


async def state(record: Record) -> EgressState:
    """The rules in force, and whether the gateway answers."""
    if not record.spec.egress:
        return EgressState()
    reason = "" if record.status.live else f"{record.spec.name} is not running: it is {record.status}"
    if record.status.live:
        try:
            await probe(record, "gateway.invalid", 443)
        except ConsoleError as error:
            reason = error.message
    return await asyncio.to_thread(gateway_rules.state, folder(record), record.spec.egress, reason)


async def put(record: Record, rules: Sequence[EgressRule], options: Options) -> None:
    """Put rules in force. Raises Unsupported if there is no gateway to apply them."""
    _needs_gateway(record)
    await asyncio.to_thread(prepare, record, options)
    await asyncio.to_thread(gateway_rules.put, folder(record), rules)


async def probe(record: Record, host: str, port: int) -> EgressVerdict:
    """Ask the gateway from inside the sandbox's network. Raises Unsupported, Conflict, BackendError."""
    _needs_gateway(record)
    connection = await Connection.open(record.folder, record.spec.name)
    try:
        connection.send({"op": "door"})
        message, fds = await connection.receive()
    finally:
        connection.close()
    if not message or "error" in message or not fds:
        reason = (message or {}).get("error", "its supervisor does not answer")
        raise BackendError(f"the door of {record.spec.name} to its gateway cannot be opened: {reason}")
    with socket.socket(fileno=fds[0]) as door:
        for fd in fds[1:]:
            os.close(fd)
        try:
            return await asyncio.to_thread(ask.exchange, door, host, port)
        except (OSError, ValueError) as error:
            raise BackendError(f"the gateway of {record.spec.name} does not answer: {error or 'no answer'}") from error


def records_folder(record: Record) -> Path | None:
    """Where the gateway's records are; None if there is no gateway."""
    return folder(record) / "records" if record.spec.egress else None


def records(record: Record, since: float | None, following: bool) -> AsyncGenerator[EgressRecord, None]:
    """The recorded decisions of a sandbox's gateway."""
    return follow(folder(record) / "records", since, following)


def _needs_gateway(record: Record) -> None:
    if not record.spec.egress:
        raise gateway_rules.needless(record.spec.name)
