"""``drift`` byte for byte: what differs, who did it, what is unknown, and the two ways to end it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.golden import NOW, Golden, fleet

from sandbox_console.model.sandbox import Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")


def backend() -> FakeBackend:
    def box(number: int, name: str, spec: SandboxSpec, **fields: object) -> Sandbox:
        ref = SandboxRef("fake", "local", str(number) * 12)
        return Sandbox(ref, name, Status.RUNNING, "python:3.12", NOW - 60, spec=spec, **fields)  # type: ignore[arg-type]

    asked = SandboxSpec("web", "python:3.12", cpus=1.0, memory_mib=512, egress=("api.example.com",), env={"KEY": "x"})
    return FakeBackend(
        [
            box(
                1, "renamed", asked, effective=(Fact("memory_mib", "1024"),),
                found={"name": "renamed", "cpus": 1.0, "memory_mib": 1024, "egress": "a\x1b[2J, not b", "network": "also on network lan"},
                untold={"workspace": "it is not told"},
            ),
            box(2, "same", SandboxSpec("same", "python:3.12", cpus=1.0), found={"name": "same", "cpus": 1.0}),
            box(3, "silent", SandboxSpec("silent", "python:3.12", cpus=2.0)),
            box(4, "limit", SandboxSpec("limit", "python:3.12", pids=5), found={"name": "limit", "pids": 9}),
            *fleet()[0].sandboxes.values(),  # type: ignore[attr-defined]
        ],
        clock=lambda: NOW,
    )  # fmt: skip


def test_drift() -> None:
    golden = Golden([backend()])
    for line in (
        "drift",
        "drift --json",
        "drift same silent --all",
        "drift same",
        "drift theirs",
        "drift nope",
        "show limit",
        "show limit --json",
        "drift limit --reapply --adopt",
        "drift limit --adopt --json",
        "show limit --json",
        "drift limit",
        "drift renamed --adopt",
        "drift renamed",
        "audit ls --limit 3",
        "audit show 1 --json",
    ):
        golden(line)
    golden.check("drift")


def test_reapply() -> None:
    golden = Golden([backend()])
    for line in (
        "drift limit --adopt --read-only",
        "drift limit --reapply",
        "drift limit",
        "drift same --reapply",
        "audit ls",
    ):
        golden(line)
    golden.check("drift-reapply")


def test_the_policy_holds_for_what_is_adopted() -> None:
    golden = Golden([backend()], Config(backend="fake", policy=Rules(max_pids=7)))
    assert golden("drift limit --adopt") == 4
    assert golden("drift limit") == 1
