"""The requests that create a sandbox's gateway: a network, and the gateway's container.

The network is internal and its bridge has no address, so neither the host nor its resolver can be reached over it;
``internal`` alone leaves both open (tried on 20.10 and 28.5). The gateway has a second interface outside and forwards
nothing.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.backends.docker import ports, syscall_filter
from sandbox_console.backends.docker.labels import EGRESS, GATEWAY, gateway_name
from sandbox_console.backends.docker.translate import MIB
from sandbox_console.egress.rule_files import variables
from sandbox_console.model.ports import PublishedPort, parse_all
from sandbox_console.model.spec import SandboxSpec

PORT = 3128
INSIDE = "/gateway"
PROGRAM = f"{INSIDE}/gateway.pyz"
HOST_NET = "/proc/1/net"
"""A path on the engine's machine, even if that is virtual, as a bind mount's source is looked up there."""
RUN = ["python3", "-I", "-S", PROGRAM]
_UID = 65532  # the gateway's user if root's console creates it; nobody's on most systems
_MEMORY = 256 * MIB
_PIDS = 64
_IPV6_OFF = {"net.ipv6.conf.all.disable_ipv6": "1"}


class Gateway(Struct, frozen=True):
    """One sandbox's connection to and from the outside. ``token`` names its network, its gateway and its folder."""

    token: str
    subnet: ipaddress.IPv4Network

    @property
    def name(self) -> str:
        """The network's name."""
        return f"sandbox-console-{self.token}"

    @property
    def gateway_name(self) -> str:
        """The name of the gateway's container."""
        return gateway_name(self.token)

    @property
    def address(self) -> str:
        """The gateway's address in the network. Docker reserves the first address, though nobody uses it."""
        return str(self.subnet[2])

    @property
    def sandbox_address(self) -> str:
        """The sandbox's address."""
        return str(self.subnet[3])


def network(gateway: Gateway) -> dict[str, Any]:
    """The body for networks/create.

    An engine (20.10) gives a sandbox a default route in an internal network, too: through the bridge's address, unless
    ``DefaultGatewayIPv4`` names another one. So this names an address that nobody has, even if the bridge gets one.
    """
    aside = {"DefaultGatewayIPv4": str(gateway.subnet[6])}
    return {
        "Name": gateway.name,
        "Driver": "bridge",
        "Internal": True,
        "EnableIPv6": False,
        "IPAM": {"Driver": "default", "Config": [{"Subnet": str(gateway.subnet), "AuxiliaryAddresses": aside}]},
        "Options": {"com.docker.network.bridge.inhibit_ipv4": "true"},
        "Labels": {EGRESS: gateway.token},
    }


def gateway_body(
    gateway: Gateway,
    spec: SandboxSpec,
    image: str,
    outside: str,
    folder: Path,
    program: Path,
    info: Mapping[str, Any],
    seen: Sequence[str],
) -> dict[str, Any]:
    """The body for containers/create of the gateway; it joins the sandbox's network afterwards.

    ``seen`` are the files that describe the engine's own machine. The gateway listens for the sandbox if the spec
    allows any egress, and for clients if it publishes ports.
    """
    requested = parse_all(spec.ports)
    return {
        "Image": image,
        "Entrypoint": RUN,
        "Cmd": [*_command(gateway, requested, listens=bool(spec.egress), seen=bool(seen))],
        "ExposedPorts": ports.exposed(requested),
        "User": _user(),
        "Labels": {GATEWAY: gateway.token},
        "WorkingDir": "/",
        "HostConfig": {
            "NetworkMode": outside,
            "RestartPolicy": _restart(publishes=bool(requested)),
            "PortBindings": ports.bindings(requested),
            "Mounts": _mounts(folder, program, seen),
            **_walls(info),
        },
    }


def _command(gateway: Gateway, requested: Sequence[PublishedPort], *, listens: bool, seen: bool) -> Iterator[str]:
    yield from ("serve", "--folder", INSIDE, "--peers", str(gateway.subnet))
    yield from ports.words(requested, gateway.sandbox_address)
    if seen:
        yield from ("--host", f"{INSIDE}/host")
    if listens:
        yield from ("--listen", f"{gateway.address}:{PORT}")


def _restart(*, publishes: bool) -> dict[str, str]:
    """The restart policy. A gateway outlives the console and restarts of the engine, but not if it has ports.

    The sandbox ends with its engine, and a gateway that came back alone would keep its ports on the host.
    """
    return {"Name": "on-failure" if publishes else "unless-stopped"}


def _walls(info: Mapping[str, Any]) -> dict[str, Any]:
    """The restrictions of a gateway, which reads what a guest sends."""
    return {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true", *syscall_filter.options(info, {})],
        "ReadonlyRootfs": True,
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Sysctls": {"net.ipv4.ip_forward": "0", **_no_ipv6()},
        "LogConfig": {"Type": "local", "Config": {"max-size": "1m", "max-file": "2"}},
        "Ulimits": [{"Name": "nofile", "Soft": 16384, "Hard": 16384}, {"Name": "core", "Soft": 0, "Hard": 0}],
        **({"Memory": _MEMORY, "MemorySwap": _MEMORY} if info.get("MemoryLimit", True) else {}),
        **({"PidsLimit": _PIDS} if info.get("PidsLimit", True) else {}),
    }


def _mounts(folder: Path, program: Path, seen: Sequence[str]) -> list[dict[str, Any]]:
    return [
        _bind(program, PROGRAM, read_only=True),
        _bind(folder / "policy", f"{INSIDE}/policy", read_only=True),
        _bind(folder / "records", f"{INSIDE}/records", read_only=False),
        *(_bind(Path(HOST_NET, name), f"{INSIDE}/host/{name}", read_only=True) for name in seen),
    ]


def joined(container: str, gateway: Gateway) -> dict[str, Any]:
    """The body with which the gateway joins the network."""
    return {"Container": container, "EndpointConfig": {"IPAMConfig": {"IPv4Address": gateway.address}}}


def dress(body: dict[str, Any], gateway: Gateway, *, out: bool) -> None:
    """Make a sandbox's body for containers/create use its gateway. With ``out`` it gets the proxy's variables."""
    body["Labels"][EGRESS] = gateway.token
    own = {entry.partition("=")[0] for entry in body["Env"]}
    proxy = variables(f"http://{gateway.address}:{PORT}") if out else {}
    body["Env"] = [f"{name}={value}" for name, value in proxy.items() if name not in own] + body["Env"]
    # 0.0.0.0 is the sandbox itself, where nobody answers. The engine's resolver would forward lookups to the outside.
    body["HostConfig"] |= {"NetworkMode": gateway.name, "Dns": ["0.0.0.0"], "Sysctls": _no_ipv6()}  # noqa: S104
    endpoint = {"IPAMConfig": {"IPv4Address": gateway.sandbox_address}}
    body["NetworkingConfig"] = {"EndpointsConfig": {gateway.name: endpoint}}


def _bind(source: Path, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": read_only}


def _user() -> str:
    uid, gid = (_UID, _UID) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    return f"{uid}:{gid}"


def _no_ipv6() -> dict[str, str]:
    """The setting that disables IPv6; empty if this machine's kernel has no IPv6, as no container would start then."""
    return _IPV6_OFF if Path("/proc/sys/net/ipv6").exists() else {}
