"""``rename``, ``commit``, ``fork`` and ``snapshot``: derive from sandboxes, and keep snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from sandbox_console.cli.context import Context
from sandbox_console.cli.create import follow
from sandbox_console.cli.formatting import Columns, duration, size
from sandbox_console.cli.hosts import able, able_as_answered, one_host, refuse_doubts
from sandbox_console.cli.lookup import find
from sandbox_console.errors import NotFound
from sandbox_console.model.action import (
    Action,
    Commit,
    Fork,
    Rename,
    TakeSnapshot,
)
from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import RemoveSnapshot, RestoreSnapshot
from sandbox_console.model.image import Snapshot
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import ActionResult, Console

_HEAD = ("NAME", "OF", "KIND", "AGE", "SIZE", "BACKEND")


async def derive(context: Context) -> int:
    """``rename NAME NEW``, ``commit NAME IMAGE``, ``fork NAME NEW``: prints the new name."""
    args = context.args
    async with context.open() as console:
        sandbox = await find(context, console, args.name, changing=True)
        if args.verb != "commit" and not args.only_answering:
            await console.refuse_held(args.new)
        result = await _perform(context, console, _action(context, sandbox.ref), sandbox.ref.id)
    if context.json:
        data: dict[str, Any] = {"name": sandbox.name, "ref": str(result.ref), "action": args.verb, "new": args.new}
        context.record(data | {"audit_id": result.audit_id} | result.details)
    else:
        context.text(args.new)
    return 0


def _action(context: Context, ref: SandboxRef) -> Action:
    args = context.args
    match args.verb:
        case "rename":
            return Rename(ref, args.new)
        case "commit":
            return Commit(ref, args.new)
        case _:
            return Fork(ref, args.new)


async def _perform(context: Context, console: Console, action: Action, id: str = "") -> ActionResult:
    return await follow(context, console.perform(action, consent=context.consent(id)))


async def snapshot(context: Context) -> int:
    """``create``, ``ls``, ``restore`` or ``rm``."""
    verbs = {"create": _create, "ls": _ls, "restore": _restore, "rm": _rm}
    async with context.open() as console:
        await verbs[context.args.what](context, console)
    return context.code


async def _create(context: Context, console: Console) -> None:
    args = context.args
    sandbox = await find(context, console, args.name, changing=True)
    result = await _perform(context, console, TakeSnapshot(sandbox.ref, args.snapshot, args.full), sandbox.ref.id)
    _tell(context, args.snapshot, result, {"name": sandbox.name, "ref": str(sandbox.ref)})


async def _ls(context: Context, console: Console) -> None:
    columns = Columns(_HEAD)
    async with aclosing(able_as_answered(context, console, Capability.SNAPSHOT)) as hosts:
        async for backend, host in hosts:
            if found := await console.inside.snapshots(backend, host):
                _print(context, columns, sorted(found, key=lambda snapshot: snapshot.name))
    _print(context, columns, ())


def _print(context: Context, columns: Columns, snapshots: Sequence[Snapshot]) -> None:
    if context.json:
        for snapshot in snapshots:
            context.record(msgspec.to_builtins(snapshot))
        return
    for line in columns.lines(_row(snapshot, context.now()) for snapshot in snapshots):
        context.streams.out.line(line)


def _row(snapshot: Snapshot, now: float) -> tuple[str, ...]:
    age = duration(None if snapshot.created_at is None else now - snapshot.created_at)
    kind = "full" if snapshot.full else "disk"
    return (
        snapshot.name,
        snapshot.of or "-",
        kind,
        age,
        size(snapshot.size_bytes),
        f"{snapshot.backend}/{snapshot.host}",
    )


async def _restore(context: Context, console: Console) -> None:
    args = context.args
    if not args.only_answering:
        await console.refuse_held(args.name)
    backend, host = await _holder(context, console, args.snapshot)
    result = await _perform(context, console, RestoreSnapshot(backend, host, args.snapshot, args.name))
    _tell(context, args.name, result, {"name": args.name, "ref": str(result.ref)})


async def _rm(context: Context, console: Console) -> None:
    for name in dict.fromkeys(context.args.snapshots):
        backend, host = await _holder(context, console, name)
        result = await _perform(context, console, RemoveSnapshot(backend, host, name))
        _tell(context, name, result, {"snapshot": name, "backend": backend, "host": host})


async def _holder(context: Context, console: Console, name: str) -> tuple[str, str]:
    """The backend that keeps a snapshot. Raises NotFound, or BackendUnreachable if a silent one may keep it (too)."""
    found = await able(context, console, Capability.SNAPSHOT)
    kept = {key: await console.inside.snapshots(*key) for key in found.hosts}
    holders = [key for key, snapshots in kept.items() if any(one.name == name for one in snapshots)]
    refuse_doubts(found.doubts, f"may keep a snapshot called {name!r}")
    if not holders:
        raise NotFound(f"no snapshot is called {name!r}", hint="sandbox-console snapshot ls")
    return one_host(holders, f"a snapshot called {name!r}")


def _tell(context: Context, text: str, result: ActionResult, data: dict[str, Any]) -> None:
    if context.json:
        context.record(data | {"action": f"snapshot {context.args.what}", "audit_id": result.audit_id} | result.details)
    else:
        context.text(text)
