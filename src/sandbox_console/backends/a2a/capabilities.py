"""What can be done on an a2a runtime, and why the rest cannot."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_NAMES = "the runtime tells only the names of its sandboxes"
_BUFFERED = "the interface answers when a command has ended"
_SERVER = "the interface leaves that to the runtime"
_NO_NETWORK = (
    "the interface does not say what a sandbox can reach; if the runtime's sandboxes have no network: "
    "no_network = true in its table"
)
_NEVER = {
    Capability.KILL: "the interface has no signals; stop removes it from the runtime",
    Capability.PAUSE: "the interface cannot freeze a sandbox",
    Capability.UPDATE_MAX_DURATION: "the interface has no time limits",
    Capability.RENAME: "the runtime gives the names",
    Capability.EXEC_STDIN: "the interface sends a command no input",
    Capability.EXEC_USER: _SERVER,
    Capability.FORWARD: "the interface has no connections to ports",
    Capability.SHELL: f"{_BUFFERED}; exec runs one",
    Capability.SHELL_KEEP: _BUFFERED,
    Capability.LOGS: "the interface does not give the main process's output",
    Capability.LOG_STREAMS: "the interface does not give the main process's output",
    Capability.ATTACH: "the interface does not give the main process's output",
    Capability.STATS: _NAMES,
    Capability.WORKSPACE: "the runtime mounts its own bucket, not a folder of this machine",
    Capability.USER: _SERVER,
    Capability.READ_ONLY_ROOT: _SERVER,
    Capability.RUNTIME: _SERVER,
    Capability.SYSTEM_CALLS: _SERVER,
    Capability.LIMIT_PIDS: _SERVER,
    Capability.LIMIT_LOG_RATE: _SERVER,
    Capability.MAX_DURATION: _SERVER,
    Capability.IDLE_TIMEOUT: _SERVER,
    Capability.UPDATE_CPU: "the interface changes no sandbox",
    Capability.UPDATE_MEMORY: "the interface changes no sandbox",
    Capability.UPDATE_PIDS: "the interface changes no sandbox",
    Capability.UPDATE_LABELS: "the interface changes no sandbox",
    Capability.EGRESS_ALLOWLIST: "a2a_pack's HTTP interface never sends egress; the runtime decides it",
    Capability.EGRESS_UPDATE: "a2a_pack's HTTP interface never sends egress; the runtime decides it",
    Capability.EGRESS_RECORDS: _NAMES,
    Capability.PORTS: "the interface publishes no ports",
    Capability.SECRET_ENV: "a2a_pack's HTTP interface never sends secrets; the runtime adds them",
    Capability.SECRET_FILE: "a2a_pack's HTTP interface never sends secrets; the runtime adds them",
    Capability.SECRET_PLACEHOLDER: "a2a_pack's HTTP interface never sends secrets; the runtime adds them",
    Capability.COPY: "the interface moves no files",
    Capability.PROCESSES: _NAMES,
    Capability.DIFF: _NAMES,
    Capability.RAW: _NAMES,
    Capability.EVENTS: _NAMES,
    Capability.COMMIT: "the interface makes no images",
    Capability.IMAGES: _NAMES,
    Capability.IMAGES_CHANGE: _NAMES,
    **ONE_CONTAINER,
    Capability.IMAGE_FILES: _NAMES,
    Capability.SNAPSHOT: "the interface has no snapshots",
    Capability.FORK: "the interface has no forks",
}


def capabilities(*, no_network: bool) -> Capabilities:
    """What can be done on a runtime whose sandboxes have, or may have, a network."""
    reasons = dict(_NEVER) if no_network else {**_NEVER, Capability.EGRESS_NONE: _NO_NETWORK}
    return Capabilities(frozenset(Capability) - reasons.keys(), reasons)
