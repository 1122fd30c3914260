"""One call of the SDK: a request on standard input, and its answer on standard output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from sandbox_console.errors import ConsoleError, Unsupported, UsageError
from sandbox_console.model.actor import acting_as
from sandbox_console.servers.a3s_box import files, host, lifecycle
from sandbox_console.servers.a3s_box.boxes import Boxes
from sandbox_console.servers.a3s_box.protocol import (
    OPERATIONS,
    PROTOCOL,
    Command,
    Create,
    Events,
    File,
    Identity,
    Logs,
    Named,
    Resources,
    Restart,
    SnapshotOf,
    failure,
    success,
)
from sandbox_console.service import Console, open_console

MOST_BYTES = 64 << 20
"""Of a request: 16 MiB for a file in base64 are 22."""
T = TypeVar("T")
Does = Callable[[Boxes, Any], Awaitable[Mapping[str, Any]]]


class _Operation(Struct):
    operation: str


def _whole(does: Callable[[Boxes], Awaitable[Mapping[str, Any]]]) -> Does:
    return lambda boxes, _: does(boxes)


def _same(result: Mapping[str, Any]) -> Does:
    async def answer(_: Boxes, __: object) -> Mapping[str, Any]:
        return result

    return answer


_DOES: Mapping[str, tuple[type[Struct], Does]] = {
    "runtime_diagnostics": (Named, _whole(host.diagnostics)),
    "image_pull": (Named, host.pull),
    "image_get": (Named, host.image),
    "image_list": (Named, _whole(host.images)),
    "image_remove": (Named, host.remove_image),
    "volume_get": (Named, _same({"volume": None})),
    "volume_list": (Named, _same({"volumes": ()})),
    "volume_prune": (Named, _same({"names": ()})),
    "network_get": (Named, _same({"network": None})),
    "network_list": (Named, _same({"networks": ()})),
    "network_prune": (Named, _same({"names": ()})),
    "sandbox_list": (Named, lifecycle.listed),
    "sandbox_get": (Named, lifecycle.got),
    "sandbox_create": (Create, lifecycle.create),
    "sandbox_inspect": (Identity, lifecycle.inspect),
    "sandbox_stop": (Identity, lambda boxes, asked: lifecycle.changed(boxes, asked, lifecycle.stop)),
    "sandbox_restart": (Restart, lifecycle.restart),
    "sandbox_remove": (Identity, lifecycle.remove),
    "sandbox_kill": (Identity, lifecycle.kill),
    "sandbox_pause": (Identity, lambda boxes, asked: lifecycle.changed(boxes, asked, lambda one: one.pause())),
    "sandbox_resume": (Identity, lambda boxes, asked: lifecycle.changed(boxes, asked, lambda one: one.resume())),
    "sandbox_logs": (Logs, lifecycle.logs),
    "sandbox_stats": (Identity, lifecycle.stats),
    "sandbox_processes": (Identity, lifecycle.processes),
    "sandbox_events": (Events, lifecycle.events),
    "sandbox_update_resources": (Resources, lifecycle.update),
    "sandbox_snapshot_create": (SnapshotOf, lifecycle.save),
    "filesystem_snapshot_list": (Named, _whole(host.snapshots)),
    "filesystem_snapshot_get": (Named, host.snapshot),
    "filesystem_snapshot_size": (Named, host.snapshot_size),
    "filesystem_snapshot_delete": (Named, host.remove_snapshot),
    "command_run": (Command, files.run),
    "file_write": (File, files.write),
    "file_read": (File, files.read),
    "filesystem_stat": (File, files.stat),
    "filesystem_list": (File, files.listed),
    "filesystem_make_dir": (File, files.make_dir),
    "filesystem_move": (File, files.move),
    "filesystem_remove": (File, files.remove),
}


def bridge(config: Path | None, backend: str, hosts: Sequence[str], *, read_only: bool) -> int:
    """Answer the call on standard input. Returns 0: what went wrong is in the answer."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    try:
        answer = asyncio.run(_answer(data, config, backend, hosts, read_only=read_only))
    except ConsoleError as error:  # the configuration is wrong, for one
        answer = failure(error)
    except Exception as error:  # noqa: BLE001 - a caller gets an answer in the protocol, whatever it is
        answer = failure(ConsoleError(f"unexpected {type(error).__name__}: {error}"))
    sys.stdout.buffer.write(answer + b"\n")
    sys.stdout.buffer.flush()
    return 0


async def _answer(data: bytes, config: Path | None, backend: str, hosts: Sequence[str], *, read_only: bool) -> bytes:
    if len(data) > MOST_BYTES:
        raise UsageError(f"the request is larger than {MOST_BYTES >> 20} MiB")
    operation = _decoded(data, _Operation).operation
    if operation not in OPERATIONS:
        raise UsageError(f"unknown operation {operation!r}")
    if operation in host.REFUSED:
        raise Unsupported(f"{operation}: {host.REFUSED[operation]}")
    if operation == "sdk_capabilities":
        return success({"protocol_version": PROTOCOL, "operations": OPERATIONS})
    asked = _decoded(data, _DOES[operation][0])
    opening = open_console(config_file=config, read_only=read_only, only_backend=backend, only_hosts=hosts)
    async with opening as opened:
        return await perform(opened, operation, asked)


async def perform(opened: Console, operation: str, asked: Struct) -> bytes:
    """Do what is asked for; returns the answer."""
    user = opened.audit_log.actor.partition(":")[2] or opened.audit_log.actor
    with acting_as(f"a3s-box:{user}"):
        try:
            return success(await _DOES[operation][1](Boxes(opened), asked))
        except ConsoleError as error:
            return failure(error)


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"invalid SDK bridge request: {error}"[:300]) from None
