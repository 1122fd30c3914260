"""The parts of Kubernetes objects that the console reads. All else in them is skipped while they are decoded.

Everything here is hostile text: names of images, messages and conditions come from users of the cluster.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

GROUP, VERSION = "agents.x-k8s.io", "v1beta1"
"""The API of agent-sandbox (sigs.k8s.io)."""

TRACKED = "agents.x-k8s.io/sandbox-name-hash"
"""The label that agent-sandbox's controller puts on each Pod of a Sandbox."""


class Camel(Struct, frozen=True, rename="camel", gc=False):
    """Fields are named as in Kubernetes: ``resourceVersion`` for ``resource_version``."""


class Owner(Camel, frozen=True):
    """One of ``ownerReferences``."""

    uid: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(Camel, frozen=True):
    """``metadata``. Times are RFC 3339."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None


class Condition(Camel, frozen=True):
    """One of ``status.conditions``."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Waiting(Camel, frozen=True):
    """A container that is not started."""

    reason: str | None = None
    message: str | None = None


class Running(Camel, frozen=True):
    """A container that runs."""

    started_at: str | None = None


class Terminated(Camel, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class State(Camel, frozen=True):
    """A container's state: one of the three is there."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Camel, frozen=True):
    """One container of a Pod."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: State = State()
    last_state: State = State()


class Resources(Camel, frozen=True):
    """``resources`` of a container: quantities as texts, such as ``500m`` and ``64Mi``."""

    limits: dict[str, str | int | float] | None = None


class Container(Camel, frozen=True):
    """A container as asked for."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None
    resources: Resources | None = None


class Gate(Camel, frozen=True):
    """One of ``readinessGates``."""

    condition_type: str = ""


class PodSpec(Camel, frozen=True):
    """``spec`` of a Pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    node_name: str = ""
    runtime_class_name: str | None = None
    readiness_gates: tuple[Gate, ...] | None = None
    restart_policy: str = ""
    active_deadline_seconds: int | None = None


class PodStatus(Camel, frozen=True):
    """``status`` of a Pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    pod_ip: str | None = field(default=None, name="podIP")
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Camel, frozen=True):
    """A Pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodTemplate(Camel, frozen=True):
    """``spec.podTemplate`` of a Sandbox."""

    spec: PodSpec = PodSpec()


class BoxSpec(Camel, frozen=True):
    """``spec`` of a Sandbox of agents.x-k8s.io."""

    operating_mode: str = "Running"
    pod_template: PodTemplate = PodTemplate()
    shutdown_time: str | None = None


class BoxStatus(Camel, frozen=True):
    """``status`` of a Sandbox of agents.x-k8s.io."""

    conditions: tuple[Condition, ...] | None = None
    node_name: str | None = None


class Box(Camel, frozen=True):
    """A Sandbox of agents.x-k8s.io; ``unread`` is why only its metadata could be read."""

    metadata: Meta
    spec: BoxSpec = BoxSpec()
    status: BoxStatus = BoxStatus()
    unread: str = ""


class ListMeta(Camel, frozen=True):
    """``metadata`` of a list; ``continue`` asks for the next page."""

    resource_version: str = ""
    next: str = field(default="", name="continue")


class Page(Struct, frozen=True):
    """A page of a list. Items are decoded one by one, so that one odd object does not hide the others."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


class Event(Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Problem(Struct, frozen=True):
    """The object of an ERROR event."""

    code: int = 0
    message: str = ""


class _Bare(Struct, frozen=True):
    metadata: Meta


_PAGE = msgspec.json.Decoder(Page)
_POD = msgspec.json.Decoder(Pod)
_BOX = msgspec.json.Decoder(Box)
_BARE = msgspec.json.Decoder(_Bare)
_EVENT = msgspec.json.Decoder(Event)


def page(data: bytes) -> Page:
    """Decode a page of a list. Raises msgspec.DecodeError."""
    return _PAGE.decode(data)


def event(line: bytes) -> Event:
    """Decode a line of a watch. Raises msgspec.DecodeError."""
    return _EVENT.decode(line)


def problem(raw: Any) -> Problem:
    """Decode the object of an ERROR event. Raises msgspec.DecodeError."""
    return msgspec.json.decode(raw, type=Problem)


def bare(raw: Any) -> Meta:
    """Decode the metadata of an object. Raises msgspec.DecodeError."""
    return _BARE.decode(raw).metadata


def pod(raw: Any) -> Pod:
    """Decode a Pod. Raises msgspec.DecodeError."""
    return _POD.decode(raw)


def box(raw: Any) -> Box:
    """Decode a Sandbox. Its schema may be looser than ours: then its metadata and why. Raises msgspec.DecodeError."""
    try:
        return _BOX.decode(raw)
    except msgspec.ValidationError as error:
        return Box(_BARE.decode(raw).metadata, unread=str(error))
