"""Finds for which platforms an engine has its images. Its list of images says it only in the newer store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.paths import image_path

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

AT_ONCE = 16
LIST_PARAMS = {"manifests": 1}
"""With these, the list of images of an engine with containerd's store has the platforms. Older engines ignore them."""


async def platforms(engine: Engine, rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The platforms of the images of a list, by id. Each image that the list says nothing about is asked about once."""
    found = {str(row["Id"]): listed(row) for row in rows}
    known = engine.image_platforms
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(id_: str) -> None:
        async with limit:
            known[id_] = await _asked(engine, id_)

    await asyncio.gather(*(ask(id_) for id_, listed in found.items() if not listed and id_ not in known))
    return {id_: listed or known[id_] for id_, listed in found.items()}


async def own_platform(engine: Engine) -> str:
    """The platform of the engine's machine; empty if it does not say."""
    version = await engine.call("GET", "version")
    return _joined(version.get("Os"), version.get("Arch"), "")


def listed(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The platforms that the engine has all layers of, by its list. Some manifests are attestations, not images."""
    available = [one for one in row.get("Manifests") or () if one.get("Kind") == "image" and one.get("Available")]
    platforms = [
        _of((one.get("ImageData") or {}).get("Platform") or {}, "os", "architecture", "variant") for one in available
    ]
    return tuple(dict.fromkeys(filter(None, platforms)))


async def _asked(engine: Engine, id_: str) -> tuple[str, ...]:
    try:
        platform = _of(await engine.call("GET", image_path(id_)), "Os", "Architecture", "Variant")
    except Refused as error:
        if error.status == 404:
            return ()  # removed meanwhile
        raise
    return (platform,) if platform else ()


def _of(fields: Mapping[str, Any], *keys: str) -> str:
    return _joined(*(fields.get(key) for key in keys))


def _joined(system: object, processor: object, variant: object) -> str:
    return "/".join(str(part) for part in (system, processor, variant) if part) if system and processor else ""
