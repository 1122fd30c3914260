"""What microsandbox can do, and why it cannot do the rest."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_MISSING = {
    **ONE_CONTAINER,
    Capability.READ_ONLY_ROOT: "a microVM's root is its own disk, which the runtime always mounts to be written",
    Capability.RUNTIME: "there is one runtime: a microVM",
    Capability.SYSTEM_CALLS: "a guest has a kernel of its own, which filters none of its calls",
    Capability.SHELL_KEEP: "the runtime's SDK ends a shell with the process that opened it",
    Capability.LIMIT_PIDS: "the guest's kernel is its own; its memory is what limits its processes",
    Capability.LIMIT_LOG_RATE: "the runtime writes the log itself and limits no rate; a flood rotates older lines away",
    Capability.UPDATE_MAX_DURATION: "the microVM keeps the limit that it booted with; the sandbox is recreated",
    Capability.UPDATE_PIDS: "the guest's kernel is its own; its memory is what limits its processes",
    Capability.EGRESS_UPDATE: "the network of a microVM is set when it is made; update recreates it",
    Capability.EGRESS_RECORDS: "the runtime logs no connection; only a secret that was sent where it may not go",
    Capability.DIFF: "the runtime does not report how a root differs from its image",
    Capability.ATTACH: "a main process has no input; its output is its log",
    Capability.COMMIT: "the runtime makes no image of a root; snapshot keeps it",
}


def capabilities() -> Capabilities:
    """Its capabilities, which do not depend on the host if it works there at all."""
    return Capabilities(frozenset(Capability) - _MISSING.keys(), _MISSING)
