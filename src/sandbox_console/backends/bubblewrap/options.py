"""The configuration table of this backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from sandbox_console.errors import ConfigError
from sandbox_console.model.did_you_mean import nearest


class Options(Struct, frozen=True):
    """What may be set under ``[backends.bubblewrap]``; sizes are MiB, times seconds.

    ``bwrap``: the program; empty finds the system's, then the wheel's. ``uid_base`` and ``uid_count``:
    user ids that root's console gives its sandboxes, one each; systemd's and distributions' ranges end
    below the default. ``log_mib`` in all is kept of one sandbox's output, in ``log_files`` files;
    what it writes past ``log_rate_mib`` a second is left out, with a mark of how much.
    ``tmp_mib`` bounds /tmp and the home folder, each. ``egress_hosts``: a file as /etc/hosts, of names that
    gateways do not ask the resolver for.
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
        """Read the table. Raises ConfigError for an unknown key or a value of the wrong kind."""
        known = {item.name: type(item.default) for item in structs.fields(cls)}
        for key, value in table.items():
            if key not in known:
                near = nearest(key, known)
                raise ConfigError(f"bubblewrap has no option {key!r}", hint=f"did you mean {near!r}?" if near else "")
            if type(value) is not known[key] or (isinstance(value, int) and value < 1):
                wanted = "a text" if known[key] is str else "a whole number above 0"
                raise ConfigError(f"option {key!r} of bubblewrap is {value!r}; {wanted} is needed")
        return cls(**table)
