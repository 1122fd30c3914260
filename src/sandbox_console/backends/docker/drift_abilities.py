"""The abilities ``Adopts`` and ``Rejoins`` of one engine, and what they store."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from sandbox_console.backends import gateway_rules
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.docker import translate
from sandbox_console.backends.docker.drift import (
    DEFAULT_SHARES,
    cpuset,
    every_cpu,
    networks,
    restart_policy,
    shares,
    swap,
)
from sandbox_console.backends.docker.egress import EgressAbilities
from sandbox_console.backends.docker.failures import about
from sandbox_console.backends.docker.gateway_config import Gateway
from sandbox_console.backends.docker.gateways import proxy_of
from sandbox_console.backends.docker.paths import described
from sandbox_console.backends.docker.requested_specs import RequestedSpecs
from sandbox_console.model.action import Permit
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine


class DriftAbilities(EgressAbilities):
    """Compares the spec with what the engine has; mixed into DockerBackend."""

    _asked: RequestedSpecs

    async def adopt(self, permit: Permit, ref: SandboxRef, spec: SandboxSpec) -> None:
        need(permit)
        await self._keep(await self._inspected(ref), spec)

    async def rejoin(self, permit: Permit, ref: SandboxRef) -> None:
        need(permit)
        engine, data = await self._engine(), await self._inspected(ref)
        own, now = networks(data)
        with about(described(ref.id)):
            if undone := _undone(data, self._connection.info):
                await engine.call("POST", f"containers/{data['Id']}/update", body=undone)
            for name in sorted(now - {own}):
                await engine.call("POST", f"networks/{name}/disconnect", body={"Container": data["Id"], "Force": False})
            if own not in now:
                endpoint = await _endpoint(engine, own)
                await engine.call("POST", f"networks/{own}/connect", body={"Container": data["Id"], **endpoint})

    async def _keep(self, data: Mapping[str, Any], spec: SandboxSpec) -> None:
        await asyncio.to_thread(self._asked.put, data["Id"], spec)

    async def _keep_name(self, ref: SandboxRef, name: str) -> None:
        data = await self._inspected(ref)
        spec = await self._last_requested(data) or translate.spec_of(data)
        if spec is not None:
            await self._keep(data, structs.replace(spec, name=name))

    async def _last_requested(self, data: Mapping[str, Any]) -> SandboxSpec | None:
        if translate.spec_of(data) is None:  # of another tool: nothing is read for each event of thousands
            return None
        return await asyncio.to_thread(self._asked.get, data["Id"])

    async def _rules(self, data: Mapping[str, Any], asked: SandboxSpec | None) -> Any:
        """What a sandbox's egress rules amount to."""
        spec, token = asked or translate.spec_of(data), proxy_of(data)
        if spec is None or not token:
            return spec.egress if spec else ()
        return await asyncio.to_thread(gateway_rules.found, self._gateways.folder(token), spec.egress)


def _undone(data: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """What ``docker update`` has to set so that a container is again as the console makes every one."""
    host, made = data["HostConfig"], dict[str, Any]()
    if restart_policy(data):
        made["RestartPolicy"] = {"Name": "no"}
    if swap(host, info):
        made |= {"Memory": host["Memory"], "MemorySwap": host["Memory"]}
    if cpuset(host, info):
        made["CpusetCpus"] = every_cpu(info)
    if shares(host):
        made["CpuShares"] = DEFAULT_SHARES
    return made


async def _endpoint(engine: Engine, name: str) -> dict[str, Any]:
    """The address that a sandbox had in the network of its gateway; nothing for the network "none"."""
    if name == "none":
        return {}
    network = await engine.call("GET", f"networks/{name}")
    subnet = ipaddress.IPv4Network(network["IPAM"]["Config"][0]["Subnet"])
    gate = Gateway(name.removeprefix("sandbox-console-"), subnet)
    return {"EndpointConfig": {"IPAMConfig": {"IPv4Address": gate.sandbox_address}}}
