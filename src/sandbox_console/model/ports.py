"""Published ports: addresses on this host that lead to a port of a sandbox.

They are written ``[ADDRESS:][HOST_PORT:]PORT``, as for ``docker run --publish``, with an IPv6 address in brackets. The
default address is 127.0.0.1 (Docker's own default is every address), the default host port a free one. TCP only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from msgspec import Struct, structs

LOOPBACK = "127.0.0.1"

_FORM = re.compile(r"(?:(?P<address>\[[^\]]*\]|[^:\[\]]*):)??(?:(?P<host>[^:\[\]]*):)?(?P<port>[^:\[\]]*)\Z")
_WRITE = "write 8080:80, 80 for a free port of this host, or 0.0.0.0:8080:80"


class PublishedPort(Struct, frozen=True):
    """``port`` of the sandbox is published at ``address`` and ``host_port`` of this host (0 picks a free port)."""

    address: str
    host_port: int
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this host can reach it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def host_address(self) -> str:
        """``address:port`` of this host, with an IPv6 address in brackets."""
        return f"{f'[{self.address}]' if ':' in self.address else self.address}:{self.host_port}"

    def __str__(self) -> str:
        return (
            f"{self.host_address}:{self.port}"
            if self.host_port
            else f"{self.host_address.removesuffix('0')}:{self.port}"
        )


def parse(text: str) -> PublishedPort:
    """Read one port. Raises ValueError, which says what is wrong and what to write instead."""
    bare, slash, protocol = text.partition("/")
    if protocol in ("udp", "sctp"):
        raise ValueError(f"{text!r}: only TCP ports can be published")
    match = _FORM.match(text if slash and protocol != "tcp" else bare)
    if match is None:
        raise ValueError(f"{text!r} is no port; {_WRITE}")
    host = match["host"]
    return PublishedPort(
        address=_address(text, match["address"]),
        host_port=_number(text, host) if host else 0,
        port=_number(text, match["port"]),
    )


def parse_all(texts: Sequence[str]) -> tuple[PublishedPort, ...]:
    """Read all ports of a spec. Raises ValueError, also if two need the same address of this host."""
    ports = tuple(map(parse, texts))
    taken: set[str] = set()
    for port in ports:
        if port.host_port and port.host_address in taken:
            raise ValueError(f"{port.host_address} of this host is asked for twice")
        taken.add(port.host_address)
    return ports


def notes_on(texts: Sequence[str]) -> tuple[str, ...]:
    """The problem or possible mistake of each port; empty if there is none."""
    taken: set[str] = set()
    return tuple(_note(text, taken) for text in texts)


def _note(text: str, taken: set[str]) -> str:
    """The note on one port. ``taken`` are the addresses of those before it, and gets its own."""
    try:
        port = parse(text)
    except ValueError as error:
        return f"✕ {error}"
    if port.host_port and port.host_address in taken:
        return f"✕ {port.host_address} of this host is asked for twice"
    taken.add(port.host_address)
    return "" if port.loopback else "! other machines can reach it"


def freed(texts: Sequence[str]) -> tuple[str, ...]:
    """The ports for a copy of a sandbox: the same addresses, but free host ports, as the original occupies its own."""
    return tuple(str(structs.replace(port, host_port=0)) for port in parse_all(texts))


def _address(text: str, given: str | None) -> str:
    if not given:
        return LOOPBACK
    bracketed = given.startswith("[")
    try:
        found = ipaddress.ip_address(given.strip("[]"))
    except ValueError:
        raise ValueError(f"{text!r}: {given!r} is not an address of this host; {_WRITE}") from None
    if bracketed != (found.version == 6) or "%" in given:
        raise ValueError(f"{text!r}: {given!r} is not an address of this host; {_WRITE}")
    return str(found)


def _number(text: str, given: str) -> int:
    if not (given.isascii() and given.isdigit() and len(given) <= 5 and 0 < int(given) < 65536):
        shown = repr(text) if text == given else f"{text!r}: {given!r}"
        raise ValueError(f"{shown} is not a port from 1 to 65535; {_WRITE}")
    return int(given)
