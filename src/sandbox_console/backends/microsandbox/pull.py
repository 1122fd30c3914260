"""Pulls an image from its registry, with progress.

The SDK pulls images only to boot, so a boot is started, and given up as soon as the image is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Any

from sandbox_console.backends.base import Progress
from sandbox_console.backends.microsandbox import sdk
from sandbox_console.errors import BackendError, ConsoleError, NotFound
from sandbox_console.model.cancellation import run_to_completion

_MIB = 1024 * 1024
_KEPT_S, _LOOK_S = 60.0, 0.1


async def pull(module: Any, name: str, insecure: bool, progress: Progress) -> None:
    """Pull an image. Raises NotFound, BackendError.

    If it is cancelled, neither an image nor a sandbox is made. The runtime still finishes a layer that was begun, and
    keeps it.
    """
    temporary = f"pull-{secrets.token_hex(6)}"
    session = module.Sandbox.create_with_progress(
        temporary, image=name, memory=256, cpus=1, network=module.Network.none(), registry_insecure=insecure,
        pull_policy=module.PullPolicy.ALWAYS, detached=True,
    )  # fmt: skip
    try:
        await _follow(module, name, session, progress)
        await _kept(module, name)
    finally:
        session.cancel()
        await run_to_completion(_tidy(module, session, temporary))


async def _follow(module: Any, name: str, session: Any, progress: Progress) -> None:
    layers = Layers()
    try:
        async for event in session.progress:
            if text := layers.say(event):
                progress(text)
            if str(event.event_type) == "complete":
                return
        await sdk.result(session.result())
    except module.ImageNotFoundError as error:
        raise NotFound(f"image {name}: {error}") from error
    except module.MicrosandboxError as error:
        text = str(error)
        missing = "not found" in text.lower() or "404" in text or "manifest unknown" in text.lower()
        raise (NotFound if missing else BackendError)(
            f"image {name} could not be pulled: {text}", hint="see its name, and that the registry can be reached"
        ) from error


async def _kept(module: Any, name: str) -> None:
    """Wait until the cache has the image: the runtime reports it as complete a moment too early (0.7.11)."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KEPT_S):
            while not await there(module, name):  # noqa: ASYNC110 - there is no event of it
                await asyncio.sleep(_LOOK_S)


async def there(module: Any, name: str) -> bool:
    """Whether an image is in the cache."""
    try:
        await sdk.call(module, f"image {name}", module.Image.get(name))
    except (NotFound, BackendError):
        return False
    return True


async def _tidy(module: Any, session: Any, temporary: str) -> None:
    with contextlib.suppress(Exception):  # the boot was given up: its failure was intended
        await sdk.result(session.result())
    with contextlib.suppress(ConsoleError):
        handle = await sdk.call(module, "a pull", module.Sandbox.get(temporary))
        await sdk.call(module, "a pull", handle.destroy(force=True))


class Layers:
    """The bytes of all layers together, from the events of each."""

    def __init__(self) -> None:
        self._got: dict[int, int] = {}
        self._total: dict[int, int] = {}

    def say(self, event: Any) -> str:
        """A line about an event for users; empty if it is nothing new."""
        kind = str(event.event_type)
        if kind == "layer_download_progress":
            self._got[event.layer_index] = event.downloaded_bytes or 0
            self._total[event.layer_index] = event.total_bytes or 0
            total = sum(self._total.values())
            return f"pulling {sum(self._got.values()) / _MIB:.1f} of {total / _MIB:.1f} MiB" if total else "pulling"
        if kind == "resolved":
            return f"pulling {event.layer_count} layers" if event.layer_count else "pulling"
        return {"resolving": "asking the registry", "layer_materialize_started": "unpacking"}.get(kind, "")
