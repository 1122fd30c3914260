"""Changes existing microVMs: name, labels, CPUs and memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.microsandbox import boots, create_options, labels, sdk, translate
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.backends.microsandbox.translate import View
from sandbox_console.errors import BackendError, Conflict, UsageError
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec

_RESTART = "requires restart"
"""The word in the runtime's plan for what it cannot change while the microVM is running."""

_FIELDS = {"memory": "memory_mib", "cpus": "cpus"}


async def rename(module: Any, looker: Inventory, ref: SandboxRef, name: str) -> None:
    """Rename it in the console. The runtime keeps its own name for it. Raises Conflict if the name is taken."""
    if any(one.name == name and one.ref != ref for one in await looker.list()):
        raise name_taken(name)
    if one := await looker.waiting(module, ref):
        await asyncio.to_thread(looker.pending.change, one, structs.replace(one.spec, name=name))
        return
    handle = await looker.handle(module, ref)
    if not translate.view(handle).managed:
        raise Conflict(f"sandbox {handle.name} was not made by this console, so it cannot be renamed here")
    await _modify(module, handle, labels={labels.NAME: name})


async def update(module: Any, looker: Inventory, ref: SandboxRef, spec: SandboxSpec) -> None:
    """Change labels, cpus and memory to the spec. Raises Conflict if the microVM was made for less."""
    if one := await looker.waiting(module, ref):
        await asyncio.to_thread(looker.pending.change, one, spec)
        return
    handle = await looker.handle(module, ref)
    view = translate.view(handle)
    await _resize(module, handle, view, spec)
    kept = labels.users(view.labels)
    new = {**spec.labels, labels.SPEC: json.dumps(spec.to_dict(), ensure_ascii=False)}
    await _modify(module, handle, labels=new, labels_rm=[key for key in kept if key not in spec.labels] or None)


async def out_of_bounds(module: Any, looker: Inventory, ref: SandboxRef, spec: SandboxSpec) -> Mapping[str, str]:
    """The parts of a change to ``spec`` that a running microVM does not accept, by the runtime's own plan."""
    handle = await looker.started(module, ref)
    if handle is None or str(handle.status) not in ("running", "paused"):
        return {}
    if str(handle.status) == "paused":
        return dict.fromkeys(("name", "labels", "cpus", "memory_mib"), "it is paused: resume it first")
    if not (changes := _sizes(translate.view(handle), spec)):
        return {}
    if below := await _below_boot(handle, changes):
        return {"memory_mib": f"{below}: stop it first"}
    request = handle.modify(policy=module.ModificationPolicy.NO_RESTART, dry_run=True, **changes)
    plan = await sdk.call(module, f"sandbox {handle.name}", request)
    bounds = {one["field"]: one.get("before", "") for one in plan["changes"] if one["disposition"] == _RESTART}
    return {
        _FIELDS[field]: f"it was made to grow to {bounds.get(f'max_{field}', 'less')} while it runs: stop it first"
        for field in bounds.keys() & _FIELDS.keys()
    }


def _sizes(view: View, spec: SandboxSpec) -> dict[str, int]:
    """The changed sizes, by the runtime's names."""
    changes: dict[str, int] = {}
    if view.spec is None or spec.memory_mib != view.spec.memory_mib:
        changes["memory"] = spec.memory_mib or create_options.DEFAULT_MIB
    if view.spec is None or spec.cpus != view.spec.cpus:
        changes["cpus"] = create_options.whole_cpus(spec)
    return changes


async def _below_boot(handle: Any, changes: Mapping[str, int]) -> str:
    """Why a running microVM cannot have this little memory; empty if it can. The runtime would record it anyway."""
    pids = await asyncio.to_thread(boots.processes) if "memory" in changes else {}
    booted = await asyncio.to_thread(boots.booted_mib, pids.get(str(handle.id)))
    if booted is None or changes["memory"] >= booted:
        return ""
    return f"it booted with {booted} MiB, and gives nothing of that back while it runs"


async def _resize(module: Any, handle: Any, view: View, spec: SandboxSpec) -> None:
    if changes := _sizes(view, spec):
        live = str(handle.status) in ("running", "paused")
        if live and (below := await _below_boot(handle, changes)):
            raise _refused(handle, below)
        room = {} if live or "memory" not in changes else {"max_memory": changes["memory"] * create_options.HEADROOM}
        await _modify(module, handle, **changes, **room)


async def _modify(module: Any, handle: Any, **changes: Any) -> None:
    live = str(handle.status) in ("running", "paused")
    policy = module.ModificationPolicy.NO_RESTART if live else module.ModificationPolicy.NEXT_START
    try:
        plan = await sdk.call(module, f"sandbox {handle.name}", handle.modify(policy=policy, **changes))
    except (BackendError, UsageError) as error:
        _, words, reason = error.message.partition("cannot apply modification: ")
        raise _refused(handle, reason) if words else error from error.__cause__
    if not plan["applied"]:
        conflicts = "; ".join(f"{one['field']}: {one['message']}" for one in plan["conflicts"])
        raise _refused(handle, conflicts or "the runtime refused it")


def _refused(handle: Any, reason: str) -> Conflict:
    return Conflict(
        f"sandbox {handle.name} cannot be changed like this: {reason}", hint="stop it first, and resume a paused one"
    )
