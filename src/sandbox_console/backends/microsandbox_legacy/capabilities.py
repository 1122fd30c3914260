"""What can be done on a legacy microsandbox server, and why the rest cannot."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_NO_NETWORK = (
    "the protocol does not say what a sandbox can reach; if the server's sandboxes have no network: "
    "no_network = true in its table"
)
_SECRETS = "the server writes variables into its project's file"
_OUTPUT = "the protocol does not give the main process's output"
_NEVER = {
    Capability.KILL: "the protocol has no signals; stop ends it",
    Capability.PAUSE: "the protocol cannot freeze a microVM",
    Capability.UPDATE_MAX_DURATION: "the API has no time limits",
    Capability.RENAME: "a sandbox of the server keeps its name; create another",
    Capability.EXEC_STDIN: "the protocol sends a command no input",
    Capability.EXEC_USER: "the protocol runs a command as the image's user",
    Capability.FORWARD: "the protocol has no connections to ports",
    Capability.SHELL: "the protocol has no terminal; exec runs one command",
    Capability.SHELL_KEEP: "the protocol has no terminal",
    Capability.LOGS: _OUTPUT,
    Capability.LOG_STREAMS: _OUTPUT,
    Capability.ATTACH: _OUTPUT,
    Capability.WORKSPACE: "a folder of this machine is not on the server's",
    Capability.USER: "the server takes the image's user",
    Capability.READ_ONLY_ROOT: "the server has no such option",
    Capability.RUNTIME: "the server has one runtime",
    Capability.SYSTEM_CALLS: "a guest has a kernel of its own, which filters none of its calls",
    Capability.LIMIT_PIDS: "the guest's kernel is its own; its memory is what limits its processes",
    Capability.LIMIT_LOG_RATE: _OUTPUT,
    Capability.MAX_DURATION: "the server ends no sandbox by time",
    Capability.IDLE_TIMEOUT: "the server ends no sandbox by time",
    Capability.UPDATE_CPU: "the limits of a microVM are set when it starts",
    Capability.UPDATE_MEMORY: "the limits of a microVM are set when it starts",
    Capability.UPDATE_PIDS: "the guest's kernel is its own",
    Capability.EGRESS_ALLOWLIST: "the protocol has no rules for hosts",
    Capability.EGRESS_UPDATE: "the protocol has no rules for hosts",
    Capability.EGRESS_RECORDS: "the server records no connections",
    Capability.PORTS: "a port would be open on the server's machine; the console cannot say at which address",
    Capability.SECRET_ENV: _SECRETS,
    Capability.SECRET_FILE: _SECRETS,
    Capability.SECRET_PLACEHOLDER: "the server has no gateway that looks into TLS",
    Capability.COPY: "the protocol moves no files",
    Capability.PROCESSES: "the protocol lists no processes; exec ps does, if the image has it",
    Capability.DIFF: "the protocol does not tell what was changed since the image",
    Capability.EVENTS: "the server keeps no history",
    Capability.COMMIT: "the protocol makes no images",
    Capability.IMAGES: "the protocol lists no images",
    Capability.IMAGES_CHANGE: "the protocol lists no images",
    **ONE_CONTAINER,
    Capability.IMAGE_FILES: "the protocol lists no images",
    Capability.SNAPSHOT: "the protocol has no snapshots",
    Capability.FORK: "the protocol has no forks",
}


def capabilities(*, no_network: bool) -> Capabilities:
    """What can be done on a server whose sandboxes have, or may have, a network."""
    reasons = dict(_NEVER) if no_network else {**_NEVER, Capability.EGRESS_NONE: _NO_NETWORK}
    return Capabilities(frozenset(Capability) - reasons.keys(), reasons)
