"""What is sent to make, start, stop and remove, with recorded answers of a real API server."""

from __future__ import annotations

import copy
import json

import pytest

from sandbox_console.backends.common.remote_audit import noted
from sandbox_console.backends.kubernetes import manifests
from sandbox_console.errors import Conflict, InvalidSpec, Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.spec import SandboxSpec

BOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
PODS = "/api/v1/namespaces/default/pods"
RUNTIME = "/apis/node.k8s.io/v1/runtimeclasses/gvisor"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
WHOLE = SandboxSpec(
    "web", image="py:3", command=("python3", "-c", "print(1)"), env={"A": "$(B) c", "T": "secretKeyRef:github/token"},
    workdir="/srv", user="1000:100", cpus=0.5, memory_mib=64, labels={"team": "x", "odd": "with space"},
    max_duration_s=1.5, runtime="gvisor", read_only_root=True,
)  # fmt: skip


def test_a_spec_becomes_a_suspended_sandbox_without_rights():
    box = manifests.box(WHOLE, "me")
    assert box["spec"]["operatingMode"] == "Suspended"
    assert box["metadata"]["labels"] == {"team": "x"}  # the annotation keeps the other one
    assert SandboxSpec.from_dict(json.loads(box["metadata"]["annotations"]["sandbox-console.spec"])) == WHOLE
    pod = box["spec"]["podTemplate"]["spec"]
    assert (pod["runtimeClassName"], pod["activeDeadlineSeconds"], pod["restartPolicy"]) == ("gvisor", 2, "Never")
    assert pod["automountServiceAccountToken"] is False
    [main] = pod["containers"]
    assert main["args"] == ["python3", "-c", "print(1)"]
    assert main["env"] == [
        {"name": "A", "value": "$$(B) c"},
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "github", "key": "token"}}},
    ]
    assert main["resources"] == {"limits": {"cpu": "500m", "memory": "64Mi"}}
    assert main["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "readOnlyRootFilesystem": True,
        "runAsUser": 1000,
        "runAsGroup": 100,
    }
    policy = manifests.network_policy(WHOLE, manifests.owner(box, "uid"))
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert (
        policy["spec"]["podSelector"]["matchLabels"].items() <= box["spec"]["podTemplate"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("name", SandboxSpec("Web_1", image="a")),
        ("name", SandboxSpec("a" * 64, image="a")),
        ("image", SandboxSpec("web")),
        ("user", SandboxSpec("web", image="a", user="nobody")),
        ("egress", SandboxSpec("web", image="a", egress=("a.example",))),
        ("secrets", SandboxSpec("web", image="a", secrets=("TOKEN",))),
        ("env", SandboxSpec("web", image="a", env={"T": "secretKeyRef:github"})),
    ],
)
async def test_what_kubernetes_does_not_take_is_told_by_field(make, permit, field, spec):
    backend = await make(network_policy=True)
    assert list(backend.validate(spec)) == [field]
    with pytest.raises(InvalidSpec):
        await backend.create(await permit("create"), spec, (), print)


async def test_nothing_is_created_where_no_network_policy_is_enforced_or_the_runtime_is_missing(make, server, permit):
    backend = await make()
    with pytest.raises(Unsupported, match="network_policy = true"):
        await backend.create(await permit("create"), WHOLE, (), print)
    enforced = await make(network_policy=True)
    with pytest.raises(InvalidSpec, match="no RuntimeClass 'gvisor'"):
        await enforced.create(await permit("create"), WHOLE, (), print)
    assert all(path.endswith("reviews") for _, path, _ in server.changes)


async def test_create_makes_a_sandbox_and_its_network_policy_and_tells_the_audit_ids(make, server, permit):
    server.answers[RUNTIME] = {}
    backend = await make(network_policy=True)
    server.changes.clear()
    with noted() as ids:
        ref = await backend.create(await permit("create"), WHOLE, (), print)
    assert ref.id == "made-1"
    assert [(method, path) for method, path, _ in server.changes] == [("POST", BOXES), ("POST", POLICIES)]
    assert server.changes[1][2]["metadata"]["ownerReferences"][0]["uid"] == "made-1"
    assert len(ids) == 2


