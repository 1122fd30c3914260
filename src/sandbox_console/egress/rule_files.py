"""The rules of one sandbox on disk. The console writes them, and the sandbox's gateway reads them.

The file ``policy.json`` is always replaced as a whole, so a reader sees the old or the new one, never a part.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox_console.model.egress import Effect, EgressRule

FILE = "policy.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of a gateway. ``hosts`` are fixed addresses of names, as in /etc/hosts, which win over DNS."""

    sandbox: str
    rules: tuple[EgressRule, ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def load(folder: Path) -> Policy:
    """Read a folder's policy. Raises OSError if it does not exist, ValueError if it cannot be parsed."""
    try:
        data = json.loads((folder / FILE).read_bytes())
        if data["version"] != _VERSION:
            raise ValueError(f"it is of version {data['version']!r}, not {_VERSION}")
        hosts = {str(name): tuple(map(str, addresses)) for name, addresses in data["hosts"].items()}
        return Policy(str(data["sandbox"]), tuple(map(_rule, data["rules"])), hosts)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{folder / FILE}: {type(error).__name__}: {error}") from error


def save(folder: Path, policy: Policy) -> None:
    """Replace a folder's policy.

    The file is readable by all, as the gateway may be another user. The closed folder above it keeps others out.
    """
    data = {
        "version": _VERSION,
        "sandbox": policy.sandbox,
        "rules": [_plain(rule) for rule in policy.rules],
        "hosts": {name: list(addresses) for name, addresses in policy.hosts.items()},
    }
    fresh = folder / f"{FILE}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "w") as file:
        os.fchmod(file.fileno(), 0o644)
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())  # an empty policy after a power cut would deny all without a reason
    fresh.replace(folder / FILE)


def prepare(folder: Path, sandbox: str, patterns: Iterable[str], hosts: Mapping[str, tuple[str, ...]]) -> None:
    """Make a gateway's folder: ``policy`` for the console to write, ``records`` for the gateway.

    Existing rules stay. The gateway may be any user; the closed folder above keeps others out.
    """
    for name, mode in (("", 0o755), ("policy", 0o755), ("records", 0o777)):
        path = folder / name
        path.mkdir(exist_ok=True, parents=True)
        path.chmod(mode)
    try:
        change(folder, hosts=hosts)
    except FileNotFoundError:
        save(folder / "policy", Policy(sandbox, tuple(map(EgressRule, patterns)), hosts))


def change(folder: Path, **fields: Any) -> None:
    """Change fields of the policy in a gateway's folder. Raises OSError, ValueError."""
    now = load(folder / "policy")
    after = replace(now, **fields)
    if after != now:
        save(folder / "policy", after)


def rules_now(folder: Path, patterns: Iterable[str]) -> tuple[EgressRule, ...]:
    """The rules in a gateway's folder that have not expired; those of the spec before the gateway's first start."""
    try:
        return in_force(load(folder / "policy").rules, time.time())
    except FileNotFoundError:
        return tuple(map(EgressRule, patterns))


def variables(proxy: str) -> dict[str, str]:
    """The environment by which programs find a proxy.

    The names are in both cases, as curl reads http_proxy and others read HTTP_PROXY.
    """
    local = "localhost,127.0.0.1,::1"
    found = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": local}
    return found | {name.lower(): value for name, value in found.items()} | {"NODE_USE_ENV_PROXY": "1"}


def in_force(rules: Iterable[EgressRule], now: float) -> tuple[EgressRule, ...]:
    """The rules that have not expired at ``now`` (seconds since the epoch)."""
    return tuple(rule for rule in rules if rule.until is None or rule.until > now)


def next_expiry(rules: Iterable[EgressRule], now: float) -> float | None:
    """When the next of the rules expires; None if none will."""
    return min((rule.until for rule in rules if rule.until is not None and rule.until > now), default=None)


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """Names and their addresses, from the text of a file in the format of hosts(5)."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            found[name.lower()] = (*found.get(name.lower(), ()), address)
    return found


def _plain(rule: EgressRule) -> dict[str, Any]:
    return {"pattern": rule.pattern, "effect": str(rule.effect), "until": rule.until, "source": rule.source}


def _rule(data: Mapping[str, Any]) -> EgressRule:
    until = data["until"]
    return EgressRule(
        str(data["pattern"]), Effect(data["effect"]), None if until is None else float(until), str(data["source"])
    )
