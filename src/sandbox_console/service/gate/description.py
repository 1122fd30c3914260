"""Describes an action in its audit row: enough to know what was requested, but never a secret's value."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from sandbox_console.model.action import (
    Action,
    ChangeEgress,
    Create,
    Exec,
    Forward,
    OpenShell,
    Update,
)
from sandbox_console.model.drift import drifted
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.host_action import HostAction
from sandbox_console.model.sandbox import Sandbox, spec_of
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.trace import caller_trace
from sandbox_console.version import __version__


def target_of(action: Action) -> str:
    """The sandbox's ref as text; for a create, which has none yet, backend, host and name."""
    if isinstance(action, Create):
        name = action.spec.name.encode("utf-8", "backslashreplace").decode()  # SQLite does not accept lone surrogates
        return f"{action.backend}/{action.host}/name:{name}"
    if isinstance(action, HostAction):
        return f"{action.backend}/{action.host}"
    return str(action.ref)


def body_of(action: Action, target: Sandbox | None) -> dict[str, Any]:
    """The row's body: arguments, spec or diff, and the origin of the request. Values of env are left out."""
    body: dict[str, Any] = {"origin": origin()}
    if target is not None:
        body["name"] = target.name
    match action:
        case Create(spec=spec):
            body["spec"] = _spec(spec)
        case Update(spec=spec):
            body["diff"] = _diff(spec_of(target) if target else None, spec)
            if target is not None and (differing := drifted(target)):
                body["found"] = {name: target.found[name] for name in differing}
        case Exec(argv=argv, env=env, workdir=workdir, user=user, timeout_s=timeout_s):
            body |= {"argv": list(argv), "env": sorted(env), "workdir": workdir, "user": user, "timeout_s": timeout_s}
            body |= {"record": True} if action.record else {}
        case ChangeEgress(add=add, remove=remove):
            body |= {"add": [rule_data(rule) for rule in add], "remove": list(remove)}
        case OpenShell():
            body |= _shell(action)
        case Forward(listens=False):
            body |= {"port": action.port, "listens": False}
        case _:
            names = [name for name in action.__struct_fields__ if name not in ("ref", "backend", "host")]
            body |= {name: getattr(action, name) for name in names}
    return body


def _shell(action: OpenShell) -> dict[str, Any]:
    if action.attach:
        return {"attach": action.attach, "shell_name": action.name, "read_only": action.read_only}
    kept = {"keep": True, "shell_name": action.name} if action.keep else {}
    where = {"workdir": action.workdir, "env": sorted(action.env), "command": action.command}
    given = {name: value for name, value in where.items() if value}
    return {"shell": action.shell, "user": action.user} | ({"record": True} if action.record else {}) | given | kept


def rule_data(rule: EgressRule) -> dict[str, Any]:
    """An egress rule as plain data."""
    return {"pattern": rule.pattern, "effect": str(rule.effect), "until": rule.until, "source": rule.source}


def _spec(spec: SandboxSpec) -> dict[str, Any]:
    data = spec.to_dict()
    if "env" in data:
        data["env"] = sorted(data["env"])
    return data


def _diff(old: SandboxSpec | None, new: SandboxSpec) -> dict[str, Any]:
    before, after = _spec(old) if old else {}, _spec(new)
    changed: dict[str, Any] = {
        key: [before.get(key), after.get(key)] for key in before.keys() | after if before.get(key) != after.get(key)
    }
    if old is not None and old.env != new.env:
        names = {name for name in old.env.keys() | new.env if old.env.get(name) != new.env.get(name)}
        changed["env"] = sorted(names)
    return changed


def origin() -> dict[str, Any]:
    """Who and where the process is that acts."""
    return {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "tty": _terminal(),
        "host": platform.node(),
        "boot_id": _boot_id(),
        "monotonic_ns": time.monotonic_ns(),
        "version": __version__,
        **({"traceparent": trace} if (trace := caller_trace()) else {}),
    }


def _terminal() -> str:
    try:
        return os.ttyname(0)
    except OSError:
        return ""


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
