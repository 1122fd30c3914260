"""An engine's images: the list, what uses them, and what a prune would free."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sandbox_console.backends.docker.failures import Refused, refused
from sandbox_console.backends.docker.image_platforms import LIST_PARAMS, own_platform, platforms
from sandbox_console.backends.docker.json_lines import lines
from sandbox_console.backends.docker.paths import image_path
from sandbox_console.errors import BackendError, Conflict, ConsoleError, NotFound, UsageError
from sandbox_console.model.image import Image, Prunable

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

AT_ONCE = 16
PRUNE_S = 600.0

Chain = tuple[str, ...]
"""The ids of an image's layers up to one of them: two images share a layer if they also share all layers below it."""


NEEDED = "egress gateways are made from it"
"""Why a prune keeps an unused image. Without it no sandbox would get egress until somebody pulls it again."""


async def images(engine: Engine, gateway: str = "") -> list[Image]:
    """All images except the layers of builds, newest first. ``gateway`` is the name or id of the gateways' image."""
    rows, containers, own = await asyncio.gather(
        engine.call("GET", "images/json", params=LIST_PARAMS),
        engine.call("GET", "containers/json", params={"all": 1}),
        own_platform(engine),
    )
    used = Counter(str(container["ImageID"]) for container in containers)
    needed, there = await asyncio.gather(_id(engine, gateway), platforms(engine, rows))
    found = [_with_platforms(_image(engine, row, used), there[str(row["Id"])], own) for row in rows]
    found = [replace(image, needed=NEEDED) if image.id == needed else image for image in found]
    return sorted(found, key=lambda image: image.created_at or 0, reverse=True)


async def remove(engine: Engine, name: str, force: bool) -> None:
    """Remove an image. Raises NotFound; Conflict if a container uses it."""
    try:
        await engine.call("DELETE", _path(name, ""), params={"force": int(force)}, timeout_s=PRUNE_S)
    except Refused as error:
        raise _refused(name, error) from error


async def prunable(engine: Engine, unused: bool, gateway: str = "") -> Prunable:
    """What a prune would remove, and the exact size of the layers that nothing else needs then."""
    found = await images(engine, gateway)
    free = [image for image in found if not image.used_by and (unused or not image.names)]
    gone = [image for image in free if not image.needed]
    limit = asyncio.Semaphore(AT_ONCE)
    kept = [image for image in found if image not in gone]
    layers_of = await asyncio.gather(*(_layers(engine, image.id, limit) for image in kept))
    freed = await asyncio.gather(*(_layers(engine, image.id, limit) for image in gone))
    still = {chain for layers in layers_of for chain in layers}
    sizes = {chain: size for layers in freed for chain, size in layers.items() if chain not in still}
    return Prunable(tuple(gone), sum(sizes.values()), tuple(image for image in free if image.needed))


async def prune(engine: Engine, unused: bool, gateway: str = "") -> Prunable:
    """Remove these images; returns what was removed and freed."""
    unused_images = await prunable(engine, unused, gateway)
    if unused_images.spared:  # the engine's own prune has no exceptions by name
        return await _prune_but(engine, unused_images, gateway)
    return await _prune(engine, unused)


async def _prune_but(engine: Engine, unused: Prunable, gateway: str) -> Prunable:
    for image in unused.images:
        for name in image.names or (image.id,):
            try:
                await engine.call("DELETE", image_path(name, ""), timeout_s=PRUNE_S)
            except Refused as error:
                if error.status not in (404, 409):  # already gone, or in use by now
                    raise
    left = {image.id for image in await images(engine, gateway)}
    gone = tuple(image for image in unused.images if image.id not in left)
    if len(gone) == len(unused.images):
        return replace(unused, images=gone)
    return Prunable(gone, None, unused.spared)


async def _prune(engine: Engine, unused: bool) -> Prunable:
    before = await images(engine)
    filters = json.dumps({"dangling": ["false" if unused else "true"]})
    found = await engine.call("POST", "images/prune", params={"filters": filters}, timeout_s=PRUNE_S)
    deleted = {entry["Deleted"] for entry in found.get("ImagesDeleted") or () if "Deleted" in entry}
    return Prunable(tuple(image for image in before if image.id in deleted), int(found.get("SpaceReclaimed") or 0))


