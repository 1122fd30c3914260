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

from sandbox_console.backends.common.messages import place_taken, reach
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
    with contextlib.ExitStack() as held:
        return tuple(_held(held, spec, one, before) for one in requested)


def _held(held: contextlib.ExitStack, spec: SandboxSpec, one: PublishedPort, before: Ports) -> PublishedPort:
    if one.host_port:
        _listen(held, spec.name, one)
        return one
    for kept in before:
        if (kept.address, kept.port) == (one.address, one.port):
            with contextlib.suppress(Conflict):
                _listen(held, spec.name, kept)
                return kept
    return replace(one, host_port=_listen(held, spec.name, one))


def _listen(held: contextlib.ExitStack, name: str, one: PublishedPort) -> int:
    family = socket.AF_INET6 if ":" in one.address else socket.AF_INET
    sock = held.enter_context(socket.socket(family))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the runtime: an address just closed is free
    try:
        sock.bind((one.address, one.host_port))
        sock.listen()
    except OSError as error:
        raise _refusal(name, one, error) from error
    return int(sock.getsockname()[1])


def _refusal(name: str, one: PublishedPort, error: OSError) -> Conflict | InvalidSpec:
    if error.errno == errno.EADDRINUSE:
        return taken(name, one)
    why = "only root may take a port below 1024" if error.errno == errno.EACCES else error.strerror
    return InvalidSpec({"ports": f"{one.place} of this host cannot be listened at: {why}"})


def taken(name: str, one: PublishedPort) -> Conflict:
    """The error if something else listens at an address."""
    return place_taken(name, one.place, "", "end what listens there, or publish it at another port")


def bindings(module: Any, ports: Ports) -> list[Any]:
    """The ports in the form that the SDK takes."""
    return [module.PortBinding.tcp(one.host_port, one.port, bind=one.address) for one in ports]


def removals(module: Any, ports: Ports) -> list[Any]:
    """The form in which the SDK removes them."""
    return [module.PortEndpoint(host_port=one.host_port, bind=one.address) for one in ports]


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
    for one in ports:
        by_port.setdefault(one.port, []).append(one)
    for port, places in sorted(by_port.items()):
        there = [one for one in places if listening is not None and one.place in listening]
        lost = ", ".join(one.place for one in places if listening is not None and one not in there)
        note = f"nothing listens at {lost}" if lost else reach(one.address for one in there)
        value = ", ".join(one.place for one in there) or "not published"
        yield Fact(f"port {port}/tcp", value, enforced=not lost, note=note)


def listening(pid: int, ports: Ports) -> frozenset[str]:
    """The addresses at which a process listens, from /proc. On systems without it, all of them are assumed."""
    if sys.platform != "linux":
        return frozenset(one.place for one in ports)
    sockets = set(_sockets(pid))
    return frozenset(place for place, inode in _listeners() if inode in sockets)


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
                    yield PublishedPort(_address(address), int(port, 16), 0).place, words[9]


def _address(text: str) -> str:
    """An address, written in groups of four bytes in this machine's byte order."""
    groups = (bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8))
    raw = b"".join(group[::-1] if sys.byteorder == "little" else group for group in groups)
    return str(ipaddress.ip_address(raw))
