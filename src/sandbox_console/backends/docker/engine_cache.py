"""Remembers what an engine reported: OOM kills from its events, and image descriptions."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.paths import image_path

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

KEPT = 4096


class EngineCache(Struct):
    """What is known of an engine's containers. Old entries are dropped.

    ``ooms`` has the time of each container's last OOM kill, in seconds since the epoch.
    """

    ooms: OrderedDict[str, float] = field(default_factory=OrderedDict)
    _images: OrderedDict[str, dict[str, Any]] = field(default_factory=OrderedDict)

    def note_oom(self, container: str, at: float) -> None:
        """Remember that the kernel killed a process of the container because it was out of memory."""
        self.ooms[container] = at
        _bounded(self.ooms)

    def forget(self, container: str) -> None:
        """Forget a container that is gone."""
        self.ooms.pop(container, None)

    async def image(self, engine: Engine, id: str) -> dict[str, Any]:
        """The image's own description, requested once; empty if the image is gone."""
        if id not in self._images:
            try:
                self._images[id] = await engine.call("GET", image_path(id))
            except (Refused, ValueError):
                return {}
            _bounded(self._images)
        return self._images.get(id, {})


def _bounded(kept: OrderedDict[str, Any]) -> None:
    while len(kept) > KEPT:
        kept.popitem(last=False)
