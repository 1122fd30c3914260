"""What can be done with Sandboxes and Pods here, and why the rest cannot."""

from __future__ import annotations

from collections.abc import Collection

from sandbox_console.backends.kubernetes.access import Right
from sandbox_console.model.capability import Capabilities, Capability

_NOT_YET = "this version of the console only shows what a cluster has"
_NEVER = {
    Capability.PAUSE: "Kubernetes freezes no Pod; stop suspends a Sandbox, whose Pod is deleted, and start resumes it",
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
    Capability.DIFF: "Kubernetes does not tell what was changed since the image",
    Capability.COMMIT: "Kubernetes makes no images",
    Capability.IMAGES: "the images are those of the cluster's nodes and registries",
    Capability.IMAGE_FILES: "the images are those of the cluster's nodes and registries",
    Capability.SNAPSHOT: "agents.x-k8s.io has no snapshots",
    Capability.FORK: "agents.x-k8s.io has no forks",
}
_EXEC = Right("create", "pods", sub="exec")
_SUPPORTED: dict[Capability, tuple[Right, ...]] = {
    Capability.RAW: (Right("get", "pods"),),
    Capability.EVENTS: (Right("list", "events"),),
    Capability.LOGS: (Right("get", "pods", sub="log"),),
    Capability.EXEC: (_EXEC,),
    Capability.EXEC_STDIN: (_EXEC,),
    Capability.SHELL: (_EXEC,),
    Capability.COPY: (_EXEC,),
    Capability.FORWARD: (Right("create", "pods", sub="portforward"),),
}
"""Each with the rights that it needs."""

RIGHTS = tuple(dict.fromkeys(right for rights in _SUPPORTED.values() for right in rights))
"""What is asked about when the backend opens."""


_NO_END = "a command's stdin cannot be ended before Kubernetes 1.30 (v5.channel.k8s.io)"


def capabilities(forbidden: Collection[Right], *, ends_stdin: bool) -> Capabilities:
    """What can be done with a login that lacks the ``forbidden`` rights, on a server that can end stdin or not."""
    reasons = {one: _NEVER.get(one, _NOT_YET) for one in Capability if one not in _SUPPORTED}
    for capability, rights in _SUPPORTED.items():
        if lacking := [str(right) for right in rights if right in forbidden]:
            reasons[capability] = f"the cluster's RBAC does not let you {' or '.join(lacking)}"
    if not ends_stdin:
        reasons.setdefault(Capability.EXEC_STDIN, _NO_END)
    return Capabilities(frozenset(Capability) - reasons.keys(), reasons)
