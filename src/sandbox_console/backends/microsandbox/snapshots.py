"""Makes and restores snapshots: a disk, or a disk with its memory. Also makes copies of running sandboxes.

Each snapshot is a group of its own in the runtime, which could not remove the newest of a group with others built on
it. What a restored sandbox needs besides its disk is in the snapshot's labels, as the runtime stores neither labels nor
network policy, and would give a restored sandbox its default network.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets as random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.microsandbox import create_options, labels, lifecycle, network, ports, sdk, translate
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.errors import BackendError, Conflict, ConsoleError, InvalidSpec, NotFound, Unsupported, UsageError
from sandbox_console.model import ports as published
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.image import Snapshot
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9_-])?")
"""The names that the runtime accepts, with some room left for a prefix."""

_OF = f"{labels.OWN}of"


async def all_of(module: Any) -> Sequence[Snapshot]:
    """All snapshots that the runtime stores, others' included."""
    return [await _snapshot(module, one) for one in await sdk.call(module, "its snapshots", module.Snapshot.list())]


async def take(module: Any, handle: Any, name: str, *, full: bool) -> Snapshot:
    """Save a sandbox's disk and, with ``full``, its memory, for which it must run without a main process."""
    view = translate.view(handle)
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a snapshot", hint="use up to 100 letters and digits; '-', '_' and '.' within"
        )
    if view.spec is None:
        raise Unsupported(f"sandbox {view.shown_name} was made by another tool", hint="use msb snapshot")
    if view.spec.image.startswith("dir:"):
        raise Unsupported(
            f"sandbox {view.shown_name} is made of a folder of this host, and microsandbox saves only disks of images",
            hint="copy files out, or make it of an image",
        )
    if any(snapshot.name == name for snapshot in await all_of(module)):
        raise Conflict(f"a snapshot called {name!r} exists already")
    if full and view.status != "running":
        raise Conflict(
            f"sandbox {view.shown_name} is not running, so there is no memory to save", hint="leave out full"
        )
    made_one = await _taken(module, view, name, full)
    handle_of = await _found(module, name)
    return await _snapshot(module, handle_of if handle_of is not None else made_one)


async def _taken(module: Any, view: translate.View, name: str, full: bool) -> Any:
    kept = {labels.SPEC: view.labels.get(labels.SPEC, ""), _OF: view.shown_name}
    if labels.SECRETS in view.labels:
        kept[labels.SECRETS] = view.labels[labels.SECRETS]
    taking = module.Snapshot.create(name, from_sandbox=view.name, group=_group(name), labels=kept, full=full)
    try:
        return await sdk.call(module, f"snapshot {name}", taking)
    except (BackendError, UsageError) as error:
        if "managed jobs are active" in error.message:
            raise Conflict(
                f"microsandbox saves no memory while a main process runs, and that of {view.shown_name} does",
                hint="save only the disk, or make the sandbox without a command and exec in it",
            ) from error
        raise


async def restore(module: Any, looker: Inventory, name: str, new: str, secrets: Sequence[ResolvedSecret]) -> SandboxRef:
    """Make a running sandbox called ``new``. Raises NotFound, Conflict, Unsupported."""
    found = await _found(module, name)
    if found is None:
        raise NotFound(f"there is no snapshot called {name!r}", hint="sandbox-console snapshots ls")
    opened = await sdk.call(module, f"snapshot {name}", module.Snapshot.open(found.reference))
    return await _restored(module, looker, found.reference, dict(opened.labels), new, secrets, full=_full(found))


async def _restored(
    module: Any, looker: Inventory, reference: str, kept: dict[str, str], new: str, secrets: Sequence[ResolvedSecret],
    *, full: bool,
) -> SandboxRef:  # fmt: skip
    spec = _spec(kept, new)
    if kept.get(labels.SECRETS):
        raise Unsupported(
            f"the snapshot's sandbox has placeholder secrets ({kept[labels.SECRETS]}), which the runtime cannot restore"
        )
    if any(sandbox.name == new for sandbox in await looker.list()):
        raise name_taken(new)
    options = await _options(module, spec, secrets, full=full)
    identity = new_id()
    own = identity, await asyncio.to_thread(looker.installation.made)
    try:
        await asyncio.to_thread(sdk.close_home)
        machine = await lifecycle.booted(module, new, lambda: module.Sandbox.restore(reference, name=new, **options))
        handle = await sdk.call(module, f"sandbox {new}", module.Sandbox.get(new))
        await sdk.call(module, f"sandbox {new}", handle.modify(labels=create_options.own_labels(own, spec, secrets)))
        await lifecycle.published(module, new)
        await lifecycle.launch(module, machine, structs.replace(spec, command=()) if full else spec, secrets)
    except BaseException as error:
        if not (isinstance(error, Conflict) and lifecycle.taken(error)):
            await run_to_completion(_dropped(module, new))
        raise
    return SandboxRef("microsandbox", "local", identity)


