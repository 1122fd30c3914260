"""Plans the change from one spec to another: what is made live, what needs a new sandbox, what is impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, structs

from sandbox_console.backends.abilities import Bounded
from sandbox_console.backends.base import Backend
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.drift import LASTING, MADE, current
from sandbox_console.model.sandbox import Sandbox, spec_of
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy import required_capabilities

_LIVE = {
    "name": Capability.RENAME,
    "labels": Capability.UPDATE_LABELS,
    "cpus": Capability.UPDATE_CPU,
    "memory_mib": Capability.UPDATE_MEMORY,
    "pids": Capability.UPDATE_PIDS,
    "max_duration_s": Capability.UPDATE_MAX_DURATION,
    "egress": Capability.EGRESS_UPDATE,
}
_FOREIGN_LIVE = ("name", "cpus", "memory_mib", "pids", "max_duration_s")
_FOREIGN = "another tool made it: its name and its limits can be changed, the rest only by that tool"
_NO_GATEWAY = "its gateway is made with the sandbox, and there is none without egress"
_LIFTED = "a limit cannot be removed while it runs, and a sandbox of another tool is not recreated"


class How(StrEnum):
    """How a change is made."""

    LIVE = "live"
    RECREATE = "recreate"
    UNSUPPORTED = "unsupported"


class Change(Struct, frozen=True):
    """One field that differs, before and after as in the spec."""

    field: str
    before: Any
    after: Any
    how: How
    reason: str = ""


class Plan(Struct, frozen=True):
    """All changes between two specs. ``notes`` are sentences about what the new one will not enforce."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()

    @property
    def how(self) -> How | None:
        """The most drastic of the changes; None if nothing differs."""
        found = {change.how for change in self.changes}
        return next((how for how in (How.UNSUPPORTED, How.RECREATE, How.LIVE) if how in found), None)


def plan_for(sandbox: Sandbox, new: SandboxSpec, capabilities: Capabilities, injects: Mapping[str, str]) -> Plan:
    """The plan that leads from a sandbox, as it is now, to a spec.

    A sandbox that another tool made is never replaced.
    """
    spec = sandbox.spec
    if spec is not None:
        plan = make_plan(spec, new, capabilities, injects, current(sandbox, spec, new))
        return structs.replace(plan, changes=(*plan.changes, *_put_back(sandbox)))
    plan = make_plan(spec_of(sandbox), new, capabilities, injects)
    fixed = fixed_fields(sandbox, capabilities)
    return Plan(tuple(_in_place(change, fixed) for change in plan.changes))


def masked(plan: Plan, text: Callable[[str], str], ends: Callable[[str, Any, Any], tuple[Any, Any]]) -> Plan:
    """The plan as a face may see it: ``text`` masks its words, ``ends`` both ends of a change."""
    changes = []
    for change in plan.changes:
        before, after = (
            (change.before, change.after)
            if change.field in ("name", "secrets")
            else ends(change.field, change.before, change.after)
        )
        changes.append(structs.replace(change, before=before, after=after, reason=text(change.reason)))
    return structs.replace(plan, changes=tuple(changes), notes=tuple(map(text, plan.notes)))


async def within_bounds(plan: Plan, backend: Backend, sandbox: Sandbox, new: SandboxSpec) -> Plan:
    """The plan, with live changes refused that the backend cannot make at the moment."""
    if plan.how is not How.LIVE or not isinstance(backend, Bounded):
        return plan
    beyond = await backend.out_of_bounds(sandbox.ref, new)
    return structs.replace(plan, changes=tuple(_refused(change, beyond) for change in plan.changes))


def _refused(change: Change, beyond: Mapping[str, str]) -> Change:
    reason = beyond.get(change.field)
    return structs.replace(change, how=How.UNSUPPORTED, reason=reason) if reason else change


def fixed_fields(sandbox: Sandbox, capabilities: Capabilities) -> dict[str, str]:
    """Why each fixed field cannot be changed; empty for a sandbox of ours, which is recreated if necessary."""
    if sandbox.spec is not None:
        return {}
    return {name: reason for name in SandboxSpec.__struct_fields__ if (reason := _fixed(name, capabilities))}


def _fixed(field: str, capabilities: Capabilities) -> str:
    if field not in _FOREIGN_LIVE:
        return _FOREIGN
    return "" if capabilities.has(_LIVE[field]) else capabilities.reason(_LIVE[field])


def _in_place(change: Change, fixed: Mapping[str, str]) -> Change:
    if change.how is not How.RECREATE:
        return change
    return structs.replace(change, how=How.UNSUPPORTED, reason=fixed.get(change.field, _LIFTED))


def differing(sandbox: Sandbox, new: SandboxSpec, problems: Mapping[str, str]) -> dict[str, str]:
    """The problems of a spec that concern the fields that it changes."""
    old = spec_of(sandbox)
    return {field: text for field, text in problems.items() if getattr(old, field, None) != getattr(new, field, None)}


def _put_back(sandbox: Sandbox) -> Iterator[Change]:
    """The changes of what is no longer as the console makes every sandbox. They need no new one."""
    for name, made in MADE.items():
        if name not in LASTING and (wrong := sandbox.found.get(name)):
            yield Change(name, wrong, made, How.LIVE, "another tool changed it")


def make_plan(
    old: SandboxSpec, new: SandboxSpec, capabilities: Capabilities, injects: Mapping[str, str],
    now: Mapping[str, Any] | None = None,
) -> Plan:  # fmt: skip
    """Compare two specs for a backend with these capabilities. ``now`` has values that are not as in ``old``."""
    missing = {
        field: f"{need}: {capabilities.reason(need)}"
        for field, need in required_capabilities.of_spec(new, injects)
        if not capabilities.has(need)
    }
    changes: list[Change] = []
    for name in SandboxSpec.__struct_fields__:
        before, after = (now or {}).get(name, getattr(old, name)), getattr(new, name)
        if before != after:
            changes.append(_change(name, before, after, capabilities, missing.get(name)))
    return Plan(tuple(changes))


def _change(field: str, before: Any, after: Any, capabilities: Capabilities, missing: str | None) -> Change:
    if missing is not None:
        return Change(field, before, after, How.UNSUPPORTED, missing)
    live = _LIVE.get(field)
    if field == "egress" and not (before and after):
        return Change(field, before, after, How.RECREATE, _NO_GATEWAY)
    # A limit cannot be removed live, as engines read "unset" as "leave it as it is".
    if live is not None and capabilities.has(live) and after is not None:
        return Change(field, before, after, How.LIVE)
    if field == "name" and live is not None:
        return Change(field, before, after, How.UNSUPPORTED, capabilities.reason(live))
    return Change(field, before, after, How.RECREATE, "it is set when a sandbox is made")
