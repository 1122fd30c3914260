"""What the console says of Pods that a real cluster had: recorded answers, see recordings/README.md."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.kubernetes.recorded import recording

from sandbox_console.backends.kubernetes import objects, raw_object, translate
from sandbox_console.model.sandbox import Exit, Status
from sandbox_console.model.verdict import verdict

PODS = {one["metadata"]["name"]: one for one in recording("pods")["items"]}


def row(pod):
    return translate.of_pod("test", objects.pod(json.dumps(pod).encode()), "")


@pytest.mark.parametrize(
    ("name", "status", "end", "why"),
    [
        ("oom", Status.EXITED, Exit(137, 9, oom=True), "out of memory: the kernel killed it at its limit"),
        ("crash", Status.EXITED, Exit(3, oom=False), "its command failed: exit 3"),
        ("noimage", Status.FAILED, None, "it never ran: ImagePullBackOff: Back-off pulling image"),
        ("toolarge", Status.FAILED, None, "it never ran: unschedulable: 0/1 nodes are available"),
        ("badinit", Status.FAILED, None, "it never ran: init container first: CrashLoopBackOff"),
        ("evicted", Status.LOST, None, 'lost: evicted: Usage of EmptyDir volume "x" exceeds the limit "8Mi"'),
        ("done", Status.EXITED, Exit(0, oom=False), "it finished: exit 0"),
    ],
)
def test_a_cause_is_told(name, status, end, why):
    found = row(PODS[name])
    assert (found.status, found.exit) == (status, end)
    judged = verdict(found, ())
    assert judged is not None
    assert judged.headline.startswith(why)


def test_one_that_runs_has_its_main_container_and_says_that_there_are_others():
    found = row(PODS["two"])
    facts = {fact.field: fact for fact in found.effective}
    assert (found.status, found.image, found.restarts) == (Status.RUNNING, "k8s-node.test/busybox:1", 0)
    assert facts["containers"].value == "main, side, first"
    assert facts["containers"].note.endswith("; first is for the start")
    assert "those of main" in facts["containers"].note
    assert found.started_at is not None


def test_the_main_container_is_the_one_that_the_annotation_names():
    pod = json.loads(json.dumps(PODS["two"]))
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = "side"
    facts = {fact.field: fact for fact in row(pod).effective}
    assert "those of side" in facts["containers"].note
    assert facts["containers"].value == "side, main, first"


def test_a_pod_whose_node_is_silent_is_lost():
    found = row(recording("lost"))
    assert found.status is Status.LOST
    assert found.detail.startswith("node lost: node1 does not answer")


def test_one_whose_time_is_over_is_told_though_the_kubelet_tells_no_end_of_its_container():
    found = row(recording("deadline"))
    judged = verdict(found, ())
    assert (found.status, found.finished_at - found.started_at) == (Status.EXITED, 4.0)
    assert judged is not None
    assert judged.headline == "it ran longer than its limit"


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("PreemptionByScheduler", "preempted"),
        ("EvictionByEvictionAPI", "evicted"),
        ("DeletionByPodGC", "its node is gone"),
    ],
)
def test_a_disruption_of_newer_clusters_is_told(reason, why):
    """By the API's documentation of the condition DisruptionTarget: 1.20 does not have it."""
    pod = json.loads(json.dumps(PODS["evicted"]))
    pod["status"] |= {"reason": None, "message": None}
    pod["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}]
    assert (row(pod).status, row(pod).detail) == (Status.LOST, f"{why}: m")


def test_a_suspended_sandbox_is_told_from_a_new_one():
    [one, _] = recording("suspended")["items"]
    box = objects.box(json.dumps(one).encode())
    found = translate.of_box("test", box, None, "")
    assert (found.status, found.detail, found.maker) == (Status.EXITED, translate.SUSPENDED, "agent-sandbox")
    assert found.finished_at is not None


def test_an_object_of_another_shape_hides_no_other():
    odd = {"metadata": {"name": "odd", "uid": "u"}, "spec": {"podTemplate": "text"}}
    box = objects.box(json.dumps(odd).encode())
    found = translate.of_box("test", box, None, "")
    assert (found.name, found.status) == ("odd", Status.UNKNOWN)
    assert "another shape" in found.detail


def test_raw_has_no_value_of_a_variable():
    pod = json.loads(json.dumps(PODS["two"]))
    repeated = json.dumps(pod)
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = repeated
    assert "hunter2-value" in repeated
    shown = raw_object.public(json.dumps(pod).encode())
    assert "hunter2-value" not in json.dumps(shown)
    assert shown["spec"]["containers"][0]["env"] == [{"name": "SECRET_THING", "value": "***"}]


def test_a_time_that_is_none_is_no_error():
    pod = json.loads(json.dumps(PODS["two"]))
    pod["metadata"]["creationTimestamp"] = "\x1b[31mnever"
    assert row(pod).created_at is None


def test_an_answer_that_is_no_object_is_an_error():
    with pytest.raises(msgspec.DecodeError):
        objects.pod(b"<html>")
