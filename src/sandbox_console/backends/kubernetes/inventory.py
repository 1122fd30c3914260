"""What a cluster holds, as its lists and watches tell it: Sandboxes, their Pods, and other Pods by selector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from sandbox_console.backends.kubernetes import translate
from sandbox_console.backends.kubernetes.objects import Box, Meta, Pod
from sandbox_console.model.event import BackendEvent, Changed, Removed
from sandbox_console.model.sandbox import Sandbox, SandboxRef

Source = Literal["boxes", "tracked", "selected"]
"""A list that is watched: Sandboxes, the Pods of Sandboxes, and the Pods that the selector names."""


class Target(Struct, frozen=True):
    """The objects behind a reference: the Sandbox, its Pod, or both."""

    box: Box | None
    pod: Pod | None

    @property
    def meta(self) -> Meta:
        """The metadata of the Sandbox if there is one, else of the Pod."""
        if self.box is not None:
            return self.box.metadata
        return self.pod.metadata if self.pod is not None else Meta()


class Inventory:
    """The objects of one backend by their uids, and the rows that they make."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.ours = ""
        self._boxes: dict[str, Box] = {}
        self._pods: dict[Source, dict[str, Pod]] = {"tracked": {}, "selected": {}}
        self._of_box: dict[str, set[str]] = {}

    def replace(self, boxes: Iterable[Box], tracked: Iterable[Pod], selected: Iterable[Pod]) -> None:
        """Take whole lists for what there is."""
        self._boxes = {one.metadata.uid: one for one in boxes}
        self._pods = {"tracked": {}, "selected": {}}
        self._of_box = {}
        for source, pods in (("tracked", tracked), ("selected", selected)):
            for pod in pods:
                self.put_pod("tracked" if source == "tracked" else "selected", pod)

    def put_box(self, box: Box) -> str:
        """Take in a Sandbox; returns its uid."""
        self._boxes[box.metadata.uid] = box
        return box.metadata.uid

    def put_pod(self, source: Source, pod: Pod) -> str:
        """Take in a Pod; returns the uid of the row that it belongs to."""
        uid = pod.metadata.uid
        self._pods[source][uid] = pod
        if (box := box_of(pod)) is None:
            return uid
        self._of_box.setdefault(box, set()).add(uid)
        return box if box in self._boxes else uid

    def drop(self, source: Source, uid: str) -> str:
        """Forget an object; returns the uid of the row that it belonged to."""
        if source == "boxes":
            self._boxes.pop(uid, None)
            return uid
        pod = self._pods[source].pop(uid, None)
        box = box_of(pod) if pod is not None else None
        if box is None:
            return uid
        if self._pod(uid) is None:
            self._of_box.get(box, set()).discard(uid)
        return box if box in self._boxes else uid

    def event(self, uid: str) -> BackendEvent:
        """The event for a row that may have changed."""
        row = self.row(uid)
        return Changed(row) if row is not None else Removed(SandboxRef(translate.BACKEND, self._host, uid))

    def target(self, uid: str) -> Target | None:
        """The objects behind a row; None if there is none."""
        if (box := self._boxes.get(uid)) is not None:
            return Target(box, self._pod_of(uid))
        pod = self._pods["selected"].get(uid)
        return None if pod is None or box_of(pod) in self._boxes else Target(None, pod)

    def row(self, uid: str) -> Sandbox | None:
        """A row; None if there is none."""
        target = self.target(uid)
        return self.of(target) if target is not None else None

    def of(self, target: Target) -> Sandbox:
        """The row of a sandbox whose objects were found."""
        if target.box is not None:
            return translate.of_box(self._host, target.box, target.pod, self.ours)
        return translate.of_pod(self._host, target.pod or Pod(Meta()), self.ours)

    def rows(self) -> list[Sandbox]:
        """All rows."""
        return [row for uid in self._uids() if (row := self.row(uid)) is not None]

    def _uids(self) -> Iterator[str]:
        yield from self._boxes
        yield from self._pods["selected"]

    def _pod(self, uid: str) -> Pod | None:
        return self._pods["tracked"].get(uid) or self._pods["selected"].get(uid)

    def _pod_of(self, box: str) -> Pod | None:
        """The Pod of a Sandbox: the newest one, preferably one that is not being deleted."""
        pods = [pod for uid in self._of_box.get(box, ()) if (pod := self._pod(uid)) is not None]
        return max(pods, key=_newest, default=None)


def _newest(pod: Pod) -> tuple[bool, str]:
    return pod.metadata.deletion_timestamp is None, pod.metadata.creation_timestamp or ""


def box_of(pod: Pod) -> str | None:
    """The uid of the Sandbox that owns a Pod; None if none does."""
    for owner in pod.metadata.owner_references or ():
        if owner.kind == "Sandbox":
            return owner.uid
    return None
