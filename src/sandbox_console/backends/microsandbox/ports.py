"""Published ports of a microVM.

If the runtime cannot listen at an address it boots silently, and it takes 0 for any free port without reporting which
one (0.7.11). So addresses are chosen and tried before a boot, and looked up in its process afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sandbox_console.backends.common.messages import address_taken, reach
from sandbox_console.errors import Conflict, InvalidSpec
from sandbox_console.model.ports import PublishedPort, parse_all
from sandbox_console.model.sandbox import Fact
from sandbox_console.model.spec import SandboxSpec

Ports = tuple[PublishedPort, ...]

_LISTEN = "0A"
_SOCKET = "socket:["


def choose(spec: SandboxSpec, before: Ports = ()) -> Ports:
    """Where to publish a sandbox's ports. A free port stays where it was ``before``, if that is still available.

    It opens sockets, so call it in a thread. Raises Conflict for an address that is taken, InvalidSpec for an
    impossible one.
    """
    requested = sorted(
        parse_all(spec.ports), key=lambda port: not port.host_port
    )  # those requested by number come first
    with contextlib.ExitStack() as sockets:
        return tuple(_reserved(sockets, spec, published, before) for published in requested)


def _reserved(
    sockets: contextlib.ExitStack, spec: SandboxSpec, published: PublishedPort, before: Ports
) -> PublishedPort:
    if published.host_port:
        _listen(sockets, spec.name, published)
        return published
    for port in before:
        if (port.address, port.port) == (published.address, published.port):
            with contextlib.suppress(Conflict):
                _listen(sockets, spec.name, port)
                return port
    return replace(published, host_port=_listen(sockets, spec.name, published))


def _listen(sockets: contextlib.ExitStack, name: str, port: PublishedPort) -> int:
    family = socket.AF_INET6 if ":" in port.address else socket.AF_INET
    sock = sockets.enter_context(socket.socket(family))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the runtime: an address just closed is free
    try:
        sock.bind((port.address, port.host_port))
        sock.listen()
    except OSError as error:
        raise _refusal(name, port, error) from error
    return int(sock.getsockname()[1])


def _refusal(name: str, port: PublishedPort, error: OSError) -> Conflict | InvalidSpec:
    if error.errno == errno.EADDRINUSE:
        return taken(name, port)
    reason = "only root may take a port below 1024" if error.errno == errno.EACCES else error.strerror
    return InvalidSpec({"ports": f"{port.host_address} of this host cannot be listened at: {reason}"})


def taken(name: str, port: PublishedPort) -> Conflict:
    """The error if something else listens at an address."""
    return address_taken(name, port.host_address, "", "end what listens there, or publish it at another port")


def bindings(module: Any, ports: Ports) -> list[Any]:
    """The ports in the form that the SDK takes."""
    return [module.PortBinding.tcp(port.host_port, port.port, bind=port.address) for port in ports]


def removals(module: Any, ports: Ports) -> list[Any]:
    """The form in which the SDK removes them."""
    return [module.PortEndpoint(host_port=port.host_port, bind=port.address) for port in ports]


def of_config(network: Mapping[str, Any]) -> Ports:
    """The TCP ports that the runtime has recorded."""
    return tuple(
        PublishedPort(str(ipaddress.ip_address(one["host_bind"])), int(one["host_port"]), int(one["guest_port"]))
        for one in network.get("ports") or ()
        if one.get("protocol") == "tcp"
    )


def facts(ports: Ports, listening: frozenset[str] | None) -> Iterator[Fact]:
    """Where each port is; ``listening`` has the addresses at which the process listens, None if it was not found.

    Addresses are reported as recorded if processes cannot be inspected.
    """
    by_port: dict[int, list[PublishedPort]] = {}
    for published in ports:
        by_port.setdefault(published.port, []).append(published)
    for port, places in sorted(by_port.items()):
        there = [published for published in places if listening is not None and published.host_address in listening]
        lost = ", ".join(
            published.host_address for published in places if listening is not None and published not in there
        )
        note = f"nothing listens at {lost}" if lost else reach(published.address for published in there)
        value = ", ".join(published.host_address for published in there) or "not published"
        yield Fact(f"port {port}/tcp", value, enforced=not lost, note=note)


def listening(pid: int, ports: Ports) -> frozenset[str]:
    """The addresses at which a process listens, from /proc. On systems without it, all of them are assumed."""
    if sys.platform != "linux":
        return frozenset(one.host_address for one in ports)
    sockets = set(_sockets(pid))
    return frozenset(host_address for host_address, inode in _listeners() if inode in sockets)


def _sockets(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - half the time of iterdir()
            with contextlib.suppress(OSError):
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115 - the same
                if target.startswith(_SOCKET):
                    yield target[len(_SOCKET) : -1]


def _listeners() -> Iterator[tuple[str, str]]:
    """Each listening TCP socket of this host: its address and inode. The columns are those of proc_net_tcp(5)."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN:
                    address, _, port = words[1].partition(":")
                    yield PublishedPort(_address(address), int(port, 16), 0).host_address, words[9]


def _address(text: str) -> str:
    """An address, written in groups of four bytes in this machine's byte order."""
    groups = (bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8))
    raw = b"".join(group[::-1] if sys.byteorder == "little" else group for group in groups)
    return str(ipaddress.ip_address(raw))
