"""The configuration table of this backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from sandbox_console.errors import ConfigError
from sandbox_console.model.did_you_mean import nearest


class Options(Struct, frozen=True):
    """Options under ``[backends.bubblewrap]``; sizes are in MiB, times in seconds.

    ``bwrap``: the program; if empty, the system's is used, then the wheel's. ``uid_base`` and ``uid_count``: user ids
    that root's console gives its sandboxes, one each; the ranges of systemd and of distributions end below the default.
    ``log_mib`` is the total size of a sandbox's output that is kept, in ``log_files`` files; output beyond
    ``log_rate_mib`` per second is left out, with a mark of how much. ``tmp_mib`` limits /tmp and the home folder, each.
    ``egress_hosts``: a file like /etc/hosts, with names that gateways do not look up with the resolver.
    """

    bwrap: str = ""
    uid_base: int = 2_000_000_000
    uid_count: int = 10_000
    pids: int = 512
    log_mib: int = 32
    log_files: int = 4
    log_rate_mib: int = 16
    tmp_mib: int = 512
    grace_s: int = 10
    egress_hosts: str = ""

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Options:
        """Read the table. Raises ConfigError for an unknown key or a value of the wrong type."""
        known = {item.name: type(item.default) for item in structs.fields(cls)}
        for key, value in table.items():
            if key not in known:
                near = nearest(key, known)
                raise ConfigError(f"bubblewrap has no option {key!r}", hint=f"did you mean {near!r}?" if near else "")
            if type(value) is not known[key] or (isinstance(value, int) and value < 1):
                wanted = "a text" if known[key] is str else "a whole number above 0"
                raise ConfigError(f"option {key!r} of bubblewrap is {value!r}; {wanted} is needed")
        return cls(**table)
