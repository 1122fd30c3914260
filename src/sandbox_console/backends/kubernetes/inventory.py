"""What a cluster holds, as its lists and watches tell it: Sandboxes, their Pods, and other Pods by selector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct

from sandbox_console.backends.kubernetes import translate
from sandbox_console.backends.kubernetes.claims import Claim, claim_of
from sandbox_console.backends.kubernetes.objects import Box, Meta, Pod
from sandbox_console.model.event import BackendEvent, Changed, Removed
from sandbox_console.model.sandbox import Sandbox, SandboxRef

Source = Literal["boxes", "tracked", "selected", "claims"]
"""A list that is watched: Sandboxes, their Pods, the Pods that the selector names, and Claims."""


class Target(Struct, frozen=True):
    """The objects behind a reference: a Sandbox with its Pod and its Claim, a Pod alone, or a Claim alone."""

    box: Box | None
    pod: Pod | None
    claim: Claim | None = None
    container: str = ""

    @property
    def meta(self) -> Meta:
        """The metadata of the Sandbox if there is one, else of the Pod."""
        if self.box is not None:
            return self.box.metadata
        alone = self.pod or self.claim
        return alone.metadata if alone is not None else Meta()


class Inventory:
    """The objects of one backend by their uids, and the rows that they make."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.ours = ""
        self._boxes: dict[str, Box] = {}
        self._pods: dict[Source, dict[str, Pod]] = {"tracked": {}, "selected": {}}
        self._of_box: dict[str, set[str]] = {}
        self._claims: dict[str, Claim] = {}
        self._bound: dict[str, str] = {}

    def replace(
        self, boxes: Iterable[Box], tracked: Iterable[Pod], selected: Iterable[Pod], claims: Iterable[Claim] = ()
    ) -> None:
        """Take whole lists for what there is."""
        self._boxes = {one.metadata.uid: one for one in boxes}
        self._claims = {one.metadata.uid: one for one in claims}
        self._bound = {claim: uid for uid, box in self._boxes.items() if (claim := claim_of(box))}
        self._pods = {"tracked": {}, "selected": {}}
        self._of_box = {}
        for source, pods in (("tracked", tracked), ("selected", selected)):
            for pod in pods:
                self.put_pod("tracked" if source == "tracked" else "selected", pod)

    def put_box(self, box: Box) -> list[str]:
        """Take in a Sandbox; returns the uids of the rows that change: its own, and that of its Claim."""
        uid, claim = box.metadata.uid, claim_of(box)
        self._boxes[uid] = box
        if not claim or self._bound.get(claim) == uid:
            return [uid]
        self._bound[claim] = uid
        return [claim, uid]

    def put_claim(self, claim: Claim) -> str:
        """Take in a Claim; returns the uid of the row that it belongs to."""
        uid = claim.metadata.uid
        self._claims[uid] = claim
        return self._bound.get(uid, uid)

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
            box = self._boxes.pop(uid, None)
            if box is not None:
                self._bound.pop(claim_of(box), None)
            return uid
        if source == "claims":
            self._claims.pop(uid, None)
            return self._bound.get(uid, uid)
        pod = self._pods[source].pop(uid, None)
        owner = box_of(pod) if pod is not None else None
        if owner is None:
            return uid
        if self._pod(uid) is None:
            self._of_box.get(owner, set()).discard(uid)
        return owner if owner in self._boxes else uid

    def event(self, uid: str) -> BackendEvent:
        """The event for a row that may have changed."""
        row = self.row(uid)
        return Changed(row) if row is not None else Removed(SandboxRef(translate.BACKEND, self._host, uid))

    def target(self, uid: str) -> Target | None:
        """The objects behind a row; None if there is none."""
        if (box := self._boxes.get(uid)) is not None:
            return Target(box, self._pod_of(uid), self._claims.get(claim_of(box)))
        if (claim := self._claims.get(uid)) is not None:
            return None if uid in self._bound else Target(None, None, claim)
        pod = self._pods["selected"].get(uid)
        return None if pod is None or box_of(pod) in self._boxes else Target(None, pod)

    def row(self, uid: str) -> Sandbox | None:
        """A row; None if there is none."""
        target = self.target(uid)
        return self.of(target) if target is not None else None

    def of(self, target: Target) -> Sandbox:
        """The row of a sandbox whose objects were found."""
        if target.box is not None:
            return translate.of_box(self._host, target.box, target.pod, self.ours, target.claim)
        if target.claim is not None:
            return translate.of_claim(self._host, target.claim, self.ours)
        return translate.of_pod(self._host, target.pod or Pod(Meta()), self.ours)

    def rows(self) -> list[Sandbox]:
        """All rows."""
        return [row for uid in self._uids() if (row := self.row(uid)) is not None]

    def _uids(self) -> Iterator[str]:
        yield from self._boxes
        yield from self._pods["selected"]
        yield from self._claims

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
