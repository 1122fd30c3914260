"""What is said of a published port in every backend."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable


def reach(addresses: Iterable[str]) -> str:
    """The note on a port that is answered for at these addresses of this host; empty where only this host can come."""
    return "other machines can reach it" if any(map(_outward, addresses)) else ""


def _outward(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name, as some engines tell: where it leads is not known
        return True
