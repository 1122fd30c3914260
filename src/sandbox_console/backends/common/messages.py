"""Messages with the same words in every backend: refusals, and notes on what is not limited or reached by others."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from sandbox_console.errors import Conflict

UNCOUNTED = "of any size and number of files: no kernel counts them for a folder"
"""The note on a workspace: quotas are a file system's, by user or project, and its administrator's."""


def not_running(name: str, status: str = "") -> Conflict:
    """It has to run for what is asked; ``status`` is what it is instead, where that is known."""
    return Conflict(
        f"{name} does not run" + (f": it is {status}" if status else ""), hint=f"sandbox-console start {name}"
    )


def name_taken(name: str) -> Conflict:
    """Another sandbox of the backend has the name."""
    return Conflict(f"the name {name!r} is taken", hint="choose another, or remove that sandbox")


def place_taken(name: str, place: str, holder: str, hint: str) -> Conflict:
    """``place`` (``address:port``), at which sandbox ``name`` is to be published, is ``holder``'s; empty: not known."""
    return Conflict(f"{name}: {place} is taken by {holder or 'another program of the host'}", hint=hint)


def reach(addresses: Iterable[str]) -> str:
    """The note on a port that is answered for at these addresses of this host; empty where only this host can come."""
    return "other machines can reach it" if any(map(_outward, addresses)) else ""


def _outward(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name, as some engines tell: where it leads is not known
        return True
