"""Translates Sandboxes of agents.x-k8s.io and Pods into the console's model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from msgspec import structs

from sandbox_console.backends.common.installation import ANOTHER
from sandbox_console.backends.kubernetes import annotations as own
from sandbox_console.backends.kubernetes.causes import Judged, containers_of, judge, main_container, seconds
from sandbox_console.backends.kubernetes.claims import EXTENSIONS, KIND, TEMPLATE_REF, Claim
from sandbox_console.backends.kubernetes.objects import GROUP, Box, Meta, Pod, PodSpec
from sandbox_console.backends.kubernetes.quantities import mib, number
from sandbox_console.errors import InvalidSpec
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

BACKEND = "kubernetes"
SUSPENDED = "suspended: its Pod is deleted, and what was written outside of volumes with it"
_EXPIRED = "expired: its shutdownTime has passed"
_CLAIM_EXPIRED = "expired: its Claim's time is over"


def of_box(host: str, box: Box, pod: Pod | None, ours: str, claim: Claim | None = None) -> Sandbox:
    """A Sandbox with its Pod, under the name of its Claim if it has one. ``ours`` is the id of this installation."""
    judged = _judge_box(box, pod)
    shown = pod.spec if pod is not None else box.spec.pod_template.spec
    facts = (*_box_facts(box, claim), *_image(box, claim, shown), *_facts(shown, pod))
    maker = next((f"{one.kind} {one.name}" for one in box.metadata.owner_references or ()), "agent-sandbox")
    meta = box.metadata
    if claim is not None:
        notes = (meta.annotations or {}) | (claim.metadata.annotations or {})
        meta = structs.replace(meta, name=claim.metadata.name, annotations=notes)
    return _sandbox(host, meta, judged, shown, facts, ours, maker)


def of_claim(host: str, claim: Claim, ours: str) -> Sandbox:
    """A Claim that is not bound to a Sandbox yet."""
    ready = claim.ready
    reason = f"{ready.reason}: {(ready.message or '')[:300]}"
    judged = Judged(Status.STARTING, "its Claim is not bound to a Sandbox yet")
    if ready.reason == "ClaimExpired":
        judged = Judged(Status.EXITED, _CLAIM_EXPIRED, Exit(reason="expired"))
    elif claim.broken:
        judged = Judged(Status.FAILED, reason)
    if claim.metadata.deletion_timestamp is not None:
        judged = Judged(Status.STOPPING, "it is being deleted")
    facts = (Fact("kind", KIND, note=EXTENSIONS), Fact("pool", claim.spec.warm_pool_ref.name, note="its WarmPool"))
    return _sandbox(host, claim.metadata, judged, PodSpec(), facts, ours, "agent-sandbox")


def of_pod(host: str, pod: Pod, ours: str) -> Sandbox:
    """A Pod of its own."""
    owner = next(iter(pod.metadata.owner_references or ()), None)
    maker = f"{owner.kind} {owner.name}" if owner is not None else "kubernetes"
    facts = (Fact("kind", "Pod"), *_facts(pod.spec, pod))
    return _sandbox(host, pod.metadata, judge(pod), pod.spec, facts, ours, maker)


def _sandbox(
    host: str, meta: Meta, judged: Judged, spec: PodSpec, facts: tuple[Fact, ...], ours: str, maker: str
) -> Sandbox:
    notes = meta.annotations or {}
    asked = _spec(notes, meta.name)
    anothers = asked is not None and notes.get(own.INSTALLATION, "") != ours
    managed = asked is not None and not anothers
    main = spec.containers[0] if spec.containers else None
    return Sandbox(
        ref=SandboxRef(BACKEND, host, meta.uid),
        name=meta.name,
        status=judged.status,
        image=asked.image if managed and asked else main.image if main else "",
        created_at=seconds(meta.creation_timestamp),
        started_at=judged.started_at,
        finished_at=judged.finished_at,
        exit=judged.exit,
        labels=dict(asked.labels) if managed and asked else dict(meta.labels or {}),
        managed=managed,
        maker="" if managed else ANOTHER if anothers else maker,
        spec=asked if managed else None,
        effective=(Fact("namespace", meta.namespace), *facts),
        restarts=judged.restarts,
        detail=judged.detail,
    )


def _judge_box(box: Box, pod: Pod | None) -> Judged:
    if box.unread:
        return Judged(Status.UNKNOWN, f"its object has another shape than expected: {box.unread}")
    if box.metadata.deletion_timestamp is not None:
        return Judged(Status.STOPPING, "it is being deleted")
    reason, message = _ready(box)
    if box.spec.operating_mode == "Suspended":
        return _suspended(box, pod)
    if reason == "SandboxExpired":
        return Judged(Status.EXITED, _EXPIRED, Exit(reason="expired"))
    if pod is not None:
        return judge(pod)
    if reason in ("ReconcilerError", "MultiplePods"):
        return Judged(Status.FAILED, f"{reason}: {message}")
    return Judged(Status.STARTING, "its Pod is not there yet")


def _suspended(box: Box, pod: Pod | None) -> Judged:
    if pod is not None:
        return Judged(Status.STOPPING, "it is being suspended: its Pod ends")
    notes = box.metadata.annotations or {}
    if own.SPEC in notes and own.STARTED not in notes:
        return Judged(Status.CREATED)
    ended = seconds(notes.get(own.STOPPED)) or _since(box, "SandboxSuspended")
    return Judged(Status.EXITED, SUSPENDED, Exit(reason="suspended"), finished_at=ended)


def _since(box: Box, reason: str) -> float | None:
    """When the condition Ready got a reason."""
    ready = next((one for one in box.status.conditions or () if one.type == "Ready"), None)
    return seconds(ready.last_transition_time) if ready is not None and ready.reason == reason else None


def _ready(box: Box) -> tuple[str, str]:
    for one in box.status.conditions or ():
        if one.type == "Ready":
            return one.reason or "", (one.message or "")[:300]
    return "", ""


def _box_facts(box: Box, claim: Claim | None) -> Iterator[Fact]:
    yield Fact("kind", "Sandbox", note=f"{box.metadata.name}, {GROUP}" if claim is not None else GROUP)
    if claim is not None:
        yield Fact("claim", claim.metadata.name, note=f"of the WarmPool {claim.spec.warm_pool_ref.name}")
    for owner in box.metadata.owner_references or ():
        if owner.kind == "SandboxWarmPool":
            yield Fact("pool", owner.name, note="no Claim has taken it yet")
    if template := (box.metadata.annotations or {}).get(TEMPLATE_REF):
        yield Fact("template", template, note="its SandboxTemplate")
    yield Fact("operatingMode", box.spec.operating_mode, note="stop suspends it, start resumes it")
    if box.spec.shutdown_time:
        yield Fact("shutdownTime", box.spec.shutdown_time, note="the cluster's controller deletes its Pod then")


def _image(box: Box, claim: Claim | None, spec: PodSpec) -> Iterator[Fact]:
    """The image where the spec names a Template or a WarmPool in its place."""
    if spec.containers and (claim is not None or TEMPLATE_REF in (box.metadata.annotations or {})):
        yield Fact("image", spec.containers[0].image, note="of the Template")


def _facts(spec: PodSpec, pod: Pod | None) -> Iterator[Fact]:
    main = main_container(pod) if pod is not None else next(iter(spec.containers), None)
    limits = (main.resources.limits if main and main.resources else None) or {}
    cpus, memory = number(limits.get("cpu", "")), mib(limits.get("memory", ""))
    yield Fact("cpus", f"{cpus:g}" if cpus is not None else "", note="" if cpus is not None else "no limit")
    yield Fact("memory_mib", f"{memory:g}" if memory is not None else "", note="" if memory is not None else "no limit")
    if spec.runtime_class_name:
        yield Fact("runtime", spec.runtime_class_name, note="its RuntimeClass")
    if len(every := containers_of(spec)) > 1:
        first = [one.name for one in spec.init_containers or ()]
        note = f"logs and commands are those of {main.name if main else ''}"
        note += f"; {', '.join(first)} {'is' if len(first) == 1 else 'are'} for the start" if first else ""
        names = sorted((one.name for one in every), key=lambda name: main is None or name != main.name)
        yield Fact("containers", ", ".join(names), note=note)
    if spec.node_name:
        yield Fact("node", spec.node_name)
    if pod is not None:
        yield Fact("pod", pod.metadata.name)
        if pod.status.pod_ip:
            yield Fact("address", pod.status.pod_ip)


def _spec(notes: Mapping[str, str], name: str) -> SandboxSpec | None:
    """The spec that a console asked for; None for what it did not make."""
    try:
        return structs.replace(SandboxSpec.from_dict(json.loads(notes[own.SPEC])), name=name)
    except (KeyError, ValueError, AttributeError, TypeError, RecursionError, InvalidSpec):
        return None
