"""The labels and names by which the console recognises its own containers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MANAGED = "sandbox-console.managed"
"""``1`` on every container that the console made."""

INSTALLATION = "sandbox-console.installation"
"""The installation that made it, by the id of its state directory, as other consoles may share the engine."""

MADE = "sandbox-console.made"
"""A random word for each container. One whose image has the same word was made by hand, whatever its labels say."""

SPEC = "sandbox-console.spec"
"""The spec as requested, as JSON. It contains only the names of secrets."""

SECRETS = "sandbox-console.secrets"
"""The secrets that a start must supply: ``env:NAME`` or ``file:NAME``, separated by commas."""

WORKSPACE = "sandbox-console.workspace"
"""What was found out at creation about the user's access to the workspace."""

WRAPPER = "sandbox-console-secrets"
"""The name ($0) of the shell that reads secrets before the command; it identifies its containers."""

HELPER = "sandbox-console-helper"
"""The name ($0) of a shell that the console runs for itself; it identifies its commands in the engine's events."""

EGRESS = "sandbox-console.egress"
"""On a sandbox with egress or ports and on its network: the token that names its gateway."""

GATEWAY = "sandbox-console.gateway"
"""On a gateway's container: the token of its sandbox."""


OF_SANDBOXES = (MANAGED, MADE, INSTALLATION, EGRESS, SPEC, SECRETS, WORKSPACE)
"""The labels that a sandbox may have."""

OWN = "sandbox-console."
"""How the keys of all these labels begin."""


def is_anothers(labels: Mapping[str, str], ours: str) -> bool:
    """Whether another console made it; ``ours`` is the installation of this one."""
    return labels.get(MANAGED) == "1" and labels.get(INSTALLATION, "") != ours


def claims(labels: Mapping[str, str]) -> bool:
    """Whether a container has the labels of a console. Its image may have given it them: see :func:`own_labels`."""
    return labels.get(MANAGED) == "1"


def image_labels(image: Mapping[str, Any]) -> Mapping[str, str]:
    """The labels of an image as inspected; none if it is gone."""
    return (image.get("Config") or {}).get("Labels") or {}


def own_labels(labels: Mapping[str, str], images: Mapping[str, str]) -> dict[str, str]:
    """A container's labels without those of a console that the engine copied from its image.

    `docker commit` of a sandbox writes its labels into the image, and so can whoever builds one.
    """
    if MANAGED in images and labels.get(MADE) == images.get(MADE):
        return {key: value for key, value in labels.items() if not key.startswith(OWN)}
    return dict(labels)


def gateway_name(token: str) -> str:
    """The name of a gateway's container."""
    return f"sandbox-console-gateway-{token}"


def is_gateway(name: str, labels: Mapping[str, str]) -> bool:
    """Whether a container is a gateway. An image can give its containers the label, but not the name."""
    return GATEWAY in labels and name.lstrip("/") == gateway_name(labels[GATEWAY])
