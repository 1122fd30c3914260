"""The labels and names by which the console recognises its own containers."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_console.backends.common.installation import differ

MANAGED = "sandbox-console.managed"
"""``1`` on every container of the console's."""

INSTALLATION = "sandbox-console.installation"
"""Whose it is: the id of the state directory that it was made from. Other consoles share the engine."""

SPEC = "sandbox-console.spec"
"""The spec as asked for, as JSON; of secrets it has the names only."""

SECRETS = "sandbox-console.secrets"
"""What a start must bring: ``env:NAME`` or ``file:NAME``, separated by commas."""

WORKSPACE = "sandbox-console.workspace"
"""What was seen at creation about the user's access to the workspace."""

WRAPPER = "sandbox-console-secrets"
"""The name ($0) of the shell that reads secrets before the command; tells its containers apart."""

HELPER = "sandbox-console-helper"
"""The name ($0) of a shell that the console runs for itself; tells its commands apart in the engine's events."""

EGRESS = "sandbox-console.egress"
"""On a sandbox with egress or ports and on its network: the token that names its gateway."""

GATEWAY = "sandbox-console.gateway"
"""On a gateway's container: the same token."""


def is_anothers(labels: Mapping[str, str], ours: str) -> bool:
    """Whether a console made it that is not this one, whose installation is ``ours``."""
    return labels.get(MANAGED) == "1" and differ(labels.get(INSTALLATION, ""), ours)


def gateway_name(token: str) -> str:
    """The name of the container that is a gate's gateway."""
    return f"sandbox-console-gateway-{token}"


def is_gateway(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a container is a gateway. An image can bring its containers the label, but not the name."""
    return GATEWAY in labels and name.lstrip("/") == gateway_name(labels[GATEWAY])
