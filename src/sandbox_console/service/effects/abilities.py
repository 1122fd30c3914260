"""The effects that need one of a backend's abilities (``backends.abilities``)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, assert_never

from sandbox_console.backends.abilities import Attachable, Committing, Egress, Files, Images, Snapshots, able
from sandbox_console.errors import UsageError
from sandbox_console.model.action import (
    Attach,
    Bundle,
    ChangeEgress,
    Commit,
    DenyEgress,
    Download,
    Fork,
    Forward,
    InnerAction,
    Permit,
    Quarantine,
    Release,
    Rename,
    TakeSnapshot,
    Upload,
)
from sandbox_console.model.capability import Capability
from sandbox_console.model.host_action import (
    HostAction,
    LoadImage,
    PruneImages,
    PullImage,
    RemoveImage,
    RemoveSnapshot,
    RestoreSnapshot,
    SaveImage,
)
from sandbox_console.model.log import Stream
from sandbox_console.service.effects.attachment import watch
from sandbox_console.service.effects.call import Call
from sandbox_console.service.effects.egress import change
from sandbox_console.service.effects.port_forward import hold
from sandbox_console.service.effects.quarantine import quarantine, release
from sandbox_console.service.gate.operation import ActionResult, ExecIO


async def inner(action: InnerAction, permit: Permit, call: Call) -> ActionResult:  # noqa: C901, PLR0912 - a case a verb
    """The effect of an action on one sandbox."""
    backend, ref = call.backend, action.ref
    details: dict[str, Any] = {}
    match action:
        case Rename():
            await backend.rename(permit, ref, action.name)
        case Upload():
            source = Counted(_input(call.io))
            await able(backend, Files, Capability.COPY).upload(permit, ref, action.path, source.chunks())
            details["bytes"] = source.bytes
        case Download():
            files = able(backend, Files, Capability.COPY)
            details["bytes"] = await _send(files.download(permit, ref, action.path), call.io)
        case Attach():
            process = await able(backend, Attachable, Capability.ATTACH).attach(permit, ref)
            return await watch(process, permit, ref, call)
        case Forward():
            return await hold(action, permit, call)
        case Commit():
            details["image_id"] = await able(backend, Committing, Capability.COMMIT).commit(permit, ref, action.image)
        case TakeSnapshot():
            keeper = able(backend, Snapshots, Capability.SNAPSHOT)
            details["snapshot"] = (await keeper.take_snapshot(permit, ref, action.name, action.full)).name
        case Fork():
            keeper = able(backend, Snapshots, Capability.FORK)
            ref = await keeper.fork(permit, ref, action.name, call.secrets)
        case Bundle():
            details = await _evidence(action, permit, call)
        case Quarantine():
            details = await quarantine(action, permit, call, call.by)
        case Release():
            details = await release(action, permit, call)
        case ChangeEgress() | DenyEgress():
            gateway = able(backend, Egress, Capability.EGRESS_UPDATE)
            details = await change(gateway, permit, action, call.progress)
        case _:
            assert_never(action)
    return ActionResult(permit.audit_id, ref, details=details)


async def _evidence(action: Bundle, permit: Permit, call: Call) -> dict[str, Any]:
    """Let the action's owner collect evidence. Files are taken out of the sandbox under the action's permit."""
    if call.io.evidence is None:
        raise UsageError("this action needs a bundle to write to")

    def fetch(path: str) -> AsyncIterator[bytes]:
        return able(call.backend, Files, Capability.COPY).download(permit, action.ref, path)

    return dict(await call.io.evidence(fetch))


async def on_host(action: HostAction, permit: Permit, call: Call) -> ActionResult:
    """The effect of an action on a backend's images and snapshots."""
    if isinstance(action, RestoreSnapshot | RemoveSnapshot):
        return await _snapshots(action, permit, call)
    capability = Capability.IMAGE_FILES if isinstance(action, LoadImage | SaveImage) else Capability.IMAGES_CHANGE
    images = able(call.backend, Images, capability)
    details: dict[str, Any] = {}
    match action:
        case PullImage():
            details["image_id"] = await images.pull_image(permit, action.image, call.progress)
        case RemoveImage():
            await images.remove_image(permit, action.image, action.force)
        case PruneImages():
            gone = await images.prune_images(permit, action.unused)
            details = {"removed": [image.id for image in gone.images], "freed_bytes": gone.freed_bytes}
        case LoadImage():
            source = Counted(_input(call.io))
            details = {"image": await images.load_image(permit, source.chunks()), "bytes": source.bytes}
        case SaveImage():
            details["bytes"] = await _send(images.save_image(permit, action.image), call.io)
        case _:
            assert_never(action)
    return ActionResult(permit.audit_id, details=details)


async def _snapshots(action: RestoreSnapshot | RemoveSnapshot, permit: Permit, call: Call) -> ActionResult:
    keeper = able(call.backend, Snapshots, Capability.SNAPSHOT)
    if isinstance(action, RemoveSnapshot):
        await keeper.remove_snapshot(permit, action.snapshot)
        return ActionResult(permit.audit_id)
    ref = await keeper.restore_snapshot(permit, action.snapshot, action.name, call.secrets)
    return ActionResult(permit.audit_id, ref)


class Counted:
    """Passes chunks on and counts them."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self.bytes = 0
        self._source = source

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the source's chunks."""
        async for chunk in self._source:
            self.bytes += len(chunk)
            yield chunk


def _input(io: ExecIO) -> AsyncIterator[bytes]:
    if io.stdin is None:
        raise UsageError("this action needs an archive as its input")
    return io.stdin


async def _send(chunks: AsyncIterator[bytes], io: ExecIO) -> int:
    """Pass chunks to the action's output; returns the number of bytes. The source is always closed."""
    if io.on_output is None:
        raise UsageError("this action needs somewhere to put its output")
    sent = 0
    async with aclosing(chunks) as source:  # type: ignore[type-var]
        async for chunk in source:
            await io.on_output(Stream.STDOUT, chunk)
            sent += len(chunk)
            if io.most is not None and sent >= io.most:
                break
    return sent
