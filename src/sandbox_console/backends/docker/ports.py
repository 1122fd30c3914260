"""A sandbox's published ports: its gateway's container publishes them and relays connections to the sandbox.

An engine publishes nothing on an internal network. The gateway has a listener for each port, in the order of the spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox_console.backends.docker.container_facts import port_fact
from sandbox_console.backends.docker.failures import plain
from sandbox_console.errors import BackendError
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Fact

FIRST = 20000
"""The first listener's port: above the proxy's 3128, and below those that Linux gives to clients (32768)."""

_ENDPOINT = re.compile(r".*external connectivity on endpoint \S+ \([0-9a-f]*\): ", re.DOTALL)
_ELSEWHERE = "publish at 127.0.0.1, at 0.0.0.0, or at another address of that host"


def words(requested: Sequence[PublishedPort], target: str) -> list[str]:
    """The gateway's arguments that make it relay its listeners to an address."""
    found = []
    for number, port in enumerate(requested, FIRST):
        found += [
            "--publish",
            f"{number}={target}:{port.port}",
            *(("--loopback", str(number)) if port.loopback else ()),
        ]
    return found


def exposed(requested: Sequence[PublishedPort]) -> dict[str, Any]:
    """The gateway's ``ExposedPorts``."""
    return {_listener(number): {} for number, _ in enumerate(requested, FIRST)}


def bindings(requested: Sequence[PublishedPort]) -> dict[str, Any]:
    """The gateway's ``PortBindings``; an empty port lets the engine choose a free one."""
    return {
        _listener(number): [{"HostIp": port.address, "HostPort": str(port.host_port or "")}]
        for number, port in enumerate(requested, FIRST)
    }


def facts(requested: Sequence[PublishedPort], gateway: Mapping[str, Any] | None, reason: str) -> Iterator[Fact]:
    """Where the engine publishes each port; ``reason`` is shown if ``gateway``, as inspected, does not publish it."""
    found: dict[int, list[Mapping[str, str]]] = {}
    for published, places in zip(requested, _bound(requested, gateway), strict=True):
        found.setdefault(published.port, []).extend(places)
    for port, places in found.items():
        yield port_fact(f"{port}/tcp", places, "" if places else reason)


def unbound(requested: Sequence[PublishedPort], gateway: Mapping[str, Any]) -> str:
    """The first requested address that the engine has not bound; empty if it has bound all."""
    return next(
        (port.host_address for port, places in zip(requested, _bound(requested, gateway), strict=True) if not places),
        "",
    )


def wanted(requested: Sequence[PublishedPort], message: str) -> PublishedPort | None:
    """The address that an engine reports as in use; None if its message means something else."""
    if "already in use" not in message and "already allocated" not in message:
        return None
    named = [port for port in requested if port.host_port and re.search(rf":{port.host_port}(?!\d)", message)]
    return next((port for port in named if port.address in message), next(iter(named), None))


def failure(requested: Sequence[PublishedPort], name: str, message: str) -> BackendError | None:
    """The error for ports that cannot be published, in the engine's words; None if it refuses something else."""
    text = plain(message)
    reason = _ENDPOINT.sub("", text)
    if not requested or (reason == text and "host port" not in text and "userland proxy" not in text):
        return None
    hint = (
        _ELSEWHERE
        if "assign requested address" in reason
        else "sandbox-console show has the settings that it was created with"
    )
    return BackendError(f"the ports of {name} cannot be published: {reason}", hint=hint)


def _listener(number: int) -> str:
    return f"{number}/tcp"


def _bound(
    requested: Sequence[PublishedPort], gateway: Mapping[str, Any] | None
) -> Iterator[Sequence[Mapping[str, str]]]:
    bound = ((gateway or {}).get("NetworkSettings") or {}).get("Ports") or {}
    for number, _ in enumerate(requested, FIRST):
        yield bound.get(_listener(number)) or ()
