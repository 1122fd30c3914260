from __future__ import annotations

import pytest

from sandbox_console.model.action import Create, Exec, OpenShell, Start, Stop, Update
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.decide import decide
from sandbox_console.policy.rules import Allow, Ask, Deny, Rules

REF = SandboxRef("b", "local", "id-1")
ALL = Capabilities(frozenset(Capability))
OURS, FOREIGN = (Sandbox(REF, "box", Status.RUNNING, managed=managed) for managed in (True, False))


def create(**fields):
    return Create(SandboxSpec("n", image="python:3", **fields), "b", "local")


@pytest.mark.parametrize(
    ("action", "rules", "kind", "rule"),
    [
        (Stop(REF), Rules(), Allow, ""),
        (Stop(REF), Rules(read_only=True), Deny, "policy.read_only"),
        (Stop(REF), Rules(deny=("stop",)), Deny, "policy.deny"),
        (Stop(REF), Rules(ask=("stop",)), Ask, "policy.ask"),
        (Stop(REF), Rules(ask=("stop",), deny=("stop",)), Deny, "policy.deny"),
        (create(), Rules(images=("python:*",)), Allow, ""),
        (create(), Rules(images=("node:*",)), Deny, "policy.images"),
        (Update(REF, SandboxSpec("n", image="evil")), Rules(images=("python:*",)), Deny, "policy.images"),
        (create(cpus=2), Rules(max_cpus=2), Allow, ""),
        (create(cpus=2.1), Rules(max_cpus=2), Deny, "policy.max_cpus"),
        (create(memory_mib=513), Rules(max_memory_mib=512), Deny, "policy.max_memory_mib"),
        (create(pids=9), Rules(max_pids=8), Deny, "policy.max_pids"),
        (create(), Rules(max_cpus=2, require_limits=True), Deny, "policy.require_limits"),
        (create(egress=("a.example.com",)), Rules(egress=("*.example.com",)), Allow, ""),
        (create(egress=("example.com",)), Rules(egress=("*.example.com",)), Deny, "policy.egress"),
        (create(egress=("a.example.com:22",)), Rules(egress=("*.example.com",)), Deny, "policy.egress"),
        (create(egress=("a.com",)), Rules(egress=()), Deny, "policy.egress"),
        (create(egress=("https://a.com",)), Rules(egress=("*.com",)), Deny, "policy.egress"),
        (create(), Rules(egress=()), Allow, ""),
        (create(seccomp="off"), Rules(), Deny, "policy.seccomp_off"),
        (create(seccomp="off"), Rules(ptrace=True), Deny, "policy.seccomp_off"),
        (create(seccomp="off"), Rules(seccomp_off=True), Allow, ""),
        (create(ptrace=True), Rules(seccomp_off=True), Deny, "policy.ptrace"),
        (create(ptrace=True), Rules(ptrace=True), Allow, ""),
        (create(nested_userns=True), Rules(ptrace=True, seccomp_off=True), Deny, "policy.nested_userns"),
        (create(nested_userns=True), Rules(nested_userns=True), Allow, ""),
        (Update(REF, SandboxSpec("n", nested_userns=True)), Rules(), Deny, "policy.nested_userns"),
        (Update(REF, SandboxSpec("n", seccomp="off")), Rules(), Deny, "policy.seccomp_off"),
        (Update(REF, SandboxSpec("n", ptrace=True)), Rules(), Deny, "policy.ptrace"),
        (create(ports=("8080:80", "[::1]::22")), Rules(), Allow, ""),
        (create(ports=("8080:80", "0.0.0.0:80:80")), Rules(), Deny, "policy.publish"),
        (create(ports=("x",)), Rules(), Deny, "policy.publish"),
        (Update(REF, SandboxSpec("n", ports=("[::]::80",))), Rules(), Deny, "policy.publish"),
        (create(ports=("0.0.0.0:80:80",)), Rules(publish="any"), Allow, ""),
        (create(ports=("80",)), Rules(publish="none"), Deny, "policy.publish"),
        (create(), Rules(publish="none"), Allow, ""),
    ],
)
def test_the_rules(action, rules, kind, rule):
    found = decide(action, rules, ALL, target=OURS)
    assert type(found) is kind
    assert getattr(found, "rule", "") == rule


@pytest.mark.parametrize(("stance", "kind"), [("allow", Allow), ("ask", Ask), ("deny", Deny)])
def test_what_others_made(stance, kind):
    found = decide(Stop(REF), Rules(foreign=stance), ALL, target=FOREIGN)
    assert type(found) is kind
    assert type(decide(Stop(REF), Rules(foreign=stance), ALL, target=OURS)) is Allow
    if isinstance(found, Ask):
        assert found.token == REF.id


@pytest.mark.parametrize(
    ("action", "missing"),
    [
        (create(), Capability.CREATE),
        (create(), Capability.EGRESS_NONE),
        (create(egress=("a.com",)), Capability.EGRESS_ALLOWLIST),
        (create(cpus=1), Capability.LIMIT_CPU),
        (create(memory_mib=64), Capability.LIMIT_MEMORY),
        (create(max_duration_s=5), Capability.MAX_DURATION),
        (create(idle_timeout_s=5), Capability.IDLE_TIMEOUT),
        (create(secrets=("T",)), Capability.SECRET_ENV),
        (create(workspace="/w"), Capability.WORKSPACE),
        (create(read_only_root=True), Capability.READ_ONLY_ROOT),
        (create(runtime="r"), Capability.RUNTIME),
        (create(ports=("80",)), Capability.PORTS),
        (Exec(REF, ("a",)), Capability.EXEC),
        (Exec(REF, ("a",), user="u"), Capability.EXEC_USER),
        (OpenShell(REF), Capability.SHELL),
        (Start(REF), Capability.START),
    ],
)
def test_a_missing_capability_is_a_deny_that_names_it(action, missing):
    lacking = Capabilities(frozenset(Capability) - {missing}, {missing: "not on this moon"})
    found = decide(action, Rules(), lacking, target=OURS)
    assert isinstance(found, Deny)
    assert found.capability == missing
    assert "not on this moon" in found.reason
    assert isinstance(decide(action, Rules(), ALL, target=OURS), Allow)


@pytest.mark.parametrize("fields", [{"seccomp": "off"}, {"ptrace": True}])
def test_a_filter_of_system_calls_is_chosen_only_where_there_is_one(fields):
    lacking = Capabilities(frozenset(Capability) - {Capability.SYSTEM_CALLS})
    found = decide(create(**fields), Rules(seccomp_off=True, ptrace=True), lacking)
    assert isinstance(found, Deny)
    assert found.capability == Capability.SYSTEM_CALLS


def test_best_effort_accepts_a_limit_that_cannot_be_enforced():
    lacking = Capabilities(frozenset(Capability) - {Capability.LIMIT_CPU})
    assert isinstance(decide(create(cpus=1, limits="best-effort"), Rules(), lacking), Allow)
    strict = decide(create(cpus=1), Rules(), lacking)
    assert isinstance(strict, Deny)
    assert "best-effort" in strict.hint


def test_how_a_secret_is_handed_over_decides_what_it_needs():
    lacking = Capabilities(frozenset(Capability) - {Capability.SECRET_PLACEHOLDER})
    assert isinstance(decide(create(secrets=("T",)), Rules(), lacking, injects={"T": "file"}), Allow)
    assert isinstance(decide(create(secrets=("T",)), Rules(), lacking, injects={"T": "placeholder"}), Deny)
