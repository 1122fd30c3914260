"""Egress patterns and how they match. Standard library only: the gateway ships this file alone.

A pattern is ``host``, ``host:port`` or ``*.suffix`` (one or more labels, never the apex). Without a
port it means 80 and 443. IP literals and CIDR need an explicit opt-in.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

DEFAULT_PORTS = frozenset({80, 443})
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")  # what inet_aton reads as an address part


@dataclass(frozen=True, slots=True)
class HostPattern:
    """One parsed pattern: ``host`` is ASCII, lower case, without the leading ``*.``."""

    host: str
    ports: frozenset[int] = DEFAULT_PORTS
    wildcard: bool = False
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None

    def matches(self, host: str, port: int) -> bool:
        """Whether a connection to ``host`` (a name or an address, in any case) and ``port`` fits."""
        if port not in self.ports:
            return False
        if self.network is not None:
            return _address(host) in self.network if _address(host) else False
        try:
            name = normalise(host)
        except ValueError:
            return False
        return name.endswith("." + self.host) if self.wildcard else name == self.host


def normalise(host: str) -> str:
    """A host name in ASCII (IDNA), lower case, without the trailing dot. Raises ValueError."""
    host = host.strip().rstrip(".")
    if not host:
        raise ValueError("it is empty")
    try:
        name = host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise ValueError(f"{host!r} is not a host name") from None
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.match(label) for label in labels):
        raise ValueError(f"{host!r} is not a host name")
    return name


def parse(pattern: str, *, allow_ip: bool = False) -> HostPattern:
    """Read one pattern. Raises ValueError that says what is wrong and what to write instead."""
    if "://" in pattern:
        bare = pattern.partition("://")[2].partition("/")[0]
        raise ValueError(f"{pattern!r} has a scheme; write only the host, as in {bare!r}")
    if re.search(r"\s", pattern):
        raise ValueError(f"{pattern!r} has a space in it")
    network = _network(pattern)
    if network is not None:
        if not allow_ip:
            raise ValueError(f"{pattern!r} is an IP address; use a host name, or set egress_ip = true in the policy")
        return HostPattern(host=str(network), network=network)
    if "/" in pattern or "?" in pattern or "#" in pattern:
        raise ValueError(f"{pattern!r} has a path; egress is decided by host alone")
    if "@" in pattern:
        raise ValueError(f"{pattern!r} has a user in it; write only the host")
    host, ports = _split_port(pattern)
    if _address(host) is not None and not allow_ip:
        raise ValueError(f"{pattern!r} is an IP address; use a host name, or set egress_ip = true in the policy")
    if (address := _address(host)) is not None:
        return HostPattern(host=host, ports=ports, network=ipaddress.ip_network(address))
    wildcard = host.startswith("*.")
    name = normalise(host[2:] if wildcard else host)
    if _NUMERIC.match(name.rsplit(".", 1)[-1]):
        raise ValueError(f"{pattern!r} is an IP address in another notation")
    return HostPattern(host=name, ports=ports, wildcard=wildcard)


def _split_port(pattern: str) -> tuple[str, frozenset[int]]:
    if pattern.startswith("["):
        host, _, rest = pattern[1:].partition("]")
        text = rest.removeprefix(":")
    else:
        host, _, text = pattern.partition(":")
        if not _:
            return host, DEFAULT_PORTS
    if not text and pattern.startswith("["):
        return host, DEFAULT_PORTS
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise ValueError(f"{pattern!r} has a port that is not a number from 1 to 65535")
    return host, frozenset({int(text)})


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if "/" not in text and ":" not in text.removeprefix("["):
        address = _address(text)
        return ipaddress.ip_network(address) if address else None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def covers(allowed: HostPattern, asked: HostPattern) -> bool:
    """Whether all that ``asked`` matches is matched by ``allowed`` too."""
    if not asked.ports <= allowed.ports:
        return False
    if allowed.network is not None and asked.network is not None:
        same = allowed.network.version == asked.network.version
        return same and asked.network.subnet_of(allowed.network)  # type: ignore[arg-type]
    if allowed.network is not None or asked.network is not None:
        return False
    if allowed.wildcard:
        return asked.host.endswith("." + allowed.host) or (asked.wildcard and asked.host == allowed.host)
    return not asked.wildcard and asked.host == allowed.host
