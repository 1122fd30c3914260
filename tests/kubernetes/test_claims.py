"""Templates, WarmPools and Claims, and plain Pods: what is listed and what is sent to make them."""

from __future__ import annotations

import copy

import pytest
from tests.kubernetes.recorded import recording

from sandbox_console.backends.kubernetes import templated
from sandbox_console.backends.kubernetes.claims import Template
from sandbox_console.backends.kubernetes.objects import Meta
from sandbox_console.errors import BackendError, Denied, InvalidSpec
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec

EXTENSIONS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default"
BOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
POD = {
    "metadata": {"labels": {"tier": "agents"}},
    "spec": {"containers": [{"name": "py", "image": "python:3", "env": [{"name": "A", "value": "1"}]}]},
}
TEMPLATE = {
    "metadata": {"name": "python", "uid": "t1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"podTemplate": POD, "networkPolicy": {"egress": []}, "service": False},
}
POOL = {
    "metadata": {"name": "warm", "uid": "p1"},
    "spec": {"replicas": 3, "sandboxTemplateRef": {"name": "python"}},
    "status": {"replicas": 3, "readyReplicas": 2},
}


def claim(name="mine", bound="", reason=""):
    ready = {"type": "Ready", "status": "False", "reason": reason, "message": "because"}
    status = {"conditions": [ready] if reason else [], "sandbox": {"name": bound}}
    meta = {"name": name, "uid": f"claim-{name}", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {"warmPoolRef": {"name": "warm"}}, "status": status}


@pytest.fixture
def extended(server):
    """The recorded server, with a Template, a WarmPool and Claims."""
    server.answers |= {
        f"{EXTENSIONS}/sandboxtemplates": {"items": [TEMPLATE]},
        f"{EXTENSIONS}/sandboxtemplates/python": TEMPLATE,
        f"{EXTENSIONS}/sandboxwarmpools": {"items": [POOL]},
        f"{EXTENSIONS}/sandboxwarmpools/warm": POOL,
        f"{EXTENSIONS}/sandboxclaims": {"items": []},
    }
    return server


def owned(box, kind, name, uid):
    box = copy.deepcopy(box)
    box["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": uid}]
    return box


async def test_templates_and_pools_are_listed_as_what_sandboxes_are_made_of(make, extended):
    backend = await make()
    found = {one.names[0]: one.needed for one in await backend.images()}
    assert found == {"template:python": "", "pool:warm": "2 of 3 ready, of python"}
    assert backend.capabilities().has(Capability.IMAGES)
    assert "kubectl" in backend.capabilities().reason(Capability.IMAGES_CHANGE)


async def test_a_sandbox_has_its_claims_name_and_a_claim_without_one_is_a_row(make, extended):
    first, second = recording("sandboxes")["items"]
    boxes = [owned(first, "SandboxClaim", "mine", "claim-mine"), owned(second, "SandboxWarmPool", "warm", "p1")]
    extended.answers[BOXES] = {**recording("sandboxes"), "items": boxes}
    waiting, broken = claim("waiting"), claim("broken", reason="WarmPoolNotFound")
    extended.answers[f"{EXTENSIONS}/sandboxclaims"] = {"items": [claim(bound="box-00000"), waiting, broken]}
    rows = {one.name: one for one in await (await make()).list()}
    assert sorted(rows) == ["box-00001", "broken", "mine", "waiting"]
    facts = {one.field: one for one in rows["mine"].effective}
    assert (facts["claim"].value, facts["claim"].note) == ("mine", "of the WarmPool warm")
    assert "box-00000" in facts["kind"].note
    assert rows["mine"].ref.id == first["metadata"]["uid"]
    assert rows["box-00001"].maker == "SandboxWarmPool warm"
    assert (rows["waiting"].status, rows["broken"].status) == (Status.STARTING, Status.FAILED)
    assert rows["broken"].detail == "WarmPoolNotFound: because"


