"""Templates, WarmPools and Claims of extensions.agents.x-k8s.io: a Claim takes a Sandbox of a pool, or a new one.

A Claim names a WarmPool, which names a Template. The controller of agent-sandbox binds the Claim to a Sandbox, which
the Claim then owns. A Claim that is bound has no row of its own: its Sandbox is shown under the Claim's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sandbox_console.backends.kubernetes.objects import Box, Camel, Condition, Meta

EXTENSIONS = "extensions.agents.x-k8s.io"
KIND = "SandboxClaim"
CLAIMS, POOLS, TEMPLATES = "sandboxclaims", "sandboxwarmpools", "sandboxtemplates"

TEMPLATE_REF = "agents.x-k8s.io/sandbox-template-ref"
"""The annotation that names the Template of a Sandbox."""


class Named(Camel, frozen=True):
    """A reference by name."""

    name: str = ""


class ClaimSpec(Camel, frozen=True):
    """``spec`` of a Claim."""

    warm_pool_ref: Named = Named()


class ClaimStatus(Camel, frozen=True):
    """``status`` of a Claim; ``sandbox`` is what it is bound to."""

    conditions: tuple[Condition, ...] | None = None
    sandbox: Named = Named()


class Claim(Camel, frozen=True):
    """A SandboxClaim."""

    metadata: Meta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def ready(self) -> Condition:
        """Its condition Ready."""
        return next((one for one in self.status.conditions or () if one.type == "Ready"), Condition())

    @property
    def broken(self) -> bool:
        """Whether its controller says that it cannot be bound."""
        return self.ready.status == "False" and self.ready.reason in _BROKEN


_BROKEN = (
    "TemplateNotFound",
    "WarmPoolNotFound",
    "InvalidMetadata",
    "EnvVarsInjectionRejected",
    "VolumeClaimTemplatesError",
    "ReconcilerError",
)
"""The reasons of agent-sandbox's controller for a Claim that cannot be bound as it is."""


class PoolSpec(Camel, frozen=True):
    """``spec`` of a WarmPool."""

    replicas: int | None = None
    sandbox_template_ref: Named = Named()


class PoolStatus(Camel, frozen=True):
    """``status`` of a WarmPool."""

    ready_replicas: int = 0


class Pool(Camel, frozen=True):
    """A SandboxWarmPool."""

    metadata: Meta
    spec: PoolSpec = PoolSpec()
    status: PoolStatus = PoolStatus()


class Template(Camel, frozen=True):
    """A SandboxTemplate. Its Pod stays as the cluster has it, since all of it goes into a Sandbox."""

    metadata: Meta
    spec: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies an empty one

    @property
    def closed(self) -> bool:
        """Whether its NetworkPolicy, which the controller makes, allows no traffic out."""
        policy = self.spec.get("networkPolicy")
        managed = self.spec.get("networkPolicyManagement", "Managed") == "Managed"
        return managed and isinstance(policy, Mapping) and not policy.get("egress")


claim = msgspec.json.Decoder(Claim).decode
"""Decode a Claim. Raises msgspec.DecodeError."""
pool = msgspec.json.Decoder(Pool).decode
"""Decode a WarmPool. Raises msgspec.DecodeError."""
template = msgspec.json.Decoder(Template).decode
"""Decode a Template. Raises msgspec.DecodeError."""


def claim_of(box: Box) -> str:
    """The uid of the Claim that owns a Sandbox; empty if none does."""
    return next((one.uid for one in box.metadata.owner_references or () if one.kind == KIND), "")
