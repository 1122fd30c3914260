"""What a sandbox is made of, as the ``image`` of its spec says: an image, a Template, a WarmPool, or a plain Pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from msgspec import Struct

from sandbox_console.backends.kubernetes.labels import pairs_of
from sandbox_console.model.spec import SandboxSpec


class Kind(StrEnum):
    """The object that is made. The value is the prefix in ``image``."""

    BOX = ""
    TEMPLATE = "template"
    POOL = "pool"
    POD = "pod"


class Origin(Struct, frozen=True):
    """``name`` is that of the image, the Template or the WarmPool."""

    kind: Kind
    name: str


def origin(image: str) -> Origin:
    """Read ``template:NAME``, ``pool:NAME``, ``pod:IMAGE`` or an image."""
    prefix, colon, rest = image.partition(":")
    known = prefix in (Kind.TEMPLATE, Kind.POOL, Kind.POD)
    return Origin(Kind(prefix), rest) if colon and known else Origin(Kind.BOX, image)


_DECIDED = {
    Kind.TEMPLATE: ("user", "read_only_root"),
    Kind.POOL: ("command", "workdir", "user", "read_only_root", "cpus", "memory_mib", "runtime"),
}
"""Fields that a Template decides. A Claim can only add variables, labels and an end."""

SECRET_REF = "secretKeyRef:"  # noqa: S105 - a form of words
"""How the value of a variable names a Secret of the cluster: ``secretKeyRef:NAME/KEY``. It is never read here."""


def problems(spec: SandboxSpec, selector: str, *, agent_sandbox: bool) -> Mapping[str, str]:
    """What is wrong with a spec for what it is to be made of, by field."""
    made = origin(spec.image)
    found = {
        field: f"the {_WORDS[made.kind]} decides it" for field in _DECIDED.get(made.kind, ()) if getattr(spec, field)
    }
    if made.kind is not Kind.BOX and not made.name:
        return {**found, "image": f"write {made.kind}:NAME"}
    return {**found, **_MORE[made.kind](spec, selector, agent_sandbox)}


def _of_box(spec: SandboxSpec, selector: str, agent_sandbox: bool) -> Mapping[str, str]:  # noqa: ARG001
    if agent_sandbox:
        return {}
    return {"image": f"the cluster has no agent-sandbox; pod:{spec.image or 'IMAGE'} makes a plain Pod"}


def _of_pool(spec: SandboxSpec, selector: str, agent_sandbox: bool) -> Mapping[str, str]:
    if any(value.startswith(SECRET_REF) for value in spec.env.values()):
        return {"env": "a Claim takes no secretKeyRef; put it in the Template"}
    return _of_box(spec, selector, agent_sandbox)


def _of_pod(spec: SandboxSpec, selector: str, agent_sandbox: bool) -> Mapping[str, str]:  # noqa: ARG001
    if not selector:
        return {"image": 'plain Pods are shown only with [backends.kubernetes] selector = "app=NAME"'}
    if (needed := pairs_of(selector)) is None:
        return {"image": f"a Pod cannot be given labels that fit the selector {selector!r}: it must be KEY=VALUE,..."}
    for key, value in needed.items():
        if spec.labels.get(key, value) != value:
            return {"labels": f"{key} must be {value}, or the selector does not show it"}
    return {}


_WORDS = {Kind.TEMPLATE: "Template", Kind.POOL: "Template of the WarmPool"}
_MORE: Mapping[Kind, Callable[[SandboxSpec, str, bool], Mapping[str, str]]] = {
    Kind.BOX: _of_box,
    Kind.TEMPLATE: _of_box,
    Kind.POOL: _of_pool,
    Kind.POD: _of_pod,
}
