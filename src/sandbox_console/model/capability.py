"""What a backend can do on this machine, and why it cannot do the rest."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field


class Capability(StrEnum):
    """One thing that a backend may be able to do. A refusal of what needs a missing capability names it."""

    CREATE = "create"
    START = "start"
    STOP = "stop"
    KILL = "kill"
    RESTART = "restart"
    PAUSE = "pause"
    RENAME = "rename"
    REMOVE = "remove"
    EXEC = "exec"
    EXEC_STDIN = "exec.stdin"
    EXEC_USER = "exec.user"
    FORWARD = "forward"  # a port inside is reached from this machine
    SHELL = "shell"
    SHELL_KEEP = "shell.keep"  # held by a process of its own, which outlives the console
    CONTAINERS = "containers"  # logs, commands and files of one of several
    LOGS = "logs"
    LOG_PREVIOUS = "logs.previous"  # of the run before the last restart
    LOG_STREAMS = "logs.streams"  # stdout and stderr are stored separately
    STATS = "stats"
    WORKSPACE = "workspace"
    USER = "user"
    READ_ONLY_ROOT = "read_only_root"
    RUNTIME = "runtime"
    SYSTEM_CALLS = "system_calls"  # their filter can be turned off, or can allow debuggers or user namespaces
    LIMIT_CPU = "limit.cpu"
    LIMIT_MEMORY = "limit.memory"
    LIMIT_PIDS = "limit.pids"
    LIMIT_LOG_RATE = "limit.log_rate"  # output beyond the rate is left out of the log; a gap says how much
    MAX_DURATION = "limit.max_duration"
    IDLE_TIMEOUT = "limit.idle_timeout"
    UPDATE_CPU = "update.cpu"
    UPDATE_MEMORY = "update.memory"
    UPDATE_PIDS = "update.pids"
    UPDATE_LABELS = "update.labels"
    UPDATE_MAX_DURATION = "update.max_duration"  # the life of a sandbox that runs is made longer or shorter
    EGRESS_NONE = "egress.none"  # an empty allowlist means no network at all
    EGRESS_ALLOWLIST = "egress.allowlist"
    EGRESS_UPDATE = "egress.update"  # the allowlist of an existing sandbox can be changed
    EGRESS_RECORDS = "egress.records"  # each refused and each allowed connection
    PORTS = "ports"  # published on the backend's host
    SECRET_ENV = "secret.env"
    SECRET_FILE = "secret.file"
    SECRET_PLACEHOLDER = "secret.placeholder"
    COPY = "copy"
    PROCESSES = "processes"
    DIFF = "diff"
    RAW = "raw"
    EVENTS = "events"
    ATTACH = "attach"
    COMMIT = "commit"
    IMAGES = "images"
    IMAGES_CHANGE = "images.change"  # pulled, removed and pruned
    IMAGE_FILES = "images.files"  # load from and save to an archive
    SNAPSHOT = "snapshot"
    FORK = "fork"


_NAMES = frozenset(map(str, Capability))


class Capabilities(Struct, frozen=True):
    """The capabilities of one backend on one host, with a reason for each missing one."""

    supported: frozenset[Capability] = frozenset()
    reasons: Mapping[Capability, str] = field(default_factory=dict)

    def has(self, capability: Capability) -> bool:
        """Whether the backend can do it here."""
        return capability in self.supported

    def reason(self, capability: Capability) -> str:
        """Why it cannot, in a few words. What is lacking as a whole is the reason for its parts."""
        whole = Capability(name) if (name := capability.partition(".")[0]) in _NAMES else capability
        return self.reasons.get(capability) or self.reasons.get(whole) or "this backend does not provide it"
