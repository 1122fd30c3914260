"""Pulls an image, and reports each layer's progress. Ending the request ends the transfer."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.base import Progress
from sandbox_console.backends.docker import images
from sandbox_console.backends.docker.contexts import config_folder
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.json_lines import lines
from sandbox_console.backends.docker.paths import image_path
from sandbox_console.backends.docker.reference import HUB, Reference
from sandbox_console.errors import BackendError, ConsoleError, NotFound

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

EVERY_S = 0.25
"""The engine reports each layer's bytes ten times a second, which is more often than users need."""

_MIB = 1024 * 1024


async def pull(engine: Engine, name: str, progress: Progress) -> str:
    """Pull an image; returns its id. Raises NotFound, BackendError (registry refuses or is unreachable), UsageError."""
    reference = Reference.parse(name)
    login = await asyncio.to_thread(credentials, reference.registry)
    layers = _Layers(progress)
    params = {"fromImage": reference.name, "tag": reference.wanted}
    try:
        async with engine.stream("images/create", params, method="POST", headers=login) as answer:
            async for line in lines(answer):
                message = json.loads(line)
                images.raise_error(message, name)
                layers.tell(message)
    except ConsoleError as error:
        raise _failed(name, reference, error, known=bool(login)) from error
    at = "@" if reference.digest else ":"
    found = await engine.call("GET", image_path(f"{reference.name}{at}{reference.wanted}"))
    return str(found["Id"])


def credentials(registry: str) -> dict[str, str]:
    """The header with the stored ``docker login`` of a registry; empty if there is none. Call it off the event loop.

    It may run a helper program: the docker package's reader supports config.json, credential stores and per-registry
    helpers. Raises BackendError if a helper fails.
    """
    from docker.errors import DockerException

    from docker import auth

    path = config_folder() / "config.json"
    if not path.exists():
        return {}
    try:
        found = auth.load_config(str(path)).resolve_authconfig(None if registry == HUB else registry)
    except (DockerException, OSError, ValueError) as error:
        raise BackendError(
            f"the credentials for {registry} cannot be read: {error}", hint=f"look at {path}, or docker login again"
        ) from error
    return {"X-Registry-Auth": base64.urlsafe_b64encode(json.dumps(found).encode()).decode()} if found else {}


class _Layers:
    """Turns the engine's lines into lines for users: every change of a layer's state, and at times its bytes."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._states: dict[str, str] = {}
        self._reported_at: dict[str, float] = {}

    def tell(self, message: Mapping[str, Any]) -> None:
        """Report one of the engine's lines, if it says something new."""
        layer, state = str(message.get("id", "")), str(message.get("status", ""))
        now = time.monotonic()
        same = self._states.get(layer) == state
        if not state or (same and now - self._reported_at.get(layer, 0) < EVERY_S):
            return
        self._states[layer], self._reported_at[layer] = state, now
        if amount := _amount(message.get("progressDetail") or {}):
            state = f"{state} {amount}"
        self._progress(f"{layer}: {state}" if layer else state)


def _amount(detail: Mapping[str, Any]) -> str:
    current, total = detail.get("current"), detail.get("total")
    if not current:
        return ""
    if not total:
        return f"{current / _MIB:.1f} MiB"
    return f"{current / _MIB:.1f}/{total / _MIB:.1f} MiB ({100 * current // total} %)"


def _failed(name: str, reference: Reference, error: ConsoleError, *, known: bool) -> ConsoleError:
    text = error.message.lower()
    # Without a login some registries say "denied" for what does not exist, and add that it "may" not exist.
    denied = any(word in text for word in ("unauthorized", "denied", "no basic auth"))
    if not denied and any(word in text for word in ("manifest unknown", "not found", "does not exist")):
        return NotFound(f"the registry {reference.registry} has no {name!r}: {error.message}", hint="see its tags")
    if denied:
        kept = "the credentials from docker login are not accepted" if known else "there are no credentials for it"
        hint = f"docker login {reference.registry}" if reference.registry != HUB else "docker login"
        return BackendError(f"{reference.registry} refuses {name!r}; {kept}: {error.message}", hint=hint)
    if isinstance(error, Refused):
        hint = error.hint or "check that the engine can reach it"
        return BackendError(f"{name!r} could not be pulled: {error.message}", hint=hint)
    return error