async def load(engine: Engine, archive: AsyncIterator[bytes]) -> str:
    """Load an image; returns its name, or its id if the archive has none. Raises BackendError if it is no archive."""
    loaded: list[str] = []
    try:
        async with engine.stream(
            "images/load", {"quiet": 1}, method="POST", source=archive, headers={"Content-Type": "application/x-tar"}
        ) as answer:
            async for line in lines(answer):
                message = json.loads(line)
                raise_error(message, "the archive")
                loaded += _loaded(str(message.get("stream", "")))
    except Refused as error:
        hint = error.hint or "use a tar from docker save"
        raise BackendError(f"the archive could not be loaded: {error.message}", hint=hint) from error
    if not loaded:
        raise BackendError("the archive contains no image", hint="use a tar from docker save")
    return ", ".join(loaded)


async def save(engine: Engine, name: str) -> AsyncGenerator[bytes, None]:
    """A tar as ``docker save`` writes it. Raises NotFound."""
    try:
        async with engine.stream(_path(name, "get")) as chunks:
            async for chunk in chunks:
                yield chunk
    except Refused as error:
        raise _refused(name, error) from error


def raise_error(message: Mapping[str, Any], subject: str) -> None:
    """Raise BackendError for a failure that is reported within an answer that began with success."""
    if "error" in message or "errorDetail" in message:
        text = str((message.get("errorDetail") or {}).get("message") or message.get("error"))
        error = refused(text, 500)
        raise BackendError(f"{subject}: {error.message}", hint=error.hint)


async def _id(engine: Engine, name: str) -> str:
    """The id of an image by its name; empty if there is none."""
    try:
        return str((await engine.call("GET", image_path(name)))["Id"]) if name else ""
    except (Refused, ValueError):
        return ""


async def _layers(engine: Engine, id: str, limit: asyncio.Semaphore) -> dict[Chain, int]:
    async with limit:
        try:
            image = await engine.call("GET", image_path(id))
            history = await engine.call("GET", image_path(id, "history"))
        except Refused as error:
            if error.status == 404:
                return {}  # removed meanwhile
            raise
    return layer_sizes(image["RootFS"].get("Layers") or (), history)


def layer_sizes(layers: Sequence[str], history: Iterable[Mapping[str, Any]]) -> dict[Chain, int]:
    """Bytes of each layer by its chain. The history, newest first, also has steps that made no layer."""
    sizes = [int(step["Size"]) for step in history if step["Size"]][::-1]
    sizes = [0] * (len(layers) - len(sizes)) + sizes
    chains = accumulate(((layer,) for layer in layers), lambda below, layer: below + layer)
    return dict(zip(chains, sizes, strict=False))


def _image(engine: Engine, row: Mapping[str, Any], used: Counter[str]) -> Image:
    names = tuple(name for name in row.get("RepoTags") or () if name != "<none>:<none>")
    digests = [name.partition("@")[2] for name in row.get("RepoDigests") or ()]
    return Image(
        backend=engine.backend,
        host=engine.context,
        id=str(row["Id"]),
        names=names,
        digest=next((digest for digest in digests if digest not in ("", "<none>")), ""),
        size_bytes=row.get("Size"),
        created_at=float(row["Created"]) if row.get("Created") else None,
        used_by=used[str(row["Id"])],
    )


def _with_platforms(image: Image, platforms: tuple[str, ...], own: str) -> Image:
    native = any(one == own or one.startswith(f"{own}/") for one in platforms)
    return replace(image, platforms=platforms, emulated=bool(platforms and own) and not native)


def _path(name: str, rest: str) -> str:
    try:
        return image_path(name, rest)
    except ValueError as error:
        raise UsageError(str(error), hint="images ls shows the names") from error


def _refused(name: str, error: Refused) -> ConsoleError:
    if error.status == 404:
        return NotFound(f"the image {name!r} is not on this engine", hint="images ls shows what there is")
    if error.status == 409:
        return Conflict(f"the image {name!r} is in use: {error.message}", hint="remove what uses it, or use --force")
    return error


def _loaded(text: str) -> list[str]:
    found = text.strip().partition("Loaded image")[2].removeprefix(" ID").removeprefix(":").strip()
    return [found] if found else []
