"""Reports the runtime's network policy as egress rules, and from its log, secrets sent to the wrong host.

The runtime logs neither allowed nor refused connections (0.7.11 at its own log level; with another level it refuses to
boot). So the records contain only violations of secrets.
"""

from __future__ import annotations

import re
from typing import Any

from sandbox_console.model import hosts
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.sandbox import Sandbox

# In the runtime's order. The guest chooses host and path, so what follows them is not matched at its first occurrence.
_VIOLATION = re.compile(
    r"secret violation: .*? secret_env_var=(?P<secret>\S*) placeholder=\S* protocol=(?P<protocol>\S*) sni=(?P<sni>\S*)"
    r" host=(?P<host>\S*) method=(?P<method>\S*) path=.* guest_dst=(?P<address>\S*) http2_stream_id=\S*\s*\Z",
    re.DOTALL,
)


def state(sandbox: Sandbox) -> EgressState:
    """The rules from the sandbox's creation, which are in force as long as it exists."""
    if sandbox.spec is None:
        return EgressState((), "another tool made it: its policy is in its description, not in rules")
    return EgressState(tuple(EgressRule(pattern) for pattern in sandbox.spec.egress))


def verdict(sandbox: Sandbox, host: str, port: int) -> EgressVerdict:
    """The verdict of the same patterns, as the runtime itself offers no such query."""
    for rule in state(sandbox).rules:
        if hosts.parse(rule.pattern, allow_ip=True).matches(host, port):
            return EgressVerdict(True, "", rule.pattern)
    return EgressVerdict(False, "not_allowed")


def record(sandbox: str, entry: Any) -> EgressRecord | None:
    """A line of the log as a refusal, with the placeholder's name as its rule; None if it is something else."""
    match = _VIOLATION.search(entry.data.decode("utf-8", "replace"))
    if match is None:
        return None
    address, _, port = match["address"].rpartition(":")
    name, _, named_port = (match["host"] or match["sni"]).partition(":")
    plain = 443 if match["sni"] and match["address"] else 80
    return EgressRecord(
        at=entry.timestamp_ms / 1000,
        sandbox=sandbox,
        host=name,
        port=next((int(one) for one in (port, named_port) if one.isdecimal()), plain),
        allowed=False,
        reason="secret_violation",
        rule=match["secret"],
        address=address,
        method=match["method"],
    )
