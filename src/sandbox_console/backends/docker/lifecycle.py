"""Creating and starting containers: the two operations that take more than one request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.docker import hardening, podman_dialect, secret_handover
from sandbox_console.backends.docker.enforcement import command
from sandbox_console.backends.docker.failures import Refused, about, plain
from sandbox_console.backends.docker.gateway_config import Gateway, dress
from sandbox_console.backends.docker.hijacked_stream import Channel
from sandbox_console.backends.docker.labels import INSTALLATION
from sandbox_console.backends.docker.paths import NAMING, container_path, image_path
from sandbox_console.errors import BackendError, ConsoleError, InvalidSpec, NotFound, Unsupported
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def create(
    engine: Engine,
    info: dict[str, Any],
    spec: SandboxSpec,
    secrets: Sequence[ResolvedSecret],
    gateway: Gateway | None = None,
    *,
    kept: Sequence[str] = (),
    tmp_mib: int = hardening.TMP_MIB,
    installation: str = "",
) -> str:
    """Create a container; returns its id. Raises InvalidSpec, Conflict, Unsupported, and then leaves nothing behind."""
    secret_handover.check(secrets)
    image = await _image(engine, spec)
    body = await asyncio.to_thread(hardening.body, spec, image, info, secrets, tmp_mib)
    body["HostConfig"]["CapAdd"] = list(kept)
    if podman_dialect.is_podman(info):
        podman_dialect.adapt(body)
    if installation:
        body["Labels"][INSTALLATION] = installation
    if gateway is not None:
        dress(body, gateway, out=bool(spec.egress))
    container = await _created(engine, spec, body)
    if secrets:
        await _needs_shell(engine, container, spec)
    return container


async def _created(engine: Engine, spec: SandboxSpec, body: dict[str, Any]) -> str:
    request = asyncio.ensure_future(engine.call("POST", "containers/create", params={"name": spec.name}, body=body))
    try:
        made = await shielded(request)
    except Refused as error:
        if podman_dialect.NO_INIT in error.message and body["HostConfig"]["Init"]:  # Podman without catatonit
            body["HostConfig"]["Init"] = False
            return await _created(engine, spec, body)
        raise _create_failed(engine, spec, error) from error
    except asyncio.CancelledError:
        # The engine finishes what it has begun: wait for its answer, which is the only way to know what to remove.
        with suppress(ConsoleError):
            await remove_quietly(engine, str((await request)["Id"]))
        raise
    return str(made["Id"])


async def start(engine: Engine, id: str, name: str, secrets: Sequence[ResolvedSecret]) -> None:
    """Start a container, and hand over the secrets that it waits for. Does nothing if it is running."""
    with about(name):
        data = await engine.call("GET", container_path(id, "json"))
    if data["State"]["Running"] and not data["State"].get("Restarting"):
        return
    await _program_there(engine, id, name, data)
    wanted = secret_handover.wanted(data["Config"])
    chosen = secret_handover.chosen(wanted, secrets, name)
    if not wanted:
        await _start(engine, id, name)
        return
    payload = secret_handover.payload(chosen)
    # It attaches before the start: the engine reserves stdin for this client, and nobody else can get in between.
    channel = Channel(engine, engine.docker.containers.container(id).attach(stdin=True))
    try:
        with about(name):
            await channel.open()
        await _start(engine, id, name)
        await channel.write(payload)
        await _passed_on(channel)
    finally:
        await channel.close()


async def _passed_on(channel: Channel) -> None:
    """Wait until the engine has all of the input, after which it ends an attach that is for input only."""
    with suppress(TimeoutError):
        async with asyncio.timeout(secret_handover.WAIT_S):
            if channel.end_input():
                await channel.read()
            else:
                await channel.flush()


async def _program_there(engine: Engine, id: str, name: str, data: dict[str, Any]) -> None:
    """Raise BackendError if the program is not in the image, which the engine does not notice behind an init."""
    words = command(data["Config"])
    if not words or not data["HostConfig"].get("Init") or words[0].startswith(("./", "../")):
        return
    if "/" in words[0]:
        # What a mount covers cannot be checked before the start.
        places = [] if words[0].startswith(("/workspace", "/tmp", "/run")) else [words[0]]  # noqa: S108
    else:
        places = [f"{folder}/{words[0]}" for folder in _search_path(data["Config"]) if folder.startswith("/")]
    for place in places:
        if await engine.exists(container_path(id, "archive"), {"path": place}):
            return
    if places:
        reason = f"its image has no program {words[0]!r}"
        raise BackendError(f"{name} cannot start: {reason}", hint=_start_hint("no such file"))


def _search_path(config: dict[str, Any]) -> list[str]:
    found = [item.removeprefix("PATH=") for item in config.get("Env") or () if item.startswith("PATH=")]
    return (found[-1] if found else _DEFAULT_PATH).split(":")


async def remove_quietly(engine: Engine, id: str) -> None:
    """Undo a create. If that fails too, the first error is the one to report."""
    try:
        await engine.call("DELETE", container_path(id), params={"force": 1, "v": 1})
    except ConsoleError:
        return


async def _image(engine: Engine, spec: SandboxSpec) -> dict[str, Any]:
    """The image's configuration for containers, and its architecture. Raises InvalidSpec."""
    # The engine accepts an empty image, and creates a container that can never run.
    if not spec.image.strip():
        raise InvalidSpec({"image": "an image is needed, for example alpine:3"}, hint="sandbox-console images ls")
    try:
        found = await engine.call("GET", image_path(spec.image))
    except ValueError as error:
        raise InvalidSpec({"image": str(error)}, hint=NAMING) from error
    except Refused as error:
        if error.status == 400:
            raise InvalidSpec({"image": f"{spec.image!r} is not an image's name"}, hint=NAMING) from error
        if error.status != 404:
            raise
        raise InvalidSpec({"image": f"{spec.image!r} is not on this engine"}, hint=_pull(engine, spec)) from error
    return {**(found.get("Config") or {}), "Architecture": found.get("Architecture")}


