"""The runtime's images. It has its own cache, apart from Docker's."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from sandbox_console.backends.base import Progress
from sandbox_console.backends.microsandbox import pull as pulls
from sandbox_console.backends.microsandbox import sdk, translate
from sandbox_console.backends.microsandbox.create_options import Options, path_problem
from sandbox_console.errors import BackendError, Conflict, NotFound, UsageError
from sandbox_console.model.image import Image, Prunable

_CHUNK = 1024 * 1024
_ARCHIVES = "docker save, or sandbox-console images save, writes one that has"


async def images(module: Any, waiting: Counter[str]) -> Sequence[Image]:
    """All images. ``waiting`` counts, by image name, the sandboxes that the runtime does not know yet."""
    found = await sdk.call(module, "its images", module.Image.list())
    used = Counter(translate.view(one).digest for one in await sdk.handles(module))
    return [_image(one, used, waiting) for one in found]


async def pull(module: Any, name: str, options: Options, progress: Progress) -> str:
    """Pull an image from its registry; returns its digest. Raises UsageError for what is no name of an image."""
    if wrong := path_problem(name):
        raise UsageError(wrong)
    await pulls.pull(module, name, options.insecure(name), progress)
    found = await sdk.call(module, f"image {name}", module.Image.get(name))
    return str(found.manifest_digest or found.reference)


async def remove(module: Any, name: str, *, force: bool) -> None:
    """Remove an image. Raises Conflict if a sandbox uses it, unless ``force``."""
    await sdk.call(module, f"image {name}", module.Image.remove(name, force=force))


async def prunable(module: Any, waiting: Counter[str], *, unused: bool) -> Prunable:
    """What a prune would remove. Every image of the runtime has a name, so without ``unused`` this is nothing."""
    found = tuple(image for image in await images(module, waiting) if unused and not image.used_by)
    return Prunable(found, sum(image.size_bytes or 0 for image in found))


async def prune(module: Any, waiting: Counter[str], *, unused: bool) -> Prunable:
    """Remove what :func:`prunable` returns, except images of snapshots. The runtime's own prune spares none."""
    gone = []
    for image in (await prunable(module, waiting, unused=unused)).images:
        with contextlib.suppress(Conflict, NotFound):
            await remove(module, image.names[0], force=False)
            gone.append(image)
    return Prunable(tuple(gone), sum(image.size_bytes or 0 for image in gone))


async def load(module: Any, archive: AsyncIterator[bytes]) -> str:
    """Load an image from an archive in docker's or OCI's format; returns its name."""
    with tempfile.TemporaryDirectory(prefix="sandbox-console-") as folder:
        path = Path(folder) / "image.tar"
        with path.open("wb") as file:
            async for chunk in archive:
                await asyncio.to_thread(file.write, chunk)
        try:
            loaded = await sdk.call(module, "the archive", module.Image.load(str(path)))
        except BackendError as error:
            reason = str(error.__cause__).removeprefix("image error: ")
            raise UsageError(f"the archive is no image that can be loaded: {reason}", hint=_ARCHIVES) from error
    if not loaded:
        raise UsageError("the archive has no image with a name in it", hint=_ARCHIVES)
    return ", ".join(one.reference for one in loaded)


async def save(module: Any, name: str) -> AsyncGenerator[bytes, None]:
    """An image as an archive in docker's format."""
    await sdk.call(module, f"image {name}", module.Image.get(name))
    with tempfile.TemporaryDirectory(prefix="sandbox-console-") as folder:
        path = Path(folder) / "image.tar"
        await sdk.call(module, f"image {name}", module.Image.save(name, output_path=str(path)))
        with path.open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                yield chunk


def _image(one: Any, used: Counter[str], waiting: Counter[str]) -> Image:
    digest = str(one.manifest_digest or "")
    known = used[digest] if digest else None
    return Image(
        backend="microsandbox",
        host="local",
        id=digest or str(one.reference),
        names=(str(one.reference),),
        digest=digest,
        size_bytes=one.size_bytes,
        created_at=one.created_at / 1000 if one.created_at else None,
        used_by=None if known is None else known + waiting[str(one.reference)],
        platforms=(f"{one.os}/{one.architecture}",) if one.os and one.architecture else (),
    )
