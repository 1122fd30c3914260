"""A microsandbox handle in the console's words.

Its config holds secret values in clear, and variables that may be secrets: only the fields named here are taken
from it, and of variables and secrets the names alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox_console.model.sandbox import Fact, Sandbox, SandboxRef, Status

_STATUS = {
    "created": Status.CREATED,
    "starting": Status.STARTING,
    "running": Status.RUNNING,
    "draining": Status.STOPPING,
    "paused": Status.PAUSED,
    "stopped": Status.EXITED,
    "crashed": Status.FAILED,
}

Config = Mapping[str, Any]


def sandbox(handle: Any, *, detail: str = "") -> Sandbox:
    """What a handle tells. A boot that failed leaves a stopped row: ``detail`` is then why."""
    config = json.loads(handle.config_json)
    status = _STATUS.get(str(handle.status), Status.UNKNOWN)
    labels = config.get("labels") or {}
    return Sandbox(
        ref=SandboxRef("microsandbox", "local", str(handle.id)),
        name=str(handle.name),
        status=Status.FAILED if detail and status is Status.EXITED else status,
        image=image(config.get("image")),
        created_at=handle.created_at / 1000 if handle.created_at else None,
        finished_at=handle.updated_at / 1000 if handle.updated_at and not status.live else None,
        labels={str(key): str(value) for key, value in labels.items()},
        managed=False,
        maker="microsandbox",
        effective=tuple(_facts(config)),
        detail=detail,
    )


def image(value: Any) -> str:
    """The image's name, or ``dir:PATH`` for a folder of this host."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    ((kind, inner),) = value.items()
    if isinstance(inner, Mapping):
        inner = next((inner[key] for key in ("reference", "path", "name") if isinstance(inner.get(key), str)), "")
    return f"dir:{inner}" if kind == "Bind" else str(inner)


def _facts(config: Config) -> Iterator[Fact]:
    resources, runtime = config.get("resources") or {}, config.get("runtime") or {}
    yield Fact("cpus", str(resources.get("cpus", "")), note=f"up to {resources.get('max_cpus')} while it runs")
    yield Fact("memory_mib", str(resources.get("memory_mib", "")), note=f"up to {resources.get('max_memory_mib')}")
    if runtime.get("user"):
        yield Fact("user", str(runtime["user"]))
    if runtime.get("workdir"):
        yield Fact("workdir", str(runtime["workdir"]))
    yield Fact("env", ", ".join(_env_names(config)) or "none", note="names only")
    yield _egress(config.get("network") or {})
    yield Fact("secrets", ", ".join(_secret_names(config)) or "none", note="the sandbox sees placeholders")
    lifecycle = config.get("lifecycle") or {}
    for field, key in (("max_duration_s", "max_duration_secs"), ("idle_timeout_s", "idle_timeout_secs")):
        if lifecycle.get(key) is not None:
            yield Fact(field, str(lifecycle[key]))
    yield Fact("isolation", "microVM", note="a kernel of its own")


def _env_names(config: Config) -> list[str]:
    return [str(item.get("key")) for item in config.get("env") or () if isinstance(item, Mapping)]


def _secret_names(config: Config) -> list[str]:
    secrets = ((config.get("network") or {}).get("secrets") or {}).get("secrets") or ()
    return [str(item.get("env_var")) for item in secrets if isinstance(item, Mapping)]


def _egress(network: Config) -> Fact:
    if not network.get("enabled"):
        return Fact("egress", "none", note="no network at all")
    policy = network.get("policy") or {}
    allowed = [_destination(rule) for rule in policy.get("rules") or () if _lets_out(rule)]
    default = str(policy.get("default_egress", ""))
    return Fact("egress", ", ".join(allowed) or default, note=f"else {default}, by the runtime's own policy")


def _lets_out(rule: Any) -> bool:
    return isinstance(rule, Mapping) and rule.get("direction") == "egress" and rule.get("action") == "allow"


def _destination(rule: Config) -> str:
    destination = rule.get("destination")
    if isinstance(destination, Mapping):
        return " ".join(str(value) for value in destination.values())
    return str(destination)
