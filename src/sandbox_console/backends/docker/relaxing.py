"""What the operator's configuration may give back of the walls; a spec cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox_console.errors import ConfigError

GIVEN_BACK = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
     "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_PTRACE"}
)  # fmt: skip
"""Docker's own default set, and SYS_PTRACE for debuggers. Not NET_RAW: with it a guest forges addresses to its
gateway and its neighbours. The rest (SYS_ADMIN, NET_ADMIN, ...) takes over a host, or its network."""


def capabilities(table: Mapping[str, Any]) -> tuple[str, ...]:
    """The option ``capabilities``: Linux capabilities that root in a sandbox keeps. Raises ConfigError."""
    asked = table.get("capabilities", [])
    if not isinstance(asked, (list, tuple)) or not all(isinstance(one, str) for one in asked):
        raise ConfigError("docker: capabilities is a list of names", hint='for example capabilities = ["CHOWN"]')
    names = {one.upper().removeprefix("CAP_") for one in asked}
    if refused := sorted(names - GIVEN_BACK):
        raise ConfigError(
            f"docker: the capability {refused[0]} is not given to a sandbox",
            hint=f"these can be: {', '.join(sorted(GIVEN_BACK))}",
        )
    return tuple(sorted(names))
