"""Manages gateways. Each lets traffic out of its container by rules, publishes its ports, and ends with it."""

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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sandbox_console.backends import gateway_rules
from sandbox_console.backends.docker import gateway_config as bodies
from sandbox_console.backends.docker import gateway_start as running
from sandbox_console.backends.docker import ports
from sandbox_console.backends.docker.diagnosis import in_virtual_machine
from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.gateway_config import Gateway
from sandbox_console.backends.docker.labels import EGRESS, gateway_name
from sandbox_console.backends.docker.paths import container_path, image_path
from sandbox_console.backends.docker.podman_dialect import NO_GATEWAY, is_podman
from sandbox_console.backends.docker.translate import seconds, spec_of
from sandbox_console.egress import bundle
from sandbox_console.egress.host_addresses import APART, FILES, HELD, ready_words
from sandbox_console.errors import BackendError, ConfigError, Conflict, ConsoleError, NotFound
from sandbox_console.model.cancellation import run_to_completion, shielded
from sandbox_console.model.ports import PublishedPort, parse_all
from sandbox_console.model.sandbox import Fact
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from sandbox_console.backends.docker.connection import Connection
    from sandbox_console.backends.docker.engine import Engine

_BRIDGED = (
    Fact(
        "egress.bridge", "not enforced", enforced=False,
        note="the engine gave its bridge an address: servers there can be reached without the gateway",
    ),
)  # fmt: skip
_GONE = "its gateway's container was removed"
_TRIES = 16
_ORPHAN_S = 120.0
_PREFIX = 29  # for the addresses of the bridge, the gateway and the sandbox


class Options(Struct, frozen=True):
    """The options about egress under ``[backends.docker]``.

    ``egress_image`` needs Python 3.11 or newer as ``python3``; ``egress_network`` is the network through which gateways
    connect to the outside; ``egress_pool`` is cut into a /29 for each sandbox; ``egress_hosts`` is a file like
    /etc/hosts, with names that gateways do not look up with the resolver.
    """

    egress_image: str = "python:3-alpine"
    egress_network: str = "bridge"
    egress_pool: str = "10.213.0.0/16"
    egress_hosts: str = ""

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Options:
        """Read the options about egress. Raises ConfigError for an invalid value."""
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


