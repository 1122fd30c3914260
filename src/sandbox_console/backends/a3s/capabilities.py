"""What can be done with a runtime of A3S Box, and why the rest cannot."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_BUFFERED = "the runtime answers when a command has ended"
_RULES = "the runtime has no list of hosts; a sandbox is created without a network"
_SECRET = "the runtime would keep the value with the sandbox"  # noqa: S105 - a sentence
_NEVER = {
    Capability.KILL: "the runtime has no signals, and its kill removes the sandbox; stop ends it",
    Capability.UPDATE_MAX_DURATION: "the runtime keeps the time that a sandbox was made with",
    Capability.RENAME: "the runtime keeps the name of a sandbox; create another",
    Capability.EXEC_STDIN: "the runtime takes the input of a command as a whole, before it starts",
    Capability.FORWARD: "the runtime opens no connection into a sandbox",
    Capability.SHELL: f"{_BUFFERED}: there is no terminal",
    Capability.SHELL_KEEP: _BUFFERED,
    Capability.ATTACH: "the runtime does not give the streams of the main process; logs --follow does",
    Capability.RUNTIME: "isolation of the runtime's table is for every sandbox",
    Capability.SYSTEM_CALLS: "the runtime leaves that to A3S Box",
    Capability.LIMIT_LOG_RATE: "the runtime has no such limit",
    Capability.MAX_DURATION: "lifetime_s of the runtime's table is for every sandbox",
    Capability.IDLE_TIMEOUT: "the runtime does not know what is idle",
    Capability.UPDATE_MEMORY: "the runtime changes reservations, not the limit",
    Capability.EGRESS_ALLOWLIST: _RULES,
    Capability.EGRESS_UPDATE: _RULES,
    Capability.EGRESS_RECORDS: "the runtime reports no connections",
    Capability.PORTS: "a published port needs the network, and a sandbox is created without one",
    Capability.SECRET_ENV: _SECRET,
    Capability.SECRET_FILE: _SECRET,
    Capability.SECRET_PLACEHOLDER: _SECRET,
    Capability.DIFF: "the runtime does not tell what was changed since the image",
    Capability.COMMIT: "an image is built from a Dockerfile; snapshot saves the files",
    Capability.IMAGE_FILES: "the runtime neither reads nor writes archives of images",
    Capability.FORK: "the runtime copies files, not what runs; snapshot saves them",
    **ONE_CONTAINER,
}


def capabilities() -> Capabilities:
    """What can be done."""
    return Capabilities(frozenset(Capability) - _NEVER.keys(), _NEVER)
