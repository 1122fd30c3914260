"""Turns a spec's egress and secrets into the runtime's network policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sandbox_console.backends.microsandbox import ports as published
from sandbox_console.backends.microsandbox.ports import Ports
from sandbox_console.errors import SecretError
from sandbox_console.model import hosts
from sandbox_console.model.secret import ResolvedSecret


def policy(module: Any, patterns: Sequence[str], ports: Ports = ()) -> Any:
    """Deny everything, in and out, except what the patterns allow and clients of published ports.

    Without either there is no network at all. As soon as one host is allowed, lookups of any name are answered, as the
    runtime could not connect by name otherwise.
    """
    rules = [rule for pattern in patterns for rule in _rules(module, pattern)]
    if rules:
        rules = [*module.Rule.allow_dns(), *rules]
    rules += [_way_in(module, number) for number in sorted({port.port for port in ports})]
    deny = module.Action.DENY
    return module.NetworkPolicy(default_egress=deny, default_ingress=deny, rules=tuple(rules))


def _way_in(module: Any, port: int) -> Any:
    return module.Rule.allow(direction=module.Direction.INGRESS, protocol=module.Protocol.TCP, port=str(port))


def network(
    module: Any, patterns: Sequence[str], placeholders: bool, authorities: Sequence[str], ports: Ports = ()
) -> Any:
    """The network of a sandbox. TLS is intercepted only if a placeholder has to be substituted.

    ``authorities`` are files of certificates for checking upstream servers, besides the public ones. In strict mode the
    runtime refuses TLS that it cannot read (0.7.11), which is all TLS if none is intercepted. Without strict mode the
    policy is applied to the name with which TLS begins, or to the address if there is none.
    """
    tls = module.TlsConfig(upstream_ca_certs=tuple(authorities)) if placeholders else None
    rules, places = policy(module, patterns, ports), published.bindings(module, ports)
    return module.Network(policy=rules, ports=places, tls=tls, strict=placeholders)


def substituted(module: Any, secrets: Sequence[ResolvedSecret]) -> list[Any]:
    """The secrets that the sandbox sees as placeholders, for the hosts that may get them."""
    return [
        module.Secret.env(secret.name, value=secret.value, allow=[_bare(one) for one in secret.hosts])
        for secret in secrets
        if secret.inject == "placeholder"
    ]


def check(secrets: Sequence[ResolvedSecret]) -> None:
    """Raise SecretError for a placeholder that no host may receive, as it would never be substituted."""
    for secret in secrets:
        if secret.inject == "placeholder" and not secret.hosts:
            raise SecretError(
                f"secret {secret.name} is injected as a placeholder and names no host",
                hint=f'name those that may get it: hosts = ["api.example.com"] in [secrets.{secret.name}]',
            )


def _bare(pattern: str) -> str:
    parsed = hosts.parse(pattern, allow_ip=True)
    return f"*.{parsed.host}" if parsed.wildcard else parsed.host


def _rules(module: Any, pattern: str) -> Iterator[Any]:
    parsed = hosts.parse(pattern, allow_ip=True)
    kinds = module.Destination
    if parsed.network is not None:
        destination = kinds.cidr(str(parsed.network))
    elif parsed.wildcard:
        destination = kinds.domain_suffix(parsed.host)
    else:
        destination = kinds.domain(parsed.host)
    for port in sorted(parsed.ports):
        yield module.Rule.allow(destination=destination, protocol=module.Protocol.TCP, port=str(port))