class Gateways:
    """The gateways of one engine. ``problem`` is why there cannot be any; empty if they work."""

    def __init__(self, connection: Connection, folder: Path | None, options: Options) -> None:
        self._connection, self._options = connection, options
        self._folder = folder / "egress" if folder is not None else None
        self.problem = "the egress gateway was not checked yet"

    @property
    def image(self) -> str:
        """The image that gateways are made from."""
        return self._options.egress_image

    async def look(self) -> None:
        """Find out whether gateways can be made. Raises what the connection raises."""
        self.problem = await self._problem()

    async def _problem(self) -> str:
        if self._folder is None:
            return "the egress gateway needs a state folder, and none was given"
        engine = await self._connection.engine()
        if not self._connection.local:
            return "the egress gateway reads its rules from this machine's files, and the engine is on another"
        if is_podman(self._connection.info):
            return NO_GATEWAY
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

    # -- one gateway

    async def make(self, engine: Engine, info: Mapping[str, Any], spec: SandboxSpec) -> Gateway:
        """Create a network and a gateway, without starting it. Leaves nothing behind when it raises."""
        await self.sweep(engine)
        gateway = await self._network(engine)
        furnishing = asyncio.ensure_future(self._furnish(engine, info, spec, gateway))
        try:
            await shielded(furnishing)
        except BaseException as error:
            # The engine finishes what it has begun, so it would appear after an earlier removal.
            await run_to_completion(self._undo(engine, gateway, furnishing))
            if isinstance(error, (Refused, OSError)):
                raise BackendError(f"the egress gateway of {spec.name} cannot be made: {error}") from error
            raise
        return gateway

    async def _furnish(self, engine: Engine, info: Mapping[str, Any], spec: SandboxSpec, gateway: Gateway) -> None:
        folder = await asyncio.to_thread(self._prepare, gateway, spec)
        program = await asyncio.to_thread(self._program)
        image, outside = self._options.egress_image, self._options.egress_network
        params = {"name": gateway.gateway_name}
        for seen in (FILES, FILES[:1], ()):  # a machine may have no IPv6, or hide its first process
            body = bodies.gateway_body(gateway, spec, image, outside, folder, program, info, seen)
            try:
                made = await engine.call("POST", "containers/create", params=params, body=body)
                break
            except Refused as error:
                if not seen or bodies.HOST_NET not in error.message:
                    raise
        await engine.call("POST", f"networks/{gateway.name}/connect", body=bodies.joined(made["Id"], gateway))

    async def _undo(self, engine: Engine, gateway: Gateway, furnishing: asyncio.Future[None]) -> None:
        await asyncio.wait([furnishing])
        await self.discard(engine, gateway.token)

    async def _network(self, engine: Engine) -> Gateway:
        refusal: Refused | None = None
        for subnet in (await self._free_subnets(engine))[:_TRIES]:
            gateway = Gateway(secrets.token_hex(6), subnet)
            request = asyncio.ensure_future(engine.call("POST", "networks/create", body=bodies.network(gateway)))
            try:
                await shielded(request)
                return gateway
            except Refused as error:  # another console took it in between
                refusal = error
            except asyncio.CancelledError:
                with suppress(ConsoleError):
                    await request
                await run_to_completion(self.discard(engine, gateway.token))
                raise
        reason = f": {refusal.message}" if refusal else ""
        raise BackendError(
            f"no network of {self._options.egress_pool} is free for the sandbox{reason}",
            hint="set backends.docker.egress_pool to a range that nothing else uses",
        )

    async def _free_subnets(self, engine: Engine) -> list[ipaddress.IPv4Network]:
        taken = []
        for one in await engine.call("GET", "networks"):
            for config in (one.get("IPAM") or {}).get("Config") or ():
                with suppress(ValueError, KeyError):
                    taken.append(ipaddress.IPv4Network(config["Subnet"], strict=False))
        networks: list[ipaddress.IPv4Network] = []
        for subnet in ipaddress.IPv4Network(self._options.egress_pool).subnets(new_prefix=_PREFIX):
            if not any(subnet.overlaps(other) for other in taken):
                networks.append(subnet)
                if len(networks) == _TRIES:
                    break
        return networks

    def _prepare(self, gateway: Gateway, spec: SandboxSpec) -> Path:
        folder = self.folder(gateway.token)
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.chmod(0o700)
        gateway_rules.prepare(folder, spec.name, spec.egress, self._options.egress_hosts)
        return folder

    def _program(self) -> Path:
        """The gateway's program on disk, named by its content, so that a running gateway keeps its own version."""
        data = bundle.build()
        path = self.folder(f"gateway-{hashlib.sha256(data).hexdigest()[:12]}.pyz")
        if not path.exists():
            fresh = path.with_suffix(f".{secrets.token_hex(4)}")
            fresh.write_bytes(data)
            fresh.chmod(0o644)
            fresh.replace(path)
        return path

    def folder(self, token: str) -> Path:
        """Where a gateway's rules and records are."""
        if self._folder is None or not token.replace("-", "").replace(".", "").isalnum():
            raise NotFound("the sandbox's gateway was made by a console with another state folder")
        return self._folder / token

    async def start(self, engine: Engine, token: str, data: Mapping[str, Any]) -> None:
        """Start the gateway of a sandbox, as inspected, and wait until it listens.

        Raises Conflict if a port's address is taken, or if another console made it, whose files it reports to;
        BackendError with the gateway's last output.
        """
        name = str(data["Name"]).lstrip("/")
        if not await asyncio.to_thread(self._reports, token):
            text = f"the egress gateway of {name} is of a console on another host, or with another state folder"
            raise Conflict(text, hint="start it there, or remove it and create it here")
        hint = f"egress_image needs Python 3.11 or newer; it is {self._options.egress_image}"
        ready = self.folder(token) / "records" / "ready"
        free = partial(self._free, engine)
        await running.start(engine, token, name, ready, ports_of(data), free, hint=hint)

    async def _free(self, engine: Engine, idle: str) -> None:
        await running.stop(engine, idle)
        await self.sweep(engine)

    async def stop(self, engine: Engine, token: str) -> None:
        """Stop the gateway of a sandbox that has stopped."""
        await running.stop(engine, token)

    def port_used(self, data: Mapping[str, Any]) -> float | None:
        """When a byte last passed a port of a sandbox, as inspected, in seconds since the epoch; None for never."""
        try:
            return (self.folder(token_of(data)) / "records" / "used").lstat().st_mtime
        except (OSError, NotFound):
            return None

    async def published(self, engine: Engine, data: Mapping[str, Any]) -> tuple[Fact, ...]:
        """Where the engine publishes the ports of a sandbox, as inspected."""
        token, requested = token_of(data), ports_of(data)
        if not token or not requested:
            return ()
        if not data["State"].get("Running"):
            return tuple(ports.facts(requested, None, "it is not running"))
        try:
            gateway = await running.inspected(engine, token)
        except NotFound:
            return tuple(ports.facts(requested, None, _GONE))
        return tuple(ports.facts(requested, gateway, running.why_down(gateway["State"])))

    async def walled(self, engine: Engine, data: Mapping[str, Any]) -> tuple[Fact, ...]:
        """Whether a sandbox's gateway knows the addresses of the engine's machine, and whether its bridge has none."""
        token = proxy_of(data)
        if not token:
            return ()
        try:
            mounts = (await running.inspected(engine, token)).get("Mounts") or ()
        except NotFound:
            return ()
        reason = ""
        if not self._connection.local or not await asyncio.to_thread(self._reports, token):
            reason = "what its gateway reports is in another host's files, or another state folder; ask its own console"
        elif not any(str(one.get("Source", "")).startswith(bodies.HOST_NET) for one in mounts):
            reason = "the addresses of the engine's machine are unknown; recreate the sandbox if they are known now"
        elif in_virtual_machine(self._connection.info):
            reason = "the engine is in a virtual machine: its addresses are refused, not those of the machine around it"
        elif await asyncio.to_thread(self._says, token, APART):
            reason = "the engine has a network of its own (rootless, in a container): only its machine's are refused"
        bridge_facts = _BRIDGED if await asyncio.to_thread(self._says, token, HELD) else ()
        if reason:
            return (*bridge_facts, Fact("egress.host", "not enforced", note=reason, enforced=False))
        note = "the engine host's addresses, read live, unless a rule names one"
        return (*bridge_facts, Fact("egress.host", "refused", note=note))

    def _reports(self, token: str) -> bool:
        """Whether the files of a gateway are this console's, so that it can know what the gateway reports."""
        with suppress(NotFound, OSError):
            return (self.folder(token) / "records").is_dir()
        return False

    def _says(self, token: str, word: str) -> bool:
        """Whether a gateway reported this word of ``egress.host_addresses``."""
        try:
            return word in ready_words(self.folder(token) / "records")
        except NotFound:
            return False

    async def apart(self) -> bool:
        """Whether any gateway of this console has found that the engine's network is not its machine's."""
        return await asyncio.to_thread(self._any_apart)

    def _any_apart(self) -> bool:
        folder = self._folder
        return folder is not None and any(self._says(path.parts[-3], APART) for path in folder.glob("*/records/ready"))

    async def discard(self, engine: Engine, token: str) -> None:
        """Remove all parts of a gateway; missing parts are skipped."""
        gateway = container_path(gateway_name(token))
        with suppress(ConsoleError):
            await engine.call("DELETE", gateway, params={"force": 1, "v": 1}, timeout_s=60)
        with suppress(ConsoleError):
            await engine.call("DELETE", f"networks/sandbox-console-{token}", timeout_s=60)
        with suppress(NotFound):
            await asyncio.to_thread(shutil.rmtree, self.folder(token), ignore_errors=True)

    async def sweep(self, engine: Engine) -> None:
        """Remove the gateways of sandboxes that something else removed."""
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
        """Why a gateway does not answer; empty while it is running."""
        try:
            return running.why_down((await running.inspected(engine, token))["State"])
        except NotFound:
            return _GONE


def token_of(data: Mapping[str, Any]) -> str:
    """The token of an inspected container's gateway; empty if it has no gateway.

    An image may carry the label, for example one that was committed from a sandbox: only a container in the network has
    the gateway.
    """
    token = str((data["Config"].get("Labels") or {}).get(EGRESS, ""))
    return token if token and data["HostConfig"].get("NetworkMode") == f"sandbox-console-{token}" else ""


def proxy_of(data: Mapping[str, Any]) -> str:
    """The token of its gateway if that allows egress; empty if it only publishes ports."""
    spec = spec_of(data)
    return token_of(data) if spec is None or spec.egress else ""


def ports_of(data: Mapping[str, Any]) -> tuple[PublishedPort, ...]:
    """The ports that a sandbox, as inspected, should publish."""
    spec = spec_of(data) if token_of(data) else None
    return parse_all(spec.ports) if spec is not None else ()


def _age(created: str) -> float:
    at = seconds(created)
    return time.time() - at if at else 0.0
