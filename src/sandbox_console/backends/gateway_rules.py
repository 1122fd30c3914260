"""Reads and writes a gateway's rules on this machine's disk, for the bubblewrap and Docker backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sandbox_console.egress import rule_files
from sandbox_console.errors import BackendError, ConfigError, InvalidSpec, NotFound, Unsupported
from sandbox_console.model import hosts
from sandbox_console.model.egress import Effect, EgressRule, EgressState


def prepare(folder: Path, sandbox: str, patterns: Iterable[str], hosts_file: str) -> None:
    """Create a gateway's folder, or update its fixed addresses. Raises ConfigError, BackendError."""
    try:
        names = rule_files.parse_hosts(Path(hosts_file).read_text()) if hosts_file else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"egress_hosts: {hosts_file} cannot be read: {error}") from error
    try:
        rule_files.prepare(folder, sandbox, patterns, names)
    except (OSError, ValueError) as error:
        raise _broken(folder, error) from error


def put(folder: Path, rules: Sequence[EgressRule]) -> None:
    """Replace the rules. Raises InvalidSpec for an invalid pattern, NotFound, BackendError."""
    for rule in rules:
        try:
            hosts.parse(rule.pattern, allow_ip=True)
        except ValueError as error:
            raise InvalidSpec({"egress": str(error)}) from error
    _change(folder, rules=tuple(rules))


def rename(folder: Path, sandbox: str) -> None:
    """Write a sandbox's new name, which records carry from then on."""
    _change(folder, sandbox=sandbox)


def state(folder: Path, patterns: Iterable[str], gateway: str) -> EgressState:
    """The rules in force. If they cannot be read nothing passes, and ``gateway`` says so."""
    try:
        return EgressState(rule_files.rules_now(folder, patterns), gateway)
    except (OSError, ValueError) as error:
        return EgressState((), gateway or f"its rules cannot be read: {error}")


def found(folder: Path, patterns: Sequence[str]) -> Any:
    """What the rules in force amount to: the patterns that a spec could have, or else in words what they are."""
    now = state(folder, patterns, "")
    if now.gateway:
        return now.gateway
    allowed = [rule.pattern for rule in now.rules if rule.effect is Effect.ALLOW and rule.until is None]
    for_a_time = [rule.pattern for rule in now.rules if rule.effect is Effect.ALLOW and rule.until is not None]
    denied = [rule.pattern for rule in now.rules if rule.effect is Effect.DENY]
    if not for_a_time and not denied:
        return tuple(patterns) if set(allowed) == set(patterns) else tuple(allowed)
    parts = [*allowed, *(f"{one} for a time" for one in for_a_time), *(f"not {one}" for one in denied)]
    return ", ".join(parts)


def needless(name: str) -> Unsupported:
    """The error for a sandbox that was made without a gateway."""
    return Unsupported(
        f"{name} was made without egress: nothing leaves it, and no gateway could let something out",
        hint=f"sandbox-console update {name} --egress HOST recreates it with a gateway",
    )


def _change(folder: Path, **fields: object) -> None:
    try:
        rule_files.change(folder, **fields)
    except FileNotFoundError as error:
        raise NotFound(f"there are no egress rules in {folder}", hint="another state folder may have them") from error
    except (OSError, ValueError) as error:
        raise _broken(folder, error) from error


def _broken(folder: Path, error: Exception) -> BackendError:
    return BackendError(f"the egress rules in {folder} cannot be changed: {error}")
