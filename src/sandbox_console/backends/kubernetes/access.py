"""What the cluster's RBAC lets this login do here, asked by SelfSubjectAccessReview before anything is tried."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.objects import GROUP
from sandbox_console.errors import ConsoleError

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(Struct, frozen=True):
    """A verb on a resource."""

    verb: str
    resource: str
    group: str = ""
    sub: str = ""

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {name}/{self.sub}" if self.sub else f"{self.verb} {name}"


LIST_BOXES = Right("list", "sandboxes", GROUP)
LIST_PODS = Right("list", "pods")


class _Answer(Struct):
    allowed: bool = False


class _Review(Struct):
    status: _Answer = msgspec.field(default_factory=_Answer)


async def missing(cluster: Cluster, rights: tuple[Right, ...]) -> frozenset[Right]:
    """The rights that this login lacks. A right that cannot be asked about counts as given."""
    answers = await asyncio.gather(*(_allowed(cluster, one) for one in rights))
    return frozenset(right for right, allowed in zip(rights, answers, strict=True) if not allowed)


async def _allowed(cluster: Cluster, right: Right) -> bool:
    whole = cluster.scope.namespace == "*"
    asked = {"verb": right.verb, "group": right.group, "resource": right.resource, "subresource": right.sub}
    spec = {"resourceAttributes": {**asked, "namespace": "" if whole else cluster.namespace}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    try:
        data = await cluster.call("POST", REVIEW, f"review {right}", body=msgspec.json.encode(body))
        return msgspec.json.decode(data, type=_Review).status.allowed
    except (ConsoleError, msgspec.DecodeError):  # the call that needs it tells what is wrong
        return True
