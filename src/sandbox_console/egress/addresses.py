"""Which addresses belong to the public internet.

The lists are IANA's special-purpose registries (RFC 6890 and later additions). ``ipaddress.is_global`` differs from
them, and between the Python versions that a gateway may run on.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_SPECIAL_4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
            "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        ),
    )
)  # fmt: skip
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.42.42", "168.63.129.16", "100.100.100.200",
            "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe",
            "fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe",
        ),
    )
)  # fmt: skip
"""Where clouds serve the metadata of a machine, including its credentials.

By their manuals: AWS (with ECS and EKS), Azure (a public address), Alibaba, Oracle, Google, Scaleway, Linode and
OpenStack.
"""

_NEAR: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = (
    *map(ipaddress.IPv4Network, ("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32")),
    *map(ipaddress.IPv6Network, ("::/96", "fe80::/10", "ff00::/8")),
)
"""Networks that mean this machine or its link on every machine. Of loopback the kernel says so itself."""


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for (mapped, NAT64), else the address itself."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_global(address: Address) -> bool:
    """Whether an address is on the public internet, and not this host's, a private network's or a special one."""
    address = plain(address)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    return address in _PUBLIC_6 and not any(address in network for network in _SPECIAL_6)


def is_near(address: Address) -> bool:
    """Whether an address leads to this machine, its link or a cloud's metadata on every machine."""
    return any(one in METADATA or any(one in network for network in _NEAR) for one in (address, plain(address)))
