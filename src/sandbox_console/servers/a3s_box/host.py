"""The operations on images, snapshots, volumes, networks and the runtime itself."""

from __future__ import annotations

from typing import Any

from sandbox_console.errors import NotFound, Unsupported
from sandbox_console.model.host_action import PullImage, RemoveImage, RemoveSnapshot
from sandbox_console.model.image import Image, tagged
from sandbox_console.servers.a3s_box import rows
from sandbox_console.servers.a3s_box.boxes import Boxes
from sandbox_console.servers.a3s_box.protocol import Named
from sandbox_console.version import __version__

REFUSED = {
    "runtime_disk_usage": "each backend stores its own; the console does not measure it",
    "image_build": "images are built by the engine's own tools",
    "image_inspect": "the console does not read what is in an image",
    "image_history": "the console does not read how an image was made",
    "image_tag": "the console gives an image no names",
    "image_push": "the console sends no image to a registry",
    "image_evict": "the console removes no image by itself; a person does: sandbox-console prune",
    "volume_create": "there are no volumes here; a workspace is a folder of this machine",
    "volume_remove": "there are no volumes here",
    "network_create": "there are no networks here; egress of a template opens hosts",
    "network_remove": "there are no networks here",
    "sandbox_runtime_stats": "the console measures rates, not counters; sandbox_stats has them",
}
"""What is refused, and why."""


async def diagnostics(boxes: Boxes) -> dict[str, Any]:
    """``runtime_diagnostics``."""
    backend, host = await boxes.place()
    own = rows.isolation(backend) == "microvm"
    return {
        "core_version": __version__, "runtime_version": __version__, "sdk_version": __version__,
        "home": str(boxes.opened.audit_log.path.parents[1]),
        "virtualization": {"available": own, "backend": backend if own else None,
                           "details": f"sandbox-console: sandboxes run on {backend}/{host}"},
    }  # fmt: skip


async def images(boxes: Boxes) -> dict[str, Any]:
    """``image_list``: an image once for each of its names."""
    found = await boxes.opened.inside.images(*await boxes.place())
    return {"images": [rows.image(one, name) for one in found for name in one.names or (one.id,)]}


async def image(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``image_get``."""
    found = await _image(boxes, asked.reference)
    return {"image": None if found is None else rows.image(found, asked.reference)}


async def pull(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``image_pull``, with the logins of the engine."""
    if asked.credentials or asked.platform or (asked.signature_policy or {}).get("mode", "skip") != "skip":
        raise Unsupported("an image is pulled with the engine's own logins, for this machine", hint="docker login")
    if asked.force or await _image(boxes, asked.reference) is None:
        await boxes.console.perform(PullImage(*await boxes.place(), asked.reference)).result()
    found = await _image(boxes, asked.reference)
    if found is None:
        raise NotFound(f"there is no image {asked.reference} after its pull")
    return rows.image(found, asked.reference)


async def remove_image(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``image_remove``."""
    await boxes.console.perform(RemoveImage(*await boxes.place(), asked.reference)).result()
    return {"reference": asked.reference, "removed": True}


async def _image(boxes: Boxes, name: str) -> Image | None:
    for one in await boxes.opened.inside.images(*await boxes.place()):
        if name in (one.id, *one.names) or tagged(name) in map(tagged, one.names):
            return one
    return None


async def snapshots(boxes: Boxes) -> dict[str, Any]:
    """``filesystem_snapshot_list``."""
    return {"snapshots": [rows.snapshot(one) for one in await boxes.opened.inside.snapshots(*await boxes.place())]}


async def snapshot(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``filesystem_snapshot_get``."""
    found = await boxes.opened.inside.snapshot(*await boxes.place(), asked.snapshot_id)
    return {"snapshot": None if found is None else rows.snapshot(found)}


async def snapshot_size(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``filesystem_snapshot_size``."""
    found = await boxes.opened.inside.snapshot(*await boxes.place(), asked.snapshot_id)
    return {"snapshot_id": asked.snapshot_id, "size_bytes": None if found is None else found.size_bytes}


async def remove_snapshot(boxes: Boxes, asked: Named) -> dict[str, Any]:
    """``filesystem_snapshot_delete``."""
    try:
        await boxes.console.perform(RemoveSnapshot(*await boxes.place(), asked.snapshot_id)).result()
    except NotFound:
        return {"snapshot_id": asked.snapshot_id, "deleted": False}
    return {"snapshot_id": asked.snapshot_id, "deleted": True}