def test_a_template_decides_what_the_spec_does_not_ask_for():
    template = Template(Meta(name="python"), TEMPLATE["spec"])
    spec = SandboxSpec("web", image="template:python", command=("run",), env={"A": "2", "B": "3"}, cpus=1)
    box = templated.box(spec, "me", template)
    pod = box["spec"]["podTemplate"]
    [main] = pod["spec"]["containers"]
    assert main == {
        "name": "py", "image": "python:3", "args": ["run"], "resources": {"limits": {"cpu": "1000m"}},
        "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
    }  # fmt: skip
    assert pod["metadata"]["labels"] == {"tier": "agents", "sandbox-console.sandbox": "web"}
    assert (box["spec"]["operatingMode"], box["spec"]["service"]) == ("Suspended", False)
    assert box["metadata"]["annotations"]["agents.x-k8s.io/sandbox-template-ref"] == "python"
    assert TEMPLATE["spec"]["podTemplate"]["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]


async def test_a_claim_is_made_bound_and_removed(make, extended, permit):
    backend = await make(network_policy=True)
    box = owned(recording("sandboxes")["items"][0], "SandboxClaim", "mine", "made-1")
    extended.answers[f"{BOXES}/box-00000"] = box
    extended.answers[f"{EXTENSIONS}/sandboxclaims/mine"] = claim(bound="box-00000")
    spec = SandboxSpec("mine", image="pool:warm", labels={"team": "x"}, max_duration_s=60)
    ref = await backend.create(await permit("create"), spec, (), print)
    [(_, path, body)] = extended.changes
    assert (path, body["spec"]["warmPoolRef"]) == (f"{EXTENSIONS}/sandboxclaims", {"name": "warm"})
    assert body["spec"]["additionalPodMetadata"] == {"labels": {"team": "x"}}
    assert body["spec"]["lifecycle"]["shutdownTime"].endswith("Z")
    assert ref.id == box["metadata"]["uid"]


@pytest.mark.parametrize(
    ("policy", "told"),
    [(None, "lets its sandboxes out"), ({"egress": [{}]}, "lets its sandboxes out"), ({"egress": []}, "")],
)
async def test_a_claim_whose_template_lets_it_out_is_refused(make, extended, permit, policy, told):
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["networkPolicy"] = policy
    extended.answers[f"{EXTENSIONS}/sandboxtemplates/python"] = template
    extended.answers[f"{EXTENSIONS}/sandboxclaims/made"] = claim("made", reason="TemplateNotFound")
    backend = await make(network_policy=True)
    error = InvalidSpec if told else BackendError
    with pytest.raises(error, match=told or "gets no Sandbox: TemplateNotFound") as caught:
        await backend.create(await permit("create"), SandboxSpec("made", image="pool:warm"), (), print)
    assert caught.type is error
    assert [method for method, *_ in extended.changes] == ([] if told else ["POST", "DELETE"])


async def test_a_pod_is_made_after_its_network_policy_with_labels_of_the_selector(make, server, permit):
    backend = await make(network_policy=True, selector="app=agent,tier=x")
    await backend.create(await permit("create"), SandboxSpec("solo", image="pod:py:3"), (), print)
    assert [(method, path) for method, path, _ in server.changes] == [
        ("POST", POLICIES), ("POST", PODS), ("PATCH", f"{POLICIES}/sandbox-console-solo"),
    ]  # fmt: skip
    pod = server.changes[1][2]
    assert pod["spec"]["containers"][0]["image"] == "py:3"
    assert {"app": "agent", "tier": "x"}.items() <= pod["metadata"]["labels"].items()
    assert server.changes[2][2]["metadata"]["ownerReferences"][0]["uid"] == "made-1"
    server.refused[PODS] = 403
    server.changes.clear()
    with pytest.raises(Denied):
        await backend.create(await permit("create"), SandboxSpec("solo", image="pod:py:3"), (), print)
    assert [method for method, *_ in server.changes] == ["POST", "POST", "DELETE"]


@pytest.mark.parametrize(
    ("selector", "spec", "field"),
    [
        ("", SandboxSpec("a", image="pod:x"), "image"),
        ("app in (a, b)", SandboxSpec("a", image="pod:x"), "image"),
        ("app=a", SandboxSpec("a", image="pod:x", labels={"app": "b"}), "labels"),
        ("", SandboxSpec("a", image="pool:"), "image"),
        ("", SandboxSpec("a", image="pool:x", command=("sh",)), "command"),
        ("", SandboxSpec("a", image="pool:x", env={"T": "secretKeyRef:a/b"}), "env"),
        ("", SandboxSpec("a", image="template:x", user="1"), "user"),
    ],
)
async def test_what_an_origin_does_not_take_is_told_by_field(make, selector, spec, field):
    assert list((await make(selector=selector)).validate(spec)) == [field]


async def test_a_pod_can_be_made_where_there_is_no_agent_sandbox(make, server):
    del server.answers["/apis/agents.x-k8s.io/v1beta1"], server.answers[BOXES]
    backend = await make(selector="app=a", network_policy=True)
    assert backend.capabilities().has(Capability.CREATE)
    assert "pod:x makes a plain Pod" in backend.validate(SandboxSpec("a", image="x"))["image"]
    assert not backend.validate(SandboxSpec("a", image="pod:x"))
