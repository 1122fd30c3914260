"""What can be done with an E2B account, and why the rest cannot."""

from __future__ import annotations

from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.model.capability import Capabilities, Capability

_TEMPLATE = "it is set in the template"
_RULES = "the console cannot prove them without an account; a sandbox is created without internet access"
_SECRET = "E2B would keep the value with the sandbox"  # noqa: S105 - a sentence
_NO_IMAGES = "the console does not list the templates of an account"
_NEVER = {
    Capability.KILL: "the API has no signals for a sandbox; stop removes it from the account",
    Capability.UPDATE_MAX_DURATION: "the console does not change E2B's time limit yet",
    Capability.RENAME: "a sandbox has no name on the server; create another",
    Capability.FORWARD: "a port has a public address of E2B",
    Capability.SHELL_KEEP: "the console does not keep the sessions of envd yet",
    Capability.LOG_STREAMS: "the API gives the log as one",
    Capability.ATTACH: "the API does not give the start command's streams",
    Capability.WORKSPACE: "a folder of this machine is not on the server's; copy moves files",
    Capability.USER: _TEMPLATE,
    Capability.READ_ONLY_ROOT: _TEMPLATE,
    Capability.RUNTIME: "a sandbox is a microVM; there is no other runtime",
    Capability.SYSTEM_CALLS: "a sandbox has a kernel of its own",
    Capability.LIMIT_CPU: _TEMPLATE,
    Capability.LIMIT_MEMORY: _TEMPLATE,
    Capability.LIMIT_PIDS: _TEMPLATE,
    Capability.LIMIT_LOG_RATE: "the API has no such limit",
    Capability.MAX_DURATION: "every sandbox gets the lifetime_s of its table, and E2B removes it then",
    Capability.IDLE_TIMEOUT: "E2B does not know what is idle",
    Capability.UPDATE_CPU: _TEMPLATE,
    Capability.UPDATE_MEMORY: _TEMPLATE,
    Capability.UPDATE_PIDS: _TEMPLATE,
    Capability.EGRESS_ALLOWLIST: _RULES,
    Capability.EGRESS_UPDATE: _RULES,
    Capability.EGRESS_RECORDS: "the API reports no connections",
    Capability.PORTS: "a port has a public address of E2B",
    Capability.SECRET_ENV: _SECRET,
    Capability.SECRET_FILE: _SECRET,
    Capability.SECRET_PLACEHOLDER: "no gateway of E2B looks into TLS",
    Capability.PROCESSES: "envd lists only its own commands; exec ps lists all, if the template has it",
    Capability.DIFF: "the API does not tell what was changed since the template",
    Capability.EVENTS: "the API gives no events of a sandbox",
    Capability.COMMIT: "a template is built from a Dockerfile",
    Capability.IMAGES: _NO_IMAGES,
    Capability.IMAGES_CHANGE: _NO_IMAGES,
    Capability.IMAGE_FILES: _NO_IMAGES,
    Capability.SNAPSHOT: "the console does not make E2B's snapshots yet",
    Capability.FORK: "the console does not make E2B's forks yet",
    **ONE_CONTAINER,
}


def capabilities() -> Capabilities:
    """What can be done."""
    return Capabilities(frozenset(Capability) - _NEVER.keys(), _NEVER)
