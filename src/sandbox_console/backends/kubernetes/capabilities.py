"""What can be done with Sandboxes and Pods here, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Collection

from sandbox_console.backends.kubernetes.access import Right
from sandbox_console.backends.kubernetes.claims import EXTENSIONS
from sandbox_console.backends.kubernetes.objects import GROUP
from sandbox_console.model.capability import Capabilities, Capability

_CREATE = (Right("create", "sandboxes", GROUP), Right("create", "networkpolicies", "networking.k8s.io"))
_PATCH, _DELETE = Right("patch", "sandboxes", GROUP), Right("delete", "sandboxes", GROUP)
_SECRETS = "values are not sent to a cluster; --env NAME=secretKeyRef:SECRET/KEY names one of its Secrets"
_NEVER = {
    Capability.PAUSE: "Kubernetes freezes no Pod; stop suspends a Sandbox, whose Pod is deleted, and start resumes it",
    Capability.UPDATE_MAX_DURATION: "the time is set when a pod is made; the sandbox is recreated",
    Capability.RENAME: "an object of Kubernetes keeps its name; create another",
    Capability.KILL: "Kubernetes passes on no signal; stop ends it",
    Capability.EXEC_USER: "Kubernetes runs a command as the container's user",
    Capability.SHELL_KEEP: "a shell ends with its connection to the API server",
    Capability.LOG_STREAMS: "the API server sends stdout and stderr as one",
    Capability.SYSTEM_CALLS: "the filter of system calls is the cluster's, by its Pod security",
    Capability.LIMIT_PIDS: "the limit of processes is the node's (kubelet podPidsLimit)",
    Capability.LIMIT_LOG_RATE: "the node writes the log and rotates it by size",
    Capability.IDLE_TIMEOUT: "the cluster does not know what is idle",
    Capability.UPDATE_PIDS: "the limit of processes is the node's (kubelet podPidsLimit)",
    Capability.WORKSPACE: "a folder of this machine is not on the cluster's node; copy files in",
    Capability.EGRESS_RECORDS: "Kubernetes records no connections",
    Capability.SECRET_PLACEHOLDER: "no gateway of the cluster looks into TLS",
    Capability.SECRET_ENV: _SECRETS,
    Capability.SECRET_FILE: _SECRETS,
    Capability.EGRESS_ALLOWLIST: "a NetworkPolicy knows addresses, not the names of hosts",
    Capability.EGRESS_UPDATE: "a NetworkPolicy knows addresses, not the names of hosts",
    Capability.PORTS: "a port of this machine is not one of the cluster's; forward reaches it, or a Service",
    Capability.PROCESSES: "Kubernetes does not list processes; exec ps does, if the image has it",
    Capability.ATTACH: "its main process is started without an input; logs -f shows its output",
    Capability.UPDATE_CPU: "the limits of a Pod are set when it is made; update recreates it",
    Capability.UPDATE_MEMORY: "the limits of a Pod are set when it is made; update recreates it",
    Capability.DIFF: "Kubernetes does not tell what was changed since the image",
    Capability.COMMIT: "Kubernetes makes no images",
    Capability.IMAGES_CHANGE: "Templates and WarmPools are the cluster's; kubectl changes them, and nodes pull images",
    Capability.IMAGE_FILES: "the images are those of the cluster's nodes and registries",
    Capability.SNAPSHOT: "agents.x-k8s.io has no snapshots",
    Capability.FORK: "agents.x-k8s.io has no forks",
}
_EXEC = Right("create", "pods", sub="exec")
_SUPPORTED: dict[Capability, tuple[Right, ...]] = {
    Capability.IMAGES: (Right("list", "sandboxtemplates", EXTENSIONS), Right("list", "sandboxwarmpools", EXTENSIONS)),
    Capability.RAW: (Right("get", "pods"),),
    Capability.EVENTS: (Right("list", "events"),),
    Capability.LOGS: (Right("get", "pods", sub="log"),),
    Capability.LOG_PREVIOUS: (Right("get", "pods", sub="log"),),
    Capability.CONTAINERS: (),
    Capability.STATS: (Right("get", "pods", "metrics.k8s.io"),),
    Capability.EXEC: (_EXEC,),
    Capability.EXEC_STDIN: (_EXEC,),
    Capability.SHELL: (_EXEC,),
    Capability.COPY: (_EXEC,),
    Capability.START: (_PATCH,),
    Capability.STOP: (_PATCH, Right("delete", "pods")),
    Capability.RESTART: (_PATCH, Right("delete", "pods")),
    Capability.REMOVE: (_DELETE, Right("delete", "pods")),
    Capability.UPDATE_LABELS: (_PATCH,),
    Capability.USER: (),
    Capability.READ_ONLY_ROOT: (),
    Capability.RUNTIME: (),
    Capability.LIMIT_CPU: (),
    Capability.LIMIT_MEMORY: (),
    Capability.MAX_DURATION: (),
    Capability.EGRESS_NONE: (),
    Capability.FORWARD: (Right("create", "pods", sub="portforward"),),
}
"""Each with the rights that it needs."""

_MADE = {
    "boxes": (*_CREATE, _PATCH),
    "claims": (Right("create", "sandboxclaims", EXTENSIONS), Right("get", "sandboxtemplates", EXTENSIONS)),
    "pods": (Right("create", "pods"), Right("create", "networkpolicies", "networking.k8s.io")),
}


def _creating(forbidden: Collection[Right], agent_sandbox: bool, pods: bool) -> tuple[Right, ...]:
    """The rights of one way to create that is allowed; of Sandboxes if none is."""
    ways = [*(("boxes", "claims") if agent_sandbox else ()), *(("pods",) if pods else ())]
    return next((_MADE[way] for way in ways if not set(_MADE[way]) & set(forbidden)), _MADE["boxes"])


RIGHTS = tuple(dict.fromkeys(right for rights in (*_SUPPORTED.values(), *_MADE.values()) for right in rights))
"""What is asked about when the backend opens."""


_NO_END = "a command's stdin cannot be ended before Kubernetes 1.30 (v5.channel.k8s.io)"


_NO_BOXES = "the cluster has no agent-sandbox (agents.x-k8s.io/v1beta1), and a Pod is not started again"
_BOXES_ONLY = (Capability.START, Capability.STOP, Capability.RESTART, Capability.UPDATE_LABELS)
_NOT_ENFORCED = (
    "no API tells whether the cluster's network enforces NetworkPolicy; if it does: "
    "[backends.kubernetes] network_policy = true"
)


def capabilities(
    forbidden: Collection[Right],
    *,
    ends_stdin: bool,
    agent_sandbox: bool,
    network_policy: bool,
    pods: bool = False,
    metrics: bool = False,
) -> Capabilities:
    """What can be done with a login that lacks the ``forbidden`` rights, on a server with these abilities."""
    reasons = dict(_NEVER)
    if not agent_sandbox:
        reasons |= dict.fromkeys(_BOXES_ONLY if pods else (*_BOXES_ONLY, Capability.CREATE), _NO_BOXES)
    if not metrics:
        reasons[Capability.STATS] = "the cluster has no metrics-server (metrics.k8s.io)"
    if not network_policy:
        reasons[Capability.EGRESS_NONE] = _NOT_ENFORCED
    for capability, rights in (_SUPPORTED | {Capability.CREATE: _creating(forbidden, agent_sandbox, pods)}).items():
        if lacking := [str(right) for right in rights if right in forbidden]:
            reasons.setdefault(capability, f"the cluster's RBAC does not let you {' or '.join(lacking)}")
    if not ends_stdin:
        reasons.setdefault(Capability.EXEC_STDIN, _NO_END)
    return Capabilities(frozenset(Capability) - reasons.keys(), reasons)
