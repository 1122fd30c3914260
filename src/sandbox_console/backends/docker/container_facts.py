"""Facts about one container: its state, its origin, its networks and its variables."""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sandbox_console.backends.common.messages import reach
from sandbox_console.model.sandbox import Fact
from sandbox_console.model.secret import shown_value

_LONGEST = 300


def state_facts(data: Mapping[str, Any]) -> Iterator[Fact]:
    """Its health, how often the engine restarted it, and its restart policy."""
    state, policy = data["State"], data["HostConfig"].get("RestartPolicy") or {}
    if health := state.get("Health"):
        log = health.get("Log") or [{}]
        streak = health.get("FailingStreak") or 0
        note = f"failed {streak} in a row: {str(log[-1].get('Output', '')).strip()[:_LONGEST]}" if streak else ""
        yield Fact("health", str(health.get("Status", "")), note=note)
    rule = str(policy.get("Name") or "no")
    if rule != "no" or data.get("RestartCount"):
        most = policy.get("MaximumRetryCount")
        yield Fact(
            "restarts", str(data.get("RestartCount", 0)), note=f"policy {rule}{f', {most} at most' if most else ''}"
        )


def image_facts(data: Mapping[str, Any], image: Mapping[str, Any]) -> Iterator[Fact]:
    """Its image's name and id, the digest that it was pulled by, and its age."""
    yield Fact("image", str(data["Config"].get("Image", "")), note=str(data.get("Image", "")))
    if digests := image.get("RepoDigests"):
        yield Fact("image.digest", str(digests[0]).partition("@")[2])
    if made := _day(image.get("Created")):
        yield Fact("image.made", made[0], note=made[1])


def network_facts(data: Mapping[str, Any], published: Container[str] = ()) -> Iterator[Fact]:
    """Each network with its address, and each port with its host addresses, except those in ``published``."""
    settings = data.get("NetworkSettings") or {}
    for name, one in sorted((settings.get("Networks") or {}).items()):
        if name != "none":
            address = one.get("IPAddress") or one.get("GlobalIPv6Address") or "no address now"
            yield Fact(f"network {name}", str(address), note=f"gateway {one['Gateway']}" if one.get("Gateway") else "")
    facts = (port_fact(port, bound or ()) for port, bound in sorted((settings.get("Ports") or {}).items()))
    yield from (fact for fact in facts if fact.field not in published)


def port_fact(port: str, bound: Sequence[Mapping[str, str]], note: str = "") -> Fact:
    """One port, ``80/tcp``, and the places of the host that the engine has bound for it."""
    places = ", ".join(map(_host_address, bound))
    return Fact(f"port {port}", places or "not published", note=reach(map(_address, bound)) or note)


def variable_facts(config: Mapping[str, Any]) -> Iterator[Fact]:
    """Each variable; values are masked if the name looks like a secret's, and so are passwords in addresses."""
    for entry in config.get("Env") or ():
        name, _, value = entry.partition("=")
        yield Fact(f"env {name}", shown_value(name, value))


def _address(bound: Mapping[str, str]) -> str:
    return bound.get("HostIp") or "0.0.0.0"  # noqa: S104 - what an empty one means to the engine


def _host_address(bound: Mapping[str, str]) -> str:
    host = _address(bound)
    return f"[{host}]:{bound.get('HostPort')}" if ":" in host else f"{host}:{bound.get('HostPort')}"


def _day(created: str | None) -> tuple[str, str] | None:
    """(the day, the age in words); None for the epoch, which reproducible builds write."""
    try:
        made = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", created or ""))
    except ValueError:
        return None
    days = int((time.time() - made.timestamp()) // 86400)
    if made.year < 1990:
        return None
    return made.date().isoformat(), "today" if days < 1 else f"{days} day{'s' if days > 1 else ''} old"