def _pull(engine: Engine, spec: SandboxSpec) -> str:
    return f"sandbox-console images pull {spec.image} --backend docker/{engine.context}"


async def _needs_shell(engine: Engine, id: str, spec: SandboxSpec) -> None:
    try:
        there = await engine.exists(container_path(id, "archive"), {"path": "/bin/sh"})
    except BaseException:
        await remove_quietly(engine, id)
        raise
    if not there:
        await remove_quietly(engine, id)
        raise Unsupported(
            f"the image {spec.image!r} has no /bin/sh, which docker needs to hand over secrets unseen",
            hint="use an image with a shell, or leave the secrets out",
        )


async def _start(engine: Engine, id: str, name: str) -> None:
    try:
        with about(name):
            await engine.call("POST", container_path(id, "start"), timeout_s=120)
    except (NotFound, Refused) as error:
        cause = error.__cause__ if isinstance(error, NotFound) else error
        if not isinstance(cause, Refused) or "No such container" in cause.message:
            raise
        # The engine also answers 404 if the program does not exist.
        raise BackendError(f"{name} cannot start: {plain(cause.message)}", hint=_start_hint(cause.message)) from error


def _start_hint(message: str) -> str:
    if "docker-init" in message:
        return "install tini (or docker-init) on the engine's host"
    if "executable file not found" in message or "no such file" in message:
        return "look at the command: the program is not in the image"
    return "sandbox-console show has the settings that it was created with"


def _create_failed(engine: Engine, spec: SandboxSpec, error: Refused) -> ConsoleError:
    text = error.message
    if error.status == 409 or podman_dialect.NAME_TAKEN in text:
        return name_taken(spec.name)
    if "bind source path does not exist" in text:
        return InvalidSpec({"workspace": f"{spec.workspace!r} does not exist on the engine's host"})
    if "untime" in text and spec.runtime:
        return InvalidSpec({"runtime": text})
    if error.status == 404:
        return InvalidSpec({"image": text}, hint=_pull(engine, spec))
    if error.status == 400 and "name" in text.lower():
        return InvalidSpec({"name": text})
    return error
