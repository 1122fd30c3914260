"""Published ports: which ones a sandbox's supervisor should hold, and which ones it holds."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.backends.bubblewrap.supervise.gateway import PORT
from sandbox_console.backends.common.messages import address_taken, reach
from sandbox_console.errors import Conflict
from sandbox_console.model.access import access
from sandbox_console.model.ports import PublishedPort, parse_all
from sandbox_console.model.sandbox import Fact, Status
from sandbox_console.model.spec import SandboxSpec

_ANSWERING = (Status.RUNNING, Status.PAUSED, Status.STOPPING)
_EVERY = {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
_ROOTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


def order(spec: SandboxSpec) -> list[tuple[str, int, int]]:
    """Each port as an address, the port on the host (0 for a free one), and the port in the sandbox."""
    return [(port.address, port.host_port, port.port) for port in parse_all(spec.ports)]


def facts(record: Record) -> Iterator[Fact]:
    """Where each port of the sandbox can be reached now."""
    bound = list(_bound(record))
    for port in sorted({published.port for published in parse_all(record.spec.ports)}):
        at = [published for published in bound if published.port == port]
        note = reach(published.address for published in at)
        if record.status is Status.PAUSED:
            note = "; ".join(filter(None, [note, "connections wait until it is resumed"]))
        places = ", ".join(published.host_address for published in at)
        yield Fact(f"port {port}/tcp", places or "not published", note if at else "only while it runs")


def _bound(record: Record) -> Iterator[PublishedPort]:
    if record.status in _ANSWERING:
        for address, number, port in record.raw.get("ports") or ():
            yield PublishedPort(address, number, port)


def problem(spec: SandboxSpec) -> str:
    """Why this user cannot publish a port; empty if it is possible, or if the port is only taken now."""
    try:
        requested = parse_all(spec.ports)
    except ValueError:
        return ""  # the spec's own check reports it
    if spec.egress and any(port.port == PORT for port in requested):
        return f"{PORT} of the sandbox belongs to its egress gateway: only the guest may use it"
    return next(filter(None, map(_refused, requested)), "")


def _refused(port: PublishedPort) -> str:
    try:
        with socket.socket(socket.AF_INET6 if ":" in port.address else socket.AF_INET) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((port.address, port.host_port))
    except PermissionError:
        first = int(_ROOTS.read_text())
        return f"{port.host_address} can only be opened by root; other users have the ports from {first} on"
    except OSError as error:
        here = error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
        return "" if here else f"{port.address} is not an address of this host"
    return ""


def taken(host_address: str, hint: str, name: str, others: Callable[[], Sequence[Record]]) -> Conflict:
    """The error for an address that is taken, with the name of the sandbox that has it if it is ours. Blocks."""
    holder = next((one.spec.name for one in others() for at in _bound(one) if _excludes(at, host_address)), "")
    number = host_address.rpartition(":")[2]
    if access().labels:  # it may be one that this person may not see
        return address_taken(name, host_address, "", hint)
    hint += f", or stop {holder} first" if holder else f"; whose it is: ss -ltnp sport = :{number}"
    return address_taken(name, host_address, holder, hint)


def _excludes(at: PublishedPort, host_address: str) -> bool:
    """Whether a listener at one address prevents one at the other. A wildcard address takes all of them."""
    address, _, number = host_address.rpartition(":")
    same = at.host_address.rpartition(":")[0] == address
    return str(at.host_port) == number and (same or _EVERY & {at.address, address.strip("[]")} != set())
