"""``egress`` byte for byte on the fake backend, and for real on bubblewrap against a server of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.golden import NOW, Golden

from sandbox_console.errors import BackendError
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within

AGENT = SandboxRef("fake", "local", "aaaaaaaaaaa1")


def box(id_: str, name: str, *egress: str) -> Sandbox:
    ref = SandboxRef("fake", "local", id_)
    return Sandbox(ref, name, Status.RUNNING, "host", NOW - 99, spec=SandboxSpec(name, "host", egress=egress))


def records() -> list[EgressRecord]:
    def at(second: float, host: str, port: int = 443, **fields: object) -> EgressRecord:
        return EgressRecord(NOW - 60 + second, "agent", host, port, **fields)  # type: ignore[arg-type]

    return [
        at(0, "acme.org", allowed=True, rule="acme.org"),
        at(1, "evil.example", allowed=False, reason="not_allowed"),
        at(2, "acme.org", allowed=True, rule="acme.org", ended=True, sent_bytes=10, received_bytes=20, duration_s=2.0),
        at(3, "evil.example", 22, allowed=False, reason="not_allowed"),
        at(4, "acme.org", allowed=False, reason="sni_mismatch", rule="acme.org"),
        at(5, "\x1b]0;x\x07\u202e.example", allowed=False, reason="bad_host"),
        at(6, "pypi.example", allowed=False, reason="not_allowed"),
    ]


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Golden:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")
    monkeypatch.setattr("sandbox_console.cli.egress.time.time", lambda: NOW)
    monkeypatch.setattr("sandbox_console.service.effects.egress.SETTLE_S", 0.0)
    boxes = [box("aaaaaaaaaaa1", "agent", "acme.org", "*.example.com"), box("bbbbbbbbbbb2", "quiet")]
    fake = FakeBackend(boxes, clock=lambda: NOW, images=("host",), within=Within(egress={"aaaaaaaaaaa1": records()}))
    rules = Rules(egress=("acme.org", "*.example.com", "*.example", "acme.org:8443"))
    return Golden([fake], Config(backend="fake", policy=rules))


def both(golden: Golden, line: str) -> None:
    golden(line)
    golden(f"{line} --json")


def test_seeing(golden: Golden) -> None:
    for line in ("egress show agent", "egress show quiet", "egress ls", "egress ls --all --since 58s"):
        both(golden, line)
    both(golden, "egress feed")
    golden("egress feed --all --since soon")
    golden("egress ls --backend fake")
    golden.check("egress-seeing")
    assert "\x1b" not in golden.transcript


def test_records_that_cannot_be_read(golden: Golden) -> None:
    [fake] = golden._backends
    fake.faults.verbs["egress_records"] = BackendError("its records are locked")
    for line in ("egress ls", "egress feed"):
        both(golden, line)
    golden.check("egress-unread")


def test_explaining(golden: Golden) -> None:
    both(golden, "egress test agent acme.org")
    both(golden, "egress test agent acme.org:8080")
    golden("egress test agent https://acme.org/path")
    golden("egress test agent ''")
    for target in ("example.com", "a.example.com:80", "evil.example", "169.254.169.254", "::1", "acme.org:x", "a_b!"):
        golden(f"egress test agent {target}")
    golden("egress deny agent acme.org --for 1h")
    both(golden, "egress test agent acme.org")
    golden.check("egress-explaining")


def test_changing(golden: Golden) -> None:
    both(golden, "egress allow agent pypi.example --for 1h")
    golden("egress allow agent pypi.example")
    golden("egress allow agent PyPI.example.")
    both(golden, "egress deny agent acme.org")
    golden("egress allow agent acme.org")
    golden("egress deny agent *.example.com")
    golden("egress allow agent a.example.com")
    golden("egress show agent")
    golden("egress remove agent *.example.com nothing.example")
    golden("egress remove agent *.example.com")
    for line in (
        "egress allow agent evil.org",
        "egress allow agent https://acme.org/x",
        "egress allow agent 10.0.0.1",
        "egress deny agent 10.0.0.0/8",
        "egress allow agent acme.org --for 0s",
        "egress allow agent acme.org --read-only",
        "egress allow nope acme.org",
    ):
        golden(line)
    golden("audit ls")
    golden("audit show 1")
    golden.check("egress-changing")


def test_a_secret_that_can_then_go_further_is_told(golden: Golden) -> None:  # its fixture sets the home and the clock
    spec = SandboxSpec("bound", "host", egress=("api.acme.org",), secrets=("TOKEN",))
    made = Sandbox(SandboxRef("fake", "local", "ccccccccccc3"), "bound", Status.RUNNING, "host", NOW - 9, spec=spec)
    secrets = {"TOKEN": SecretSource(source="env:X", inject="env", hosts=("*.acme.org",))}
    golden = Golden([FakeBackend([made], clock=lambda: NOW)], Config(backend="fake", secrets=secrets))
    golden("egress allow bound files.acme.org")
    golden("egress allow bound acme.org files.acme.org")
    golden("egress deny bound acme.org")
    golden.check("egress-secret")


def test_replay(golden: Golden, tmp_path: Path) -> None:
    both(golden, "egress replay agent --egress *.example")
    golden("egress replay agent --egress acme.org --egress *.example.com --all")
    (tmp_path / "draft.toml").write_text('[policy]\negress = ["pypi.example", "evil.example:22", "acme.org"]\n')
    golden(f"egress replay agent --policy {tmp_path / 'draft.toml'}")
    (tmp_path / "draft").write_text("# a rule a line\n*.example for 1h\ndeny evil.example\nacme.org\n")
    golden(f"egress replay agent --draft {tmp_path / 'draft'}")
    (tmp_path / "draft").write_text("acme.org\nalow evil.example\nhttps://x\n")
    golden(f"egress replay agent --draft {tmp_path / 'draft'}")
    golden(f"egress replay agent --draft {tmp_path / 'no'}")
    golden("egress replay agent")
    golden("egress replay agent --egress http://x")
    golden.transcript = golden.transcript.replace(str(tmp_path), "<tmp>")
    golden.check("egress-replay")


def test_a_rule_that_does_not_take_effect_is_a_failure(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(self: object, permit: object, ref: object, rules: object) -> None:
        """A gateway that keeps to its old rules."""

    monkeypatch.setattr(FakeBackend, "set_egress", deaf)
    assert golden("egress allow agent pypi.example") == 1
    assert "! error: not in effect on agent: pypi.example:443 is denied" in golden.transcript
