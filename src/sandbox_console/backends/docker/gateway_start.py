"""Starts and stops a gateway's container."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.common.messages import address_taken
from sandbox_console.backends.docker import port_holders, ports
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.labels import gateway_name
from sandbox_console.backends.docker.log_frames import Demuxer
from sandbox_console.backends.docker.paths import container_path
from sandbox_console.errors import BackendError, Conflict, ConsoleError, NotFound
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.ports import PublishedPort

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

READY_S = 30.0
_STOP_S = 2


async def start(
    engine: Engine, token: str, name: str, ready: Path, requested: Sequence[PublishedPort],
    free: Callable[[str], Awaitable[None]], *, hint: str,
) -> None:  # fmt: skip
    """Start a gateway, and wait until it listens and the engine has bound every port of ``asked``.

    ``name`` is the sandbox's. ``free`` ends an idle gateway, given by its token. If it fails, the gateway is not
    running. Raises Conflict if an address is taken, else BackendError with the gateway's last output and ``hint``.
    """
    if (await inspected(engine, token))["State"].get("Running") and ready.exists():
        return
    ready.unlink(missing_ok=True)
    try:
        await _started(engine, token, name, requested, free)
        await _listens(engine, token, name, ready, hint)
        await _answered_for(engine, token, name, requested)
    except BaseException:
        await run_to_completion(stop(engine, token))
        raise


async def _started(
    engine: Engine, token: str, name: str, requested: Sequence[PublishedPort], free: Callable[[str], Awaitable[None]]
) -> None:
    for last in (False, True):
        try:
            await engine.call("POST", container_path(gateway_name(token), "start"), timeout_s=60)
            return
        except Refused as error:
            host_address = ports.wanted(requested, error.message)
            if host_address is None:
                raise ports.failure(requested, name, error.message) or BackendError(
                    f"the egress gateway of {name} cannot start: {error.message}", hint=error.hint
                ) from error
            who, idle = await port_holders.holder(engine, host_address)
            if last or not idle or idle == token:
                raise _taken(name, host_address, who) from error
            await free(idle)


def _taken(name: str, host_address: PublishedPort, who: str) -> Conflict:
    return address_taken(
        name,
        host_address.host_address,
        who,
        f"free it, or publish elsewhere: --publish {host_address.port} takes a free place",
    )


async def _listens(engine: Engine, token: str, name: str, ready: Path, hint: str) -> None:
    deadline = time.monotonic() + READY_S
    while not ready.exists():
        state = (await inspected(engine, token))["State"]
        if time.monotonic() > deadline or state.get("Status") == "exited" or state.get("Restarting"):
            message = await _last_words(engine, token)
            raise BackendError(f"the egress gateway of {name} does not start: {message}", hint=hint)
        await asyncio.sleep(0.02)


async def _answered_for(engine: Engine, token: str, name: str, requested: Sequence[PublishedPort]) -> None:
    if requested and (missing := ports.unbound(requested, await inspected(engine, token))):
        raise BackendError(
            f"the engine does not answer at {missing} for {name}, and does not say why",
            hint="backends.docker.egress_network has to be a bridge that is not internal",
        )


async def stop(engine: Engine, token: str) -> None:
    """Stop a gateway, even if it is still starting, as the engine carries out one request after the other."""
    with suppress(ConsoleError):
        await engine.call("POST", container_path(gateway_name(token), "stop"), params={"t": _STOP_S})


async def inspected(engine: Engine, token: str) -> dict[str, Any]:
    """The engine's description of a gateway. Raises NotFound if it is gone."""
    try:
        data: dict[str, Any] = await engine.call("GET", container_path(gateway_name(token), "json"))
    except Refused as error:
        if error.status == 404:
            raise NotFound(f"the egress gateway {gateway_name(token)} is not on this engine (any more)") from error
        raise
    return data


def why_down(state: Mapping[str, Any]) -> str:
    """Why a gateway does not answer; empty while it is running."""
    if state.get("Restarting"):
        return "its gateway fails and is started again"
    return "" if state.get("Running") else f"its gateway is not running: it is {state.get('Status')}"


async def _last_words(engine: Engine, token: str) -> str:
    reader, output = Demuxer(), b""
    params = {"stdout": 1, "stderr": 1, "timestamps": 1, "tail": 1}
    with suppress(ConsoleError):
        async with engine.stream(container_path(gateway_name(token), "logs"), params) as chunks:
            async for chunk in chunks:
                output += b"".join(record.data for record in reader.feed(chunk))
    return output.decode("utf-8", "replace").strip()[-300:] or "it said nothing"
