"""What can be done on an OpenSandbox server, and why the rest cannot."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_RULES = "its egress container could not be had to prove it; a sandbox without egress has a policy that denies all"
_SERVER = "the API leaves that to the server's configuration"
_MERGED = "the server gives the log as one text"
_NEVER = {
    Capability.KILL: "the API has no signals; stop removes it from the server",
    Capability.RENAME: "a sandbox of the server keeps its name; create another",
    Capability.EXEC_STDIN: "execd sends a command no input",
    Capability.FORWARD: "the server forwards HTTP alone",
    Capability.SHELL_KEEP: "the console does not keep the sessions of execd yet",
    Capability.LOG_STREAMS: _MERGED,
    Capability.ATTACH: "execd does not give the main process's streams",
    Capability.WORKSPACE: "a folder of this machine is not on the server's; its volumes are the server's own",
    Capability.USER: _SERVER,
    Capability.READ_ONLY_ROOT: _SERVER,
    Capability.RUNTIME: _SERVER,
    Capability.SYSTEM_CALLS: _SERVER,
    Capability.LIMIT_PIDS: _SERVER,
    Capability.LIMIT_LOG_RATE: _SERVER,
    Capability.IDLE_TIMEOUT: "the server does not know what is idle",
    Capability.UPDATE_CPU: "the limits of a sandbox are set when it is made",
    Capability.UPDATE_MEMORY: "the limits of a sandbox are set when it is made",
    Capability.UPDATE_PIDS: _SERVER,
    Capability.EGRESS_ALLOWLIST: _RULES,
    Capability.EGRESS_UPDATE: _RULES,
    Capability.EGRESS_RECORDS: _RULES,
    Capability.PORTS: "a port would be open on the server's machine, at an address that it chooses",
    Capability.SECRET_ENV: "the server keeps variables in its engine, where others may read them",
    Capability.SECRET_FILE: "the server has no files that are only in memory",
    Capability.SECRET_PLACEHOLDER: "its credential proxy could not be had to prove it",
    Capability.PROCESSES: "execd lists no processes; exec ps does, if the image has it",
    Capability.DIFF: "the API does not tell what was changed since the image",
    Capability.EVENTS: "the server gives events as text, which inspect has",
    Capability.COMMIT: "the API makes snapshots, not images",
    Capability.IMAGES_CHANGE: "the API lists its pools, and no images",
    **ONE_CONTAINER,
    Capability.IMAGE_FILES: "the API lists no images",
    Capability.SNAPSHOT: "the console does not take the server's snapshots yet",
    Capability.FORK: "the API has no forks",
}


def capabilities() -> Capabilities:
    """What can be done."""
    return Capabilities(frozenset(Capability) - _NEVER.keys(), _NEVER)
