"""Which capabilities an action and a spec need."""

from __future__ import annotations

from typing import assert_never

from sandbox_console.model.action import (
    Action,
    Create,
    Exec,
    Kill,
    OpenShell,
    Pause,
    Remove,
    Restart,
    Resume,
    Start,
    Stop,
    Update,
)
from sandbox_console.model.capability import Capability
from sandbox_console.model.spec import SandboxSpec

LIMITS = {
    "cpus": Capability.LIMIT_CPU,
    "memory_mib": Capability.LIMIT_MEMORY,
    "pids": Capability.LIMIT_PIDS,
    "max_duration_s": Capability.MAX_DURATION,
    "idle_timeout_s": Capability.IDLE_TIMEOUT,
}
"""Fields that ``limits = "best-effort"`` accepts without their capability."""

_FIELDS = {
    "workspace": Capability.WORKSPACE,
    "user": Capability.USER,
    "runtime": Capability.RUNTIME,
    "read_only_root": Capability.READ_ONLY_ROOT,
}
_INJECT = {
    "env": Capability.SECRET_ENV,
    "file": Capability.SECRET_FILE,
    "placeholder": Capability.SECRET_PLACEHOLDER,
}


def of_verb(action: Action) -> Capability | None:  # noqa: C901 - a case a verb
    """The capability that the verb itself needs."""
    match action:
        case Create():
            return Capability.CREATE
        case Start():
            return Capability.START
        case Stop():
            return Capability.STOP
        case Kill():
            return Capability.KILL
        case Restart():
            return Capability.RESTART
        case Pause() | Resume():
            return Capability.PAUSE
        case Remove():
            return Capability.REMOVE
        case Exec():
            return Capability.EXEC_USER if action.user else Capability.EXEC
        case OpenShell():
            return Capability.EXEC_USER if action.user else Capability.SHELL
        case Update():
            return None
        case _:
            assert_never(action)


def of_spec(spec: SandboxSpec, injects: dict[str, str]) -> list[tuple[str, Capability]]:
    """What each field needs, as (field, capability); ``injects`` says how each secret is handed over."""
    found = [(name, need) for name, need in _FIELDS.items() if getattr(spec, name)]
    if spec.limits == "strict":
        found += [(name, need) for name, need in LIMITS.items() if getattr(spec, name) is not None]
    found.append(("egress", Capability.EGRESS_ALLOWLIST if spec.egress else Capability.EGRESS_NONE))
    found += [("secrets", _INJECT[injects.get(name, "env")]) for name in spec.secrets]
    return found
