"""What can be done with an organization of Daytona, and why the rest cannot."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_SNAPSHOT = "it is set in Daytona's snapshot"
_BUFFERED = "the toolbox answers when a command has ended"
_RULES = "the console cannot prove them without an account; a sandbox is created without a network"
_SECRET = "Daytona would keep the value with the sandbox"  # noqa: S105 - a sentence
_NO_IMAGES = "the console does not list the snapshots of an organization"
_NEVER = {
    Capability.KILL: "the API has no signals; stop ends it",
    Capability.PAUSE: "Daytona pauses only some classes of sandboxes, and the console does not ask for it yet",
    Capability.UPDATE_MAX_DURATION: "Daytona stops what is idle, and knows no longest life",
    Capability.RENAME: "the API keeps the name of a sandbox; create another",
    Capability.EXEC_STDIN: "the toolbox sends a command no input",
    Capability.EXEC_USER: "the toolbox runs a command as the snapshot's user",
    Capability.FORWARD: "a port has a public address of Daytona",
    Capability.SHELL: "the console does not open the toolbox's terminals yet; exec runs one command",
    Capability.SHELL_KEEP: _BUFFERED,
    Capability.LOG_STREAMS: "the toolbox gives the log without times",
    Capability.ATTACH: "the toolbox does not give the entrypoint's streams",
    Capability.STATS: "the console does not read Daytona's telemetry yet",
    Capability.WORKSPACE: "a folder of this machine is not on the server's; copy moves files",
    Capability.USER: _SNAPSHOT,
    Capability.READ_ONLY_ROOT: _SNAPSHOT,
    Capability.RUNTIME: _SNAPSHOT,
    Capability.SYSTEM_CALLS: "the API leaves that to Daytona",
    Capability.LIMIT_CPU: _SNAPSHOT,
    Capability.LIMIT_MEMORY: _SNAPSHOT,
    Capability.LIMIT_PIDS: "the API has no such limit",
    Capability.LIMIT_LOG_RATE: "the API has no such limit",
    Capability.MAX_DURATION: "the console does not set Daytona's ttl yet",
    Capability.IDLE_TIMEOUT: "Daytona counts whole minutes; auto_stop_minutes of the table is for every sandbox",
    Capability.UPDATE_CPU: _SNAPSHOT,
    Capability.UPDATE_MEMORY: _SNAPSHOT,
    Capability.UPDATE_PIDS: "the API has no such limit",
    Capability.EGRESS_ALLOWLIST: _RULES,
    Capability.EGRESS_UPDATE: _RULES,
    Capability.EGRESS_RECORDS: "the API reports no connections",
    Capability.PORTS: "a port has a public address of Daytona",
    Capability.SECRET_ENV: _SECRET,
    Capability.SECRET_FILE: _SECRET,
    Capability.SECRET_PLACEHOLDER: _SECRET,
    Capability.PROCESSES: "the toolbox lists no processes; exec ps does, if the snapshot has it",
    Capability.DIFF: "the API does not tell what was changed since the snapshot",
    Capability.EVENTS: "the API gives no events of a sandbox",
    Capability.COMMIT: "the console does not make Daytona's snapshots yet",
    Capability.IMAGES: _NO_IMAGES,
    Capability.IMAGES_CHANGE: _NO_IMAGES,
    Capability.IMAGE_FILES: _NO_IMAGES,
    Capability.SNAPSHOT: "the console does not make Daytona's snapshots yet",
    Capability.FORK: "the console does not make Daytona's forks yet",
    **ONE_CONTAINER,
}


def capabilities() -> Capabilities:
    """What can be done."""
    return Capabilities(frozenset(Capability) - _NEVER.keys(), _NEVER)
