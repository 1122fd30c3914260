"""A stand-in for agent-sandbox's controllers of WarmPools and Claims, on the real objects of an API server.

A pool has its replicas of Sandboxes; a Claim takes a ready one, or with variables gets a new one. Not of it: the
NetworkPolicy of a Template, expiry, volumes, update strategies, trace contexts. It polls; do not time it.
"""

from __future__ import annotations

import copy
from typing import Any

from kubernetes_asyncio import client

GROUP, EXTENSIONS, VERSION = "agents.x-k8s.io", "extensions.agents.x-k8s.io", "v1beta1"
POOL_LABEL = "agents.x-k8s.io/warm-pool-sandbox"
TEMPLATE_REF = "agents.x-k8s.io/sandbox-template-ref"
POD_NAME = "agents.x-k8s.io/pod-name"
MERGE = "application/merge-patch+json"


class ClaimController:
    def __init__(self, api: client.CustomObjectsApi, namespace: str) -> None:
        self._api, self._namespace = api, namespace

    async def step(self) -> None:
        boxes = await self._all(GROUP, "sandboxes")
        pools = await self._all(EXTENSIONS, "sandboxwarmpools")
        claims = await self._all(EXTENSIONS, "sandboxclaims")
        templates = {one["metadata"]["name"]: one for one in await self._all(EXTENSIONS, "sandboxtemplates")}
        for claim in claims:
            await self._bind(claim, {one["metadata"]["name"]: one for one in pools}, templates, boxes)
        for pool in pools:
            await self._fill(pool, templates, boxes)
        alive = {one["metadata"]["uid"] for one in claims}
        for box in boxes:  # the garbage collector does it too, once it has heard of the kind
            owner = _owner(box)
            if owner.get("kind") == "SandboxClaim" and owner["uid"] not in alive:
                await self._api.delete_namespaced_custom_object(
                    GROUP, VERSION, self._namespace, "sandboxes", box["metadata"]["name"]
                )

    async def _all(self, group: str, plural: str) -> list[dict[str, Any]]:
        return (await self._api.list_namespaced_custom_object(group, VERSION, self._namespace, plural))["items"]

    async def _fill(self, pool: dict, templates: dict, boxes: list) -> None:
        template = templates.get(pool["spec"]["sandboxTemplateRef"]["name"])
        mine = [one for one in boxes if _owner(one).get("uid") == pool["metadata"]["uid"]]
        if template is not None:
            for _ in range(pool["spec"].get("replicas", 1) - len(mine)):
                await self._make(template, pool, "SandboxWarmPool", {"generateName": f"{pool['metadata']['name']}-"})
        status = {"replicas": len(mine), "readyReplicas": sum(_ready(one) for one in mine)}
        if status != {key: pool.get("status", {}).get(key, 0) for key in status}:
            await self._status(pool, "sandboxwarmpools", status)

    async def _bind(self, claim: dict, pools: dict, templates: dict, boxes: list) -> None:
        meta = claim["metadata"]
        box = next((one for one in boxes if _owner(one).get("uid") == meta["uid"]), None)
        if box is not None:
            ready = [one for one in box.get("status", {}).get("conditions", []) if one["type"] == "Ready"]
            status = {"conditions": ready, "sandbox": {"name": box["metadata"]["name"]}}
            if status != claim.get("status"):
                await self._status(claim, "sandboxclaims", status)
            return
        name = claim["spec"]["warmPoolRef"]["name"]
        pool = pools.get(name)
        template = templates.get(pool["spec"]["sandboxTemplateRef"]["name"]) if pool else None
        env = claim["spec"].get("env", [])
        if pool is None:
            await self._refuse(claim, "WarmPoolNotFound", f'SandboxWarmPool "{name}" not found')
        elif template is None:
            await self._refuse(claim, "TemplateNotFound", f"the template of {name} is not found")
        elif env and template["spec"].get("envVarsInjectionPolicy", "Disallowed") == "Disallowed":
            await self._refuse(claim, "EnvVarsInjectionRejected", "environment variable injection is not allowed")
        elif not env and (
            free := [one for one in boxes if _ready(one) and _owner(one).get("uid") == pool["metadata"]["uid"]]
        ):
            await self._adopt(free[0], claim)
        else:
            await self._make(template, claim, "SandboxClaim", {"name": meta["name"]}, env)

    async def _adopt(self, box: dict, claim: dict) -> None:
        meta = box["metadata"]
        patch = {
            "metadata": {
                "labels": {POOL_LABEL: None},
                "annotations": {POD_NAME: meta["name"]},
                "ownerReferences": [_reference(claim, "SandboxClaim")],
                "resourceVersion": meta["resourceVersion"],
            }
        }
        await self._api.patch_namespaced_custom_object(
            GROUP, VERSION, self._namespace, "sandboxes", meta["name"], patch, _content_type=MERGE
        )

    async def _make(self, template: dict, owner: dict, kind: str, meta: dict, env: list | None = None) -> None:
        pod = copy.deepcopy(template["spec"]["podTemplate"])
        pod["spec"].setdefault("automountServiceAccountToken", False)
        pod["spec"]["containers"][0].setdefault("env", []).extend(env or [])
        labels = {POOL_LABEL: owner["metadata"]["name"]} if kind == "SandboxWarmPool" else {}
        notes = {TEMPLATE_REF: template["metadata"]["name"]}
        whole = {**meta, "labels": labels, "annotations": notes, "ownerReferences": [_reference(owner, kind)]}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Sandbox",
            "metadata": whole,
            "spec": {"podTemplate": pod},
        }
        await self._api.create_namespaced_custom_object(GROUP, VERSION, self._namespace, "sandboxes", body)

    async def _refuse(self, claim: dict, reason: str, message: str) -> None:
        ready = {"type": "Ready", "status": "False", "reason": reason, "message": message}
        old = next(iter(claim.get("status", {}).get("conditions", [])), {})
        if old.get("reason") != reason:
            ready["lastTransitionTime"] = claim["metadata"]["creationTimestamp"]
            await self._status(claim, "sandboxclaims", {"conditions": [ready]})

    async def _status(self, one: dict, plural: str, status: dict) -> None:
        await self._api.patch_namespaced_custom_object_status(
            EXTENSIONS, VERSION, self._namespace, plural, one["metadata"]["name"], {"status": status},
            _content_type=MERGE,
        )  # fmt: skip


def _owner(box: dict) -> dict:
    return next(iter(box["metadata"].get("ownerReferences", [])), {})


def _ready(box: dict) -> bool:
    found = box.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def _reference(one: dict, kind: str) -> dict:
    meta = one["metadata"]
    owner = {"apiVersion": f"{EXTENSIONS}/{VERSION}", "kind": kind, "name": meta["name"], "uid": meta["uid"]}
    return {**owner, "controller": True}
