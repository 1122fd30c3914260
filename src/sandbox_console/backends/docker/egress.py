"""Gates: what lets a container out, by its rules and nothing else; made, started and taken away with it."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sandbox_console.backends import gateway_rules
from sandbox_console.backends.docker import egress_bodies as bodies
from sandbox_console.backends.docker.egress_bodies import Gate
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.frames import Demuxer
from sandbox_console.backends.docker.labels import EGRESS, GATEWAY
from sandbox_console.backends.docker.paths import container_path, image_path
from sandbox_console.backends.docker.translate import seconds
from sandbox_console.egress import bundle
from sandbox_console.errors import BackendError, ConfigError, ConsoleError, NotFound
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from sandbox_console.backends.docker.connection import Connection
    from sandbox_console.backends.docker.engine import Engine

READY_S = 30.0
_TRIES = 16
_ORPHAN_S = 120.0
_PREFIX = 29  # an address each for the bridge, the gateway and the sandbox


class Options(Struct, frozen=True):
    """What may be set about egress under ``[backends.docker]``.

    ``egress_image`` needs Python 3.11 or newer as ``python3``; ``egress_network`` is where gateways go out;
    ``egress_pool`` is cut into a /29 for each sandbox; ``egress_hosts`` is a file as /etc/hosts, of names that
    gateways do not ask the resolver for.
    """

    egress_image: str = "python:3-alpine"
    egress_network: str = "bridge"
    egress_pool: str = "10.213.0.0/16"
    egress_hosts: str = ""

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Options:
        """Read the options that are about egress. Raises ConfigError for a value that does not hold."""
        known = set(cls.__struct_fields__)
        values = {key: value for key, value in table.items() if key in known}
        for key, value in values.items():
            if not isinstance(value, str):
                raise ConfigError(f"option {key!r} of docker is {value!r}; a text is needed")
        made = cls(**values)
        try:
            pool = ipaddress.IPv4Network(made.egress_pool)
        except ValueError as error:
            raise ConfigError(f"docker: egress_pool {error}", hint="for example 10.213.0.0/16") from error
        if pool.prefixlen > _PREFIX:
            raise ConfigError(f"docker: egress_pool {pool} has no room for a /{_PREFIX}")
        return made


class Gates:
    """The gates of one engine. ``problem`` is why there can be none; empty where they work."""

    def __init__(self, connection: Connection, folder: Path | None, options: Options) -> None:
        self._connection, self._options = connection, options
        self._folder = folder / "egress" if folder is not None else None
        self.problem = "the egress gateway was not looked for yet"

    @property
    def image(self) -> str:
        """What gateways are made from."""
        return self._options.egress_image

    async def look(self) -> None:
        """Find out whether gates can be made. Raises what the connection raises."""
        self.problem = await self._problem()

    async def _problem(self) -> str:
        if self._folder is None:
            return "the egress gateway needs a state folder, and none was given"
        engine = await self._connection.engine()
        if not self._connection.local:
            return "the egress gateway reads its rules from this machine's files, and the engine is on another"
        image = self._options.egress_image
        try:
            await engine.call("GET", image_path(image))
        except ValueError as error:
            return f"the egress gateway's image: {error}"
        except Refused:
            return (
                f"the egress gateway needs an image with Python, and {image} is not on this engine: "
                "pull it, or set backends.docker.egress_image"
            )
        return ""

    # -- one gate

    async def make(self, engine: Engine, info: Mapping[str, Any], spec: SandboxSpec) -> Gate:
        """A network and a gateway, not started. Leaves nothing behind when it raises."""
        await self.sweep(engine)
        gate = await self._network(engine)
        furnishing = asyncio.ensure_future(self._furnish(engine, info, spec, gate))
        try:
            await asyncio.shield(furnishing)
        except BaseException as error:
            # The engine finishes what it has begun: what is taken away before that would come after it.
            await asyncio.shield(self._undo(engine, gate, furnishing))
            if isinstance(error, (Refused, OSError)):
                raise BackendError(f"the egress gateway of {spec.name} cannot be made: {error}") from error
            raise
        return gate

    async def _furnish(self, engine: Engine, info: Mapping[str, Any], spec: SandboxSpec, gate: Gate) -> None:
        folder = await asyncio.to_thread(self._prepare, gate, spec)
        program = await asyncio.to_thread(self._program)
        body = bodies.gateway(gate, self._options.egress_image, self._options.egress_network, folder, program, info)
        made = await engine.call("POST", "containers/create", params={"name": gate.gateway_name}, body=body)
        await engine.call("POST", f"networks/{gate.name}/connect", body=bodies.joined(made["Id"], gate))

    async def _undo(self, engine: Engine, gate: Gate, furnishing: asyncio.Future[None]) -> None:
        await asyncio.wait([furnishing])
        await self.discard(engine, gate.token)

    async def _network(self, engine: Engine) -> Gate:
        refusal: Refused | None = None
        for subnet in (await self._free_subnets(engine))[:_TRIES]:
            gate = Gate(secrets.token_hex(6), subnet)
            asked = asyncio.ensure_future(engine.call("POST", "networks/create", body=bodies.network(gate)))
            try:
                await asyncio.shield(asked)
                return gate
            except Refused as error:  # another console took it between the look and now
                refusal = error
            except asyncio.CancelledError:
                with suppress(ConsoleError):
                    await asked
                await asyncio.shield(self.discard(engine, gate.token))
                raise
        why = f": {refusal.message}" if refusal else ""
        raise BackendError(
            f"no network of {self._options.egress_pool} is free for the sandbox{why}",
            hint="set backends.docker.egress_pool to a range that nothing else uses",
        )

    async def _free_subnets(self, engine: Engine) -> list[ipaddress.IPv4Network]:
        taken = []
        for one in await engine.call("GET", "networks"):
            for config in (one.get("IPAM") or {}).get("Config") or ():
                with suppress(ValueError, KeyError):
                    taken.append(ipaddress.IPv4Network(config["Subnet"], strict=False))
        found: list[ipaddress.IPv4Network] = []
        for subnet in ipaddress.IPv4Network(self._options.egress_pool).subnets(new_prefix=_PREFIX):
            if not any(subnet.overlaps(other) for other in taken):
                found.append(subnet)
                if len(found) == _TRIES:
                    break
        return found

    def _prepare(self, gate: Gate, spec: SandboxSpec) -> Path:
        folder = self.folder(gate.token)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.chmod(0o700)
        gateway_rules.prepare(folder, spec.name, spec.egress, self._options.egress_hosts)
        return folder

    def _program(self) -> Path:
        """The gateway's program on disk, by its content: a gateway that runs keeps the one that it began with."""
        data = bundle.build()
        path = self.folder(f"gateway-{hashlib.sha256(data).hexdigest()[:12]}.pyz")
        if not path.exists():
            fresh = path.with_suffix(f".{secrets.token_hex(4)}")
            fresh.write_bytes(data)
            fresh.chmod(0o644)
            fresh.replace(path)
        return path

    def folder(self, token: str) -> Path:
        """Where a gate's rules and records are."""
        if self._folder is None or not token.replace("-", "").replace(".", "").isalnum():
            raise NotFound("the sandbox's gateway was made by a console with another state folder")
        return self._folder / token

    async def start(self, engine: Engine, token: str, name: str) -> None:
        """Start a gateway and wait until it listens. Raises BackendError with its last words."""
        gateway = f"sandbox-console-gateway-{token}"
        ready = self.folder(token) / "records" / "ready"
        data = await _state(engine, gateway)
        if data.get("Running") and ready.exists():
            return
        ready.unlink(missing_ok=True)
        try:
            await engine.call("POST", container_path(gateway, "start"), timeout_s=60)
        except Refused as error:
            raise BackendError(
                f"the egress gateway of {name} cannot start: {error.message}", hint=error.hint
            ) from error
        deadline = time.monotonic() + READY_S
        while not ready.exists():
            data = await _state(engine, gateway)
            if time.monotonic() > deadline or data.get("Status") == "exited" or data.get("Restarting"):
                raise BackendError(
                    f"the egress gateway of {name} does not come up: {await _last_words(engine, gateway)}",
                    hint=f"egress_image needs Python 3.11 or newer; it is {self._options.egress_image}",
                )
            await asyncio.sleep(0.02)

    async def stop(self, engine: Engine, token: str) -> None:
        """Stop a gateway whose sandbox has stopped."""
        with suppress(ConsoleError):
            await engine.call("POST", container_path(f"sandbox-console-gateway-{token}", "stop"), params={"t": 2})

    async def discard(self, engine: Engine, token: str) -> None:
        """Take away all of a gate; what is gone already is passed over."""
        gateway = container_path(f"sandbox-console-gateway-{token}")
        with suppress(ConsoleError):
            await engine.call("DELETE", gateway, params={"force": 1, "v": 1}, timeout_s=60)
        with suppress(ConsoleError):
            await engine.call("DELETE", f"networks/sandbox-console-{token}", timeout_s=60)
        with suppress(NotFound):
            await asyncio.to_thread(shutil.rmtree, self.folder(token), ignore_errors=True)

    async def sweep(self, engine: Engine) -> None:
        """Take away the gates of sandboxes that something else removed."""
        networks = await engine.call("GET", "networks", params={"filters": json.dumps({"label": [EGRESS]})})
        if not networks:
            return
        filters = json.dumps({"label": [EGRESS]})
        boxes = await engine.call("GET", "containers/json", params={"all": 1, "filters": filters})
        alive = {one["Labels"].get(EGRESS) for one in boxes}
        for one in networks:
            token = (one.get("Labels") or {}).get(EGRESS, "")
            if token and token not in alive and _age(one.get("Created", "")) > _ORPHAN_S:
                await self.discard(engine, token)

    async def state(self, engine: Engine, token: str) -> str:
        """Why a gateway does not answer; empty while it runs."""
        try:
            data = await _state(engine, f"sandbox-console-gateway-{token}")
        except NotFound:
            return "its gateway's container was removed"
        if data.get("Restarting"):
            return "its gateway fails and is started again"
        if not data.get("Running"):
            return f"its gateway does not run: it is {data.get('Status')}"
        return ""


def token_of(data: Mapping[str, Any]) -> str:
    """The token of an inspected container's gate; empty where it has none."""
    labels = data["Config"].get("Labels") or {}
    return "" if GATEWAY in labels else str(labels.get(EGRESS, ""))


async def _state(engine: Engine, container: str) -> dict[str, Any]:
    try:
        data = await engine.call("GET", container_path(container, "json"))
    except Refused as error:
        if error.status == 404:
            raise NotFound(f"the egress gateway {container} is not on this engine (any more)") from error
        raise
    state: dict[str, Any] = data["State"]
    return state


async def _last_words(engine: Engine, container: str) -> str:
    reader, said = Demuxer(), b""
    params = {"stdout": 1, "stderr": 1, "timestamps": 1, "tail": 1}
    with suppress(ConsoleError):
        async with engine.stream(container_path(container, "logs"), params) as chunks:
            async for chunk in chunks:
                said += b"".join(record.data for record in reader.feed(chunk))
    return said.decode("utf-8", "replace").strip()[-300:] or "it said nothing"


def _age(created: str) -> float:
    at = seconds(created)
    return time.time() - at if at else 0.0
