"""Egress patterns and how they match.

This module uses the standard library only, because the gateway runs it inside containers.

A pattern is ``host``, ``host:port`` or ``*.suffix`` (one or more labels, never the apex). Without a port it means ports
80 and 443. IP literals and CIDR (``10.0.0.0/8``, ``10.0.0.0/8:5432``, ``[fd00::/8]:5432``) need an explicit opt-in.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

DEFAULT_PORTS = frozenset({80, 443})
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
# The standard library's IDNA is the one of 2003, which maps these to other names than today's clients use.
_DEVIATIONS = re.compile("[\u00df\u1e9e\u03c2\u200c\u200d]")
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")  # what inet_aton accepts as a part of an address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class HostPattern:
    """One parsed pattern: ``host`` is ASCII, lower case, without the leading ``*.``."""

    host: str
    ports: frozenset[int] = DEFAULT_PORTS
    wildcard: bool = False
    network: Network | None = None

    def matches(self, host: str, port: int) -> bool:
        """Whether a connection to ``host`` (a name or an address, in any case) and ``port`` fits."""
        if port not in self.ports:
            return False
        if self.network is not None:
            address = parse_address(host)
            return address is not None and address in self.network
        try:
            name = normalise(host)
        except ValueError:
            return False
        return name.endswith("." + self.host) if self.wildcard else name == self.host


def normalise(host: str) -> str:
    """A host name in ASCII (IDNA), lower case, without the trailing dot. Raises ValueError."""
    host = host.removesuffix(".")
    if not host:
        raise ValueError("it is empty")
    if _DEVIATIONS.search(host):
        raise ValueError(f"{host!r} has a letter that IDNA versions read differently; write the name as xn--...")
    try:
        name = host.lower() if host.isascii() else host.encode("idna").decode("ascii").lower()
    except (UnicodeError, LookupError):  # the codec could not be loaded
        raise ValueError(f"{host!r} is not a host name") from None
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.match(label) for label in labels):
        raise ValueError(f"{host!r} is not a host name")
    return name


def parse(pattern: str, *, allow_ip: bool = False) -> HostPattern:
    """Read one pattern. Raises ValueError, which says what is wrong and what to write instead."""
    if "://" in pattern:
        bare = pattern.partition("://")[2].partition("/")[0]
        raise ValueError(f"{pattern!r} has a scheme; write only the host, as in {bare!r}")
    if re.search(r"\s", pattern):
        raise ValueError(f"{pattern!r} has a space in it")
    if (found := _network(pattern)) is not None:
        if not allow_ip:
            raise ValueError(f"{pattern!r} is an IP address; use a host name, or set egress_ip = true in the policy")
        network, ports = found
        return HostPattern(host=str(network), ports=ports, network=network)
    if "/" in pattern or "?" in pattern or "#" in pattern:
        raise ValueError(f"{pattern!r} has a path; egress is decided by host alone")
    if "@" in pattern:
        raise ValueError(f"{pattern!r} has a user in it; write only the host")
    host, ports = _split_port(pattern)
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


def _network(text: str) -> tuple[Network, frozenset[int]] | None:
    """An address or a network, with its ports; None if the text is neither."""
    try:  # without a port first, as an IPv6 address has colons of its own
        return ipaddress.ip_network(text, strict=False), DEFAULT_PORTS
    except ValueError:
        pass
    try:
        host, ports = _split_port(text)
        return ipaddress.ip_network(host, strict=False), ports
    except ValueError:
        return None


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address in its plain form, an IPv6 one with or without brackets; None for anything else."""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def covers(allowed: HostPattern, pattern: HostPattern) -> bool:
    """Whether ``allowed`` matches everything that ``asked`` matches."""
    if not pattern.ports <= allowed.ports:
        return False
    if allowed.network is not None and pattern.network is not None:
        same = allowed.network.version == pattern.network.version
        return same and pattern.network.subnet_of(allowed.network)  # type: ignore[arg-type]
    if allowed.network is not None or pattern.network is not None:
        return False
    if allowed.wildcard:
        return pattern.host.endswith("." + allowed.host) or (pattern.wildcard and pattern.host == allowed.host)
    return not pattern.wildcard and pattern.host == allowed.host