async def _options(module: Any, spec: SandboxSpec, secrets: Sequence[ResolvedSecret], *, full: bool) -> dict[str, Any]:
    """What the SDK is given for a restore."""
    places = await asyncio.to_thread(ports.choose, spec)
    options: dict[str, Any] = {
        "network_policy": network.policy(module, spec.egress, places),
        "ports": ports.bindings(module, places) or None,
        "volumes": create_options.volumes(module, spec, secrets) or None,
        "security": None if full else module.SecurityProfile.RESTRICTED,
        "max_duration": spec.max_duration_s,
        "idle_timeout": spec.idle_timeout_s,
        "cow_memory": full or None,
    }
    return {key: value for key, value in options.items() if value is not None}


async def _dropped(module: Any, name: str) -> None:
    """Remove what a failed restore has left."""
    with contextlib.suppress(ConsoleError):
        await lifecycle.destroy(module, await sdk.call(module, f"sandbox {name}", module.Sandbox.get(name)))


async def fork(module: Any, looker: Inventory, handle: Any, new: str, secrets: Sequence[ResolvedSecret]) -> SandboxRef:
    """Make a running copy with its memory, through a snapshot that is removed afterwards.

    The runtime's own fork does not accept sandboxes with a network policy, and its copy would have another network.
    """
    temporary = f"fork-{random.token_hex(6)}"
    view = translate.view(handle)
    if view.spec is None:
        raise Unsupported(f"sandbox {view.shown_name} was made by another tool", hint="use msb fork")
    await take(module, handle, temporary, full=True)
    try:
        return await restore(module, looker, temporary, new, secrets)
    finally:
        with contextlib.suppress(ConsoleError):
            await remove(module, temporary)


async def remove(module: Any, name: str) -> None:
    """Remove a snapshot. Raises NotFound, and Conflict if others are built on it."""
    found = await _found(module, name)
    if found is None:
        raise NotFound(f"there is no snapshot called {name!r}", hint="sandbox-console snapshots ls")
    try:
        await sdk.call(module, f"snapshot {name}", found.remove())
    except (BackendError, UsageError) as error:
        if "child snapshot" in error.message:
            raise Conflict(f"snapshot {name}: others are built on it", hint="remove those first") from error
        raise


def new_id() -> str:
    """A sandbox's id."""
    return random.token_hex(6)


def _group(name: str) -> str:
    return f"sc-{name}"


async def _found(module: Any, name: str) -> Any | None:
    everything = await sdk.call(module, "its snapshots", module.Snapshot.list())
    return next((one for one in everything if _shown(one) == name), None)


def _shown(one: Any) -> str:
    own = one.group == _group(str(one.name))
    return str(one.name or one.id) if own or not one.group else f"{one.group}:{one.name or one.id}"


def _full(one: Any) -> bool:
    return str(one.scope) == "full"


async def _snapshot(module: Any, one: Any) -> Snapshot:
    opened = await sdk.call(module, "a snapshot", module.Snapshot.open(one.reference))
    created = one.created_at
    spec: SandboxSpec | None = None
    with contextlib.suppress(Unsupported):  # made by another tool
        spec = _spec(dict(opened.labels), "snapshot")
    return Snapshot(
        backend="microsandbox",
        host="local",
        name=_shown(one),
        of=str(opened.labels.get(_OF) or opened.source_sandbox or ""),
        created_at=created / 1000 if isinstance(created, (int, float)) else datetime.fromisoformat(created).timestamp(),
        size_bytes=one.size_bytes,
        full=_full(one),
        secrets=spec.secrets if spec else (),
        workspace=spec.workspace or "" if spec else "",
    )


def _spec(kept: dict[str, str], name: str) -> SandboxSpec:
    """The spec of the original, with free ports of this host, as its own may be in use."""
    try:
        spec = SandboxSpec.from_dict(json.loads(kept[labels.SPEC]))
        return structs.replace(spec, name=name, ports=published.freed(spec.ports))
    except (KeyError, ValueError, InvalidSpec) as error:
        raise Unsupported(
            "the snapshot was made by another tool, which did not note what the sandbox may reach",
            hint="use msb restore",
        ) from error
