"""A stand-in for the agent-sandbox controller (the real one cannot be built from Debian: no controller-runtime there).

One Pod of the same name for a Running Sandbox, none for a Suspended one, the Ready condition, nodeName and podIPs.
Nothing else of it: no Services, volumes or expiry. Claims and pools are in claim_controller.py. It polls; do not time it.
"""

import asyncio
import datetime as dt
import hashlib
import sys

from kubernetes_asyncio import client, config
from tests.kubernetes.claim_controller import ClaimController

GROUP, VERSION, PLURAL = "agents.x-k8s.io", "v1beta1", "sandboxes"


def pod_of(box: dict) -> dict:
    meta, template = box["metadata"], box["spec"]["podTemplate"]
    owner = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Sandbox",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    labels = {
        **template.get("metadata", {}).get("labels", {}),
        "agents.x-k8s.io/sandbox-name-hash": hashlib.sha256(meta["name"].encode()).hexdigest()[:8],
    }
    return {
        "metadata": {
            **template.get("metadata", {}),
            "labels": labels,
            "name": meta["name"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


def status_of(box: dict, pod: client.V1Pod | None) -> dict:
    suspended = box["spec"].get("operatingMode") == "Suspended"
    ready = pod is not None and any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or [])
    reason = "SandboxSuspended" if suspended else "DependenciesReady" if ready else "DependenciesNotReady"
    condition = {
        "type": "Ready",
        "status": "True" if ready and not suspended else "False",
        "reason": reason,
        "message": "",
    }
    old = next((c for c in box.get("status", {}).get("conditions", []) if c["type"] == "Ready"), {})
    same = old.get("status") == condition["status"]
    condition["lastTransitionTime"] = old["lastTransitionTime"] if same else dt.datetime.now(dt.UTC).strftime("%FT%TZ")
    return {
        "conditions": [condition],
        "nodeName": pod.spec.node_name if pod else None,
        "podIPs": [ip.ip for ip in pod.status.pod_ips or []] if pod else None,
    }


async def step(v1: client.CoreV1Api, boxes: client.CustomObjectsApi, namespace: str) -> None:
    listed = (await boxes.list_namespaced_custom_object(GROUP, VERSION, namespace, PLURAL))["items"]
    pods = {(p.metadata.namespace, p.metadata.name): p for p in (await v1.list_namespaced_pod(namespace)).items}
    for box in listed:
        ns, name = box["metadata"]["namespace"], box["metadata"]["name"]
        pod = pods.get((ns, name))
        if pod is not None and all(o.uid != box["metadata"]["uid"] for o in pod.metadata.owner_references or []):
            continue  # another's Pod, or that of a deleted Sandbox of this name: wait
        wanted = box["spec"].get("operatingMode") != "Suspended" and not box["metadata"].get("deletionTimestamp")
        if wanted and pod is None:
            await v1.create_namespaced_pod(ns, pod_of(box))
        elif not wanted and pod is not None and not pod.metadata.deletion_timestamp:
            await v1.delete_namespaced_pod(name, ns)
        status = status_of(box, pod)
        if {k: v for k, v in status.items() if v is not None} != box.get("status", {}):
            await boxes.patch_namespaced_custom_object_status(
                GROUP, VERSION, ns, PLURAL, name, {"status": status}, _content_type="application/merge-patch+json"
            )


async def main() -> None:
    await config.load_kube_config()
    async with client.ApiClient() as api:
        v1, boxes = client.CoreV1Api(api), client.CustomObjectsApi(api)
        claims = ClaimController(boxes, sys.argv[1])
        while True:
            try:
                async with asyncio.timeout(5):
                    await claims.step()
                    await step(v1, boxes, sys.argv[1])
            except TimeoutError:
                sys.stderr.write("no answer in 5 s\n")
            except client.ApiException as error:
                if error.status not in (404, 409):
                    sys.stderr.write(f"{error.status} {error.reason}\n")
            await asyncio.sleep(0.3)


asyncio.run(main())
