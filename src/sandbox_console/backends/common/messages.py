"""Messages that are identical in every backend: refusals, and notes on missing limits and reachable ports."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from sandbox_console.errors import Conflict
from sandbox_console.model.access import access
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Status

UNCOUNTED = "of any size and number of files: no kernel counts them for a folder"
"""The note on a workspace: quotas belong to the file system, by user or project, and to its administrator."""


ONE_CONTAINER = {
    Capability.CONTAINERS: "a sandbox here is one container",
    Capability.LOG_PREVIOUS: "the log goes on after a restart; --since shows a part of it",
}
"""Why a backend has neither several containers nor a log for each run."""


def not_running(name: str, status: str = "") -> Conflict:
    """The error for a request that needs a running sandbox; ``status`` is its current status, if known."""
    return Conflict(
        f"{name} is not running" + (f": it is {status}" if status else ""), hint=f"sandbox-console start {name}"
    )


def not_stopped(name: str, status: str) -> Conflict:
    """The error for a sandbox with this status, which is not removed without --force."""
    text = f"{name} may be running" if status == Status.UNKNOWN else f"{name} is {status}"
    return Conflict(text, hint=f"sandbox-console rm --force {name}")


def name_taken(name: str) -> Conflict:
    """The error for a name that another sandbox of the backend has."""
    return Conflict(f"the name {name!r} is taken", hint="choose another, or remove that sandbox")


def address_taken(name: str, host_address: str, holder: str, hint: str) -> Conflict:
    """Port ``host_address`` of sandbox ``name`` is in use by ``holder``, which is empty if that is not known.

    People with labels are not told the holder's name, as it may be that of a sandbox that they may not see.
    """
    who = "another sandbox or program" if access().labels else holder or "another program of the host"
    return Conflict(f"{name}: {host_address} is taken by {who}", hint=hint)


def reach(addresses: Iterable[str]) -> str:
    """The note on a port that listens at these addresses of this host; empty if only this host can reach it."""
    return "other machines can reach it" if any(map(_outward, addresses)) else ""


def _outward(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:  # a name, as some engines report it: its address is unknown
        return True