async def test_a_create_that_fails_leaves_nothing_and_a_taken_name_is_a_conflict(make, server, permit):
    server.answers[RUNTIME] = {}
    backend = await make(network_policy=True)
    server.refused = {POLICIES: 403}
    with pytest.raises(Exception, match="networkpolicies"):
        await backend.create(await permit("create"), WHOLE, (), print)
    method, path, body = server.changes[-1]
    assert (method, path, body["preconditions"]) == ("DELETE", f"{BOXES}/web", {"uid": "made-1"})
    server.refused = {BOXES: 409}
    with pytest.raises(Conflict, match="the name 'web' is taken"):
        await backend.create(await permit("create"), WHOLE, (), print)


@pytest.fixture
def one(server):
    """The first recorded Sandbox and its Pod, which change as asked."""
    for kind in (BOXES, PODS):
        server.answers[kind] = copy.deepcopy(server.answers[kind])
        for found in server.answers[kind]["items"]:
            server.answers[f"{kind}/{found['metadata']['name']}"] = found
    return "box-00000"


async def ref_of(backend, name):
    return next(row.ref for row in await backend.list() if row.name == name)


async def test_stop_suspends_with_the_grace_and_waits_for_the_pod_to_be_gone(make, server, permit, one):
    backend = await make()
    ref = await ref_of(backend, one)
    looks = []

    def pod(_request):
        looks.append(1)
        return server.pod if len(looks) < 4 else {"metadata": {"name": one, "uid": "another"}}

    server.pod = server.answers[f"{PODS}/{one}"]
    server.answers[f"{PODS}/{one}"] = pod
    server.changes.clear()
    await backend.stop(await permit("stop"), ref, 2.5)
    patch, delete = server.changes
    assert patch[2]["spec"] == {"operatingMode": "Suspended"}
    assert patch[2]["metadata"]["uid"] == ref.id
    assert delete[:2] == ("DELETE", f"{PODS}/{one}")
    assert delete[2]["gracePeriodSeconds"] == 3
    assert len(looks) >= 4


async def test_starting_one_that_runs_changes_nothing_and_removing_it_needs_force(make, server, permit, one):
    backend = await make()
    ref = await ref_of(backend, one)
    server.changes.clear()
    await backend.start(await permit("start"), ref, ())
    with pytest.raises(Conflict, match="is running"):
        await backend.remove(await permit("remove"), ref, force=False)
    assert server.changes == []


async def test_a_pod_of_its_own_is_removed_but_not_stopped(make, server, permit):
    pod = copy.deepcopy(server.answers[PODS]["items"][0])
    pod["metadata"] |= {"name": "own", "uid": "u-own", "labels": {"run": "x"}, "ownerReferences": []}
    server.answers[PODS] = {**server.answers[PODS], "items": [pod]}
    server.answers[f"{PODS}/own"] = pod
    backend = await make(selector="run=x")
    ref = await ref_of(backend, "own")
    with pytest.raises(Unsupported, match="a Pod is not started again"):
        await backend.stop(await permit("stop"), ref, 1)


async def test_each_missing_right_and_ability_has_its_reason(make, server):
    server.denied = {"patch sandboxes"}
    capabilities = (await make()).capabilities()
    assert "patch sandboxes.agents.x-k8s.io" in capabilities.reason(Capability.STOP)
    assert "network_policy = true" in capabilities.reason(Capability.EGRESS_NONE)
    assert "stop suspends" in capabilities.reason(Capability.PAUSE)
    assert all(capabilities.reason(one) != "" for one in Capability if not capabilities.has(one))
    assert (await make(network_policy=True)).capabilities().has(Capability.EGRESS_NONE)
    del server.answers["/apis/agents.x-k8s.io/v1beta1"]
    assert "no agent-sandbox" in (await make()).capabilities().reason(Capability.CREATE)
