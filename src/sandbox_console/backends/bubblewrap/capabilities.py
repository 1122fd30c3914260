"""What this backend can do on this machine, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox_console.backends.bubblewrap import jail, ports
from sandbox_console.backends.bubblewrap.limits import Limiter
from sandbox_console.backends.common.messages import ONE_CONTAINER
from sandbox_console.errors import Unsupported
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.spec import SandboxSpec

_NEVER = {
    Capability.EXEC_USER: "a bubblewrap sandbox has a single user; it is chosen when it is created",
    Capability.RUNTIME: "bubblewrap has one runtime: the kernel",
    Capability.SECRET_PLACEHOLDER: "the egress gateway looks into no TLS; inject as env or file",
    Capability.UPDATE_MAX_DURATION: "its supervisor keeps the limit that it began with; the sandbox is recreated",
    Capability.DIFF: "its root is read-only folders and memory, not an image and a layer; list what was written",
    Capability.COMMIT: "its root is read-only folders and memory; copy files out, and use a folder as dir:PATH",
    Capability.IMAGES: "it keeps no images: they are 'host' and folders (dir:PATH)",
    Capability.IMAGES_CHANGE: "it keeps no images: they are 'host' and folders (dir:PATH)",
    **ONE_CONTAINER,
    Capability.IMAGE_FILES: "it keeps no images: unpack a root filesystem into a folder and use dir:PATH",
    Capability.SNAPSHOT: "bubblewrap has no snapshots",
    Capability.FORK: "bubblewrap has no snapshots to fork from",
}


def capabilities(limiter: Limiter) -> Capabilities:
    """All capabilities except those that are impossible here, and the limits that this machine does not let us set."""
    reasons = dict(_NEVER)
    for controller, limit, update in (
        ("memory", Capability.LIMIT_MEMORY, Capability.UPDATE_MEMORY),
        ("cpu", Capability.LIMIT_CPU, Capability.UPDATE_CPU),
        ("pids", Capability.LIMIT_PIDS, Capability.UPDATE_PIDS),
    ):
        if why := limiter.why_not(controller):
            reasons[limit] = why
        if controller not in limiter.parents:
            reasons[update] = (
                f"needs a writable {controller} cgroup: {limiter.reasons.get(controller, 'there is none')}"
            )
    return Capabilities(frozenset(Capability) - reasons.keys(), reasons)


def problems(spec: SandboxSpec) -> Mapping[str, str]:
    """Problems with a spec's values on this host, by field."""
    found: dict[str, str] = {}
    root = None
    try:
        root = jail.root_of(spec.image)
    except (ValueError, OSError) as error:
        found["image"] = str(error)
    try:
        jail.identity(spec.user, root)
    except (ValueError, OSError) as error:
        found["user"] = str(error)
    cpus = os.cpu_count() or 1
    if spec.cpus is not None and spec.cpus > cpus:
        found["cpus"] = f"{spec.cpus:g} is more than the {cpus} of this host"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    if spec.memory_mib is not None and spec.memory_mib > memory:
        found["memory_mib"] = f"{spec.memory_mib} MiB is more than the {memory} MiB of this host"
    if spec.workspace and (problem := _workspace(Path(spec.workspace))):
        found["workspace"] = problem
    if problem := ports.problem(spec):
        found["ports"] = problem
    return found


def _workspace(path: Path) -> str:
    try:
        if path.resolve() == Path("/"):
            return "it leads to '/', this whole host; name a folder"
        if path.is_dir():
            return ""
        return f"{path} is not a folder" if path.exists() else f"{path} is not there"
    except OSError as error:
        return f"{path}: {error.strerror}"


def refuse(spec: SandboxSpec, limiter: Limiter) -> None:
    """Raise Unsupported for anything in the spec that is not available."""
    if spec.runtime:
        raise Unsupported(f"{Capability.RUNTIME}: {_NEVER[Capability.RUNTIME]}", hint="leave runtime empty")
    limiter.refuse(spec)
