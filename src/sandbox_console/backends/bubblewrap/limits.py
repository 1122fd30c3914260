"""The limits of a spec that this machine enforces, and how."""

from __future__ import annotations

import platform
import re
import resource
from collections.abc import Mapping

from msgspec import Struct, field

from sandbox_console.backends.bubblewrap.options import Options
from sandbox_console.backends.bubblewrap.supervise import cgroup
from sandbox_console.errors import Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.spec import SandboxSpec

_MIB = 1 << 20
_NPROC_PER_NAMESPACE = (
    5,
    14,
)  # since then RLIMIT_NPROC counts the processes of the user namespace, not all those of a user
_AHEAD = 2
"""A helper and a command that wait for an order (``supervise.spare``): RLIMIT_NPROC counts them as the sandbox's."""
_OF = {"memory": Capability.LIMIT_MEMORY, "cpu": Capability.LIMIT_CPU, "pids": Capability.LIMIT_PIDS}


class Limiter(Struct, frozen=True):
    """Where this machine lets us set limits. It is checked once, when the backend opens."""

    parents: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    nproc_works: bool = True

    @classmethod
    def look(cls) -> Limiter:
        """Check this machine. Blocks for a few ms, as it makes and removes a probe group in each hierarchy."""
        found = cgroup.find()
        match = re.match(r"(\d+)\.(\d+)", platform.release())
        version = (int(match[1]), int(match[2])) if match else (0, 0)
        return cls(found.parents, found.reasons, version >= _NPROC_PER_NAMESPACE)

    def why_not(self, controller: str) -> str:
        """Why a limit cannot be enforced; empty if it can."""
        if controller in self.parents or (controller == "pids" and self.nproc_works):
            return ""
        return f"needs a writable {controller} cgroup: {self.reasons.get(controller, 'there is none')}"

    @property
    def can_freeze(self) -> bool:
        """Whether a cgroup can pause a sandbox."""
        return "freezer" in self.parents

    def refuse(self, spec: SandboxSpec) -> None:
        """Raise Unsupported for a limit that cannot be enforced, unless the spec accepts best effort."""
        if spec.limits == "best-effort":
            return
        for controller, requested in (("memory", spec.memory_mib), ("cpu", spec.cpus), ("pids", spec.pids)):
            if requested is not None and (why := self.why_not(controller)):
                raise Unsupported(
                    f"{_OF[controller]}: bubblewrap {why}", hint='leave it out, or set limits = "best-effort"'
                )

    def rlimits(self, spec: SandboxSpec, options: Options) -> dict[str, int]:
        """The limits of each process, by the names of the ``resource`` module.

        Without a memory cgroup RLIMIT_DATA holds each process to the sandbox's memory; RLIMIT_AS would break
        runtimes that only reserve address space.
        """
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        out = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": min(files, 65536) if files > 0 else 65536}
        if self.nproc_works:
            out["RLIMIT_NPROC"] = (spec.pids or options.pids) + _AHEAD
        if spec.memory_mib and "memory" not in self.parents:
            out["RLIMIT_DATA"] = spec.memory_mib * _MIB
        return out


def wanted(spec: SandboxSpec, options: Options) -> dict[str, float | int | None]:
    """The limits of the cgroups: bytes, processes, vCPUs."""
    memory = spec.memory_mib * _MIB if spec.memory_mib else None
    return {"memory": memory, "pids": spec.pids or options.pids, "cpus": spec.cpus}
