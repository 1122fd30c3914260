"""Creates a Sandbox directly or of a Template, a Claim on a WarmPool, or a Pod. What fails leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from sandbox_console.backends.common.messages import name_taken
from sandbox_console.backends.kubernetes import catalogue, claims, manifests, objects, templated
from sandbox_console.backends.kubernetes.claims import CLAIMS, EXTENSIONS, Claim
from sandbox_console.backends.kubernetes.cluster import MERGE, Cluster
from sandbox_console.backends.kubernetes.failures import Forbidden
from sandbox_console.backends.kubernetes.inventory import Inventory
from sandbox_console.backends.kubernetes.origin import Kind, origin
from sandbox_console.errors import BackendError, Conflict, InvalidSpec, NotFound, TimedOut
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec

BIND_S = 90.0
"""A Claim on an empty pool needs a new Sandbox, and its Pod an image."""

_LOOK_S = 0.25
_BOXES = "sandboxes.agents.x-k8s.io"
_POLICIES = "networkpolicies.networking.k8s.io"


class Creation:
    """Creates the objects of one backend."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        self._cluster, self._inventory = cluster, inventory

    async def create(self, spec: SandboxSpec, installation: str) -> SandboxRef:
        """Make what the spec's image says. Raises Conflict if the name is taken, InvalidSpec."""
        made = origin(spec.image)
        await self._cluster.core("pods")  # logs in
        await self._check_runtime(spec.runtime)
        match made.kind:
            case Kind.POOL:
                uid = await self._claim(spec, installation)
            case Kind.POD:
                uid = await self._pod(spec, manifests.pod(spec, installation, self._cluster.scope.selector))
            case Kind.TEMPLATE:
                template = await catalogue.template(self._cluster, made.name)
                uid = await self._box(spec, templated.box(spec, installation, template))
            case Kind.BOX:
                uid = await self._box(spec, manifests.box(spec, installation))
        return SandboxRef("kubernetes", self._cluster.scope.host, uid)

    async def _check_runtime(self, name: str | None) -> None:
        """Raise InvalidSpec for a RuntimeClass that there is not: no Pod would ever be made."""
        if not name:
            return
        path = f"/apis/node.k8s.io/v1/runtimeclasses/{quote(name, safe='')}"
        try:
            await self._cluster.call("GET", path, f"get runtimeclasses.node.k8s.io {name}")
        except NotFound:
            raise InvalidSpec({"runtime": f"the cluster has no RuntimeClass {name!r}"}) from None
        except Forbidden:  # the Pod will tell
            return

    async def _box(self, spec: SandboxSpec, manifest: dict[str, Any]) -> str:
        """A suspended Sandbox, then its NetworkPolicy, which is there before the first start."""
        namespace = self._cluster.namespace
        box = objects.box(await self._post(await self._cluster.boxes(namespace=namespace), _BOXES, manifest))
        uid = box.metadata.uid
        try:
            self._inventory.put_box(box)
            await self._policy(spec, manifests.owner(manifest, uid))
        except BaseException:
            path = await self._cluster.boxes(spec.name, namespace=namespace)
            await run_to_completion(self._delete(path, f"delete {_BOXES} {namespace}/{spec.name}", uid))
            raise
        return uid

    async def _pod(self, spec: SandboxSpec, manifest: dict[str, Any]) -> str:
        """A NetworkPolicy, then its Pod, which runs at once and then owns the policy."""
        namespace = self._cluster.namespace
        await self._policy(spec)
        try:
            path = await self._cluster.core("pods", namespace=namespace)
            pod = objects.pod(await self._post(path, "pods", manifest))
        except BaseException:
            await run_to_completion(self._drop_policy(spec))
            raise
        uid = pod.metadata.uid
        self._inventory.put_pod("selected", pod)
        body = {"metadata": {"ownerReferences": [manifests.owner(manifest, uid)]}}
        try:
            await self._cluster.send("PATCH", self._policies(spec), f"patch {_POLICIES} {namespace}", body, MERGE)
        except BaseException:
            path = await self._cluster.core("pods", spec.name, namespace=namespace)
            await run_to_completion(self._delete(path, f"delete pods {namespace}/{spec.name}", uid))
            await run_to_completion(self._drop_policy(spec))
            raise
        return uid

    async def _claim(self, spec: SandboxSpec, installation: str) -> str:
        """A Claim; returns the uid of the Sandbox that its controller gives it."""
        namespace, pool = self._cluster.namespace, origin(spec.image).name
        template = await catalogue.template_of_pool(self._cluster, pool)
        if template is None or not template.closed:
            raise InvalidSpec({"egress": _open(pool, template.metadata.name if template else "")})
        path = await self._cluster.extensions(CLAIMS, namespace=namespace)
        made = await self._post(path, f"{CLAIMS}.{EXTENSIONS}", templated.claim(spec, installation))
        claim = claims.claim(made)
        try:
            return await self._bound(claim)
        except BaseException:
            request = f"delete {CLAIMS}.{EXTENSIONS} {namespace}/{spec.name}"
            await run_to_completion(self._delete(f"{path}/{quote(spec.name, safe='')}", request, claim.metadata.uid))
            raise

    async def _bound(self, claim: Claim) -> str:
        """Wait until a Claim has its Sandbox. Raises BackendError if it cannot get one, TimedOut."""
        name, namespace = claim.metadata.name, claim.metadata.namespace
        path = await self._cluster.extensions(CLAIMS, name, namespace=namespace)
        try:
            async with asyncio.timeout(BIND_S):
                while not claim.status.sandbox.name:
                    if claim.broken:
                        why = f"{claim.ready.reason}: {claim.ready.message or ''}"
                        raise BackendError(f"the Claim {name} gets no Sandbox: {why[:300]}")
                    await asyncio.sleep(_LOOK_S)
                    found = await self._cluster.call("GET", path, f"get {CLAIMS}.{EXTENSIONS} {namespace}/{name}")
                    claim = claims.claim(found)
        except TimeoutError:
            hint = "do agent-sandbox's controllers run? kubectl get deployments -A"
            raise TimedOut(f"the Claim {name} got no Sandbox within {BIND_S:g} s", hint=hint) from None
        sandbox = claim.status.sandbox.name
        path = await self._cluster.boxes(sandbox, namespace=namespace)
        box = objects.box(await self._cluster.call("GET", path, f"get {_BOXES} {namespace}/{sandbox}"))
        self._inventory.put_claim(claim)
        self._inventory.put_box(box)
        return box.metadata.uid

    async def _post(self, path: str, kind: str, manifest: dict[str, Any]) -> bytes:
        name = manifest["metadata"]["name"]
        try:
            return await self._cluster.send("POST", path, f"create {kind} {self._cluster.namespace}/{name}", manifest)
        except Conflict:
            raise name_taken(name) from None

    async def _policy(self, spec: SandboxSpec, *owners: dict[str, str]) -> None:
        request = f"create {_POLICIES} {self._cluster.namespace}"
        await self._cluster.send("POST", self._policies(), request, manifests.network_policy(spec, *owners))

    def _policies(self, spec: SandboxSpec | None = None) -> str:
        whole = f"/apis/networking.k8s.io/v1/namespaces/{quote(self._cluster.namespace, safe='')}/networkpolicies"
        return whole if spec is None else f"{whole}/{manifests.policy_name(spec)}"

    async def _drop_policy(self, spec: SandboxSpec) -> None:
        await self._delete(self._policies(spec), f"delete {_POLICIES} {self._cluster.namespace}", "")

    async def _delete(self, path: str, request: str, uid: str) -> None:
        await self._cluster.send("DELETE", path, request, {"preconditions": {"uid": uid}} if uid else {})


def _open(pool: str, template: str) -> str:
    """Why a Claim is refused: its network is that of its Template, and a spec without egress promises none."""
    if not template:
        return f"the Template of the WarmPool {pool} may not be read, so it is not known what network a Claim has"
    return (
        f"the Template {template} of the WarmPool {pool} lets its sandboxes out; "
        "a Claim is made only if it has networkPolicy: {egress: []}"
    )
