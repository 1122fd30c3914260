"""Every verb's text and JSON, byte for byte, against tests/cli/golden/."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from msgspec import structs
from tests.cli.golden import Golden, fleet

from sandbox_console.cli import lifecycle
from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Status
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")


def both(golden: Golden, line: str) -> None:
    golden(line)
    golden(f"{line} --json" if " -- " not in line else line.replace(" -- ", " --json -- "))


def test_ls() -> None:
    golden = Golden(fleet())
    for line in ("ls", "ls --all", "ls -l team=core", "ls -l nonsense"):
        both(golden, line)
    golden.check("ls")


def test_ls_names_a_dead_backend() -> None:
    golden = Golden(fleet(dead=True))
    for line in (
        "ls -l team=core",
        "ls --backend gone",
        "ls --backend fake -l team=core",
        "show gone:web",
        "show nope",
    ):
        both(golden, line)
    golden.check("dead")


class Absent(FakeBackend):
    """One that cannot work here, as where an engine is not installed."""

    async def health(self) -> BackendHealth:
        return BackendHealth(self.name, self.host, HealthState.UNAVAILABLE, "it is not installed", "install it")

    async def list(self) -> list[Sandbox]:  # type: ignore[override]
        raise BackendUnreachable("it is not installed", hint="install it")


@pytest.mark.parametrize("terminal", [False, True])
def test_ls_tells_a_person_shortly_of_what_is_not_there(terminal: bool) -> None:
    absent = [Absent(name=name) for name in ("engine", "machines")]
    golden = Golden([*fleet(dead=True), *absent], err_tty=terminal)
    both(golden, "ls -l team=core")
    golden("ls --backend engine")
    golden.check(f"absent-{'terminal' if terminal else 'pipe'}")
    nothing = Golden(list(absent), err_tty=terminal)
    nothing("ls")
    nothing.check(f"absent-alone-{'terminal' if terminal else 'pipe'}")


def test_show() -> None:
    golden = Golden(fleet())
    for line in ("show web", "show fake:batch", "show fake/local/ccccccccccc3", "show theirs"):
        both(golden, line)
    golden("show web --toml")
    golden("show theirs --toml")
    both(golden, "show nope")
    golden.check("show")


def test_names_that_are_not_unique_list_the_candidates() -> None:
    twins = FakeBackend([structs.replace(one, name="web") for one in fleet()[0].sandboxes.values()])  # type: ignore[attr-defined]
    golden = Golden([twins])
    both(golden, "show web")
    golden("show fake/local/aaaaaaaaaaa1")
    golden.check("ambiguous")


def test_create(tmp_path: Path) -> None:
    golden = Golden(fleet())
    both(golden, "create new --image host --cpus 2 --memory 1G --label a=b -- sleep 9")
    golden("create new2 --image host --no-start --json")
    both(golden, "create other --image host --dry-run --pids 9 --env A=1")
    both(golden, "create bad --image host --memory '512 apples' --cpus 0")
    both(golden, "create bad --image host --cpus 0 --egress http://x/")
    both(golden, "create bad --image nope")
    both(golden, "create bad --image nope --dry-run")
    both(golden, "create")
    both(golden, "create web --image host")
    both(golden, "create x --image host --backend fake/elsewhere")
    golden.check("create")


def test_what_a_backend_lacks_is_named() -> None:
    able = Capabilities(
        frozenset({Capability.CREATE, Capability.EGRESS_NONE}), {Capability.LIMIT_CPU: "no cgroup here"}
    )
    golden = Golden([FakeBackend(capabilities=able)])
    both(golden, "create x --image host --cpus 1")
    both(golden, "create x --image host --cpus 1 --dry-run")
    golden.check("lacking")


def test_backends_tells_every_ability_or_why_not() -> None:
    able_but = Capabilities(frozenset(Capability) - {Capability.PAUSE}, {Capability.PAUSE: "it cannot freeze"})
    backend = FakeBackend(capabilities=able_but)
    golden = Golden([backend, FakeBackend(name="gone", dead=True, reason="connection refused")])
    both(golden, "backends")
    assert "connection refused" in golden.transcript
    able, silent = (json.loads(line) for line in golden.transcript.splitlines() if line.startswith("{"))
    assert set(able["capabilities"]) == {str(one) for one in Capability}
    assert able["capabilities"]["exec"] == {"supported": True, "reason": ""}
    assert able["capabilities"]["pause"] == {"supported": False, "reason": "it cannot freeze"}
    assert (silent["state"], silent["capabilities"]) == ("unreachable", {})


def test_publish() -> None:
    golden = Golden(fleet())
    golden("create pub --image host -p 8080:80 --publish 443 --json")
    golden("show pub")
    golden("update pub -p 9090:80 --dry-run")
    both(golden, "create open --image host -p 0.0.0.0:80:80")
    both(golden, "create twice --image host -p 8080:80 -p 127.0.0.1:8080:81 --dry-run")
    golden("create bad --image host -p 8080:80/udp")
    golden("create bad --image host -p http://x:80")
    golden("fork pub copy")
    golden("show copy --toml")
    golden.check("publish")
    shut = Golden(fleet(), Config(backend="fake", policy=Rules(publish="none")))
    both(shut, "create pub --image host -p 80")
    shut.check("publish-none")


def test_update() -> None:
    golden = Golden(fleet())
    both(golden, "update web --dry-run --cpus 2 --env MODE=prod --unset workspace")
    golden("update web --dry-run --label team=core")
    both(golden, "update web --cpus 2")
    both(golden, "update web --name web2 --label more=1")
    both(golden, "update web2 --cpus many")
    both(golden, "update theirs --cpus 1")
    golden("update theirs --cpus 1 --dry-run")
    golden("update theirs --cpus 1 --image python:3.12 --dry-run")
    golden("update theirs --image python:3.12 --confirm ddddddddddd4")
    both(golden, "update theirs --cpus 1 --confirm ddddddddddd4")
    golden("update web2 --unset nonsense")
    golden.check("update")


def test_update_several() -> None:
    golden = Golden(fleet())
    both(golden, "update web theirs nope --cpus 2 --env A=1")
    both(golden, "update web theirs nope --cpus 2 --env A=1 --dry-run")
    both(golden, "update web theirs nope --cpus 2 --env A=1 --yes")
    both(golden, "update --with-label team=core --cpus 3 --yes")
    golden("update --with-label team=none --cpus 3 --yes")
    golden("update web theirs --name both")
    golden("update")
    golden("update web --with-label team=core --cpus 1")
    golden("update web --env A=3 --commit")
    golden.check("update_several")


def test_lifecycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "AT_ONCE", 1)  # several at once get their audit ids in any order
    golden = Golden(fleet())
    both(golden, "stop web")
    both(golden, "start web batch")
    both(golden, "restart web --grace 1s")
    both(golden, "pause web")
    both(golden, "resume web")
    both(golden, "kill web nope batch")
    both(golden, "kill web --signal NOPE")
    both(golden, "rm batch web web")
    both(golden, "rm nope")
    golden("stop web --grace soon")
    golden.check("lifecycle")


class Meeting(FakeBackend):
    """Stops a sandbox only while another is being stopped as well."""

    async def stop(self, permit: Permit, ref: SandboxRef, grace_s: float) -> None:
        self.met = getattr(self, "met", None) or asyncio.Barrier(2)
        async with asyncio.timeout(5), self.met:
            await super().stop(permit, ref, grace_s)


def test_several_are_stopped_at_once_and_told_in_the_order_of_their_names() -> None:
    boxes = [Sandbox(SandboxRef("fake", "local", name), name, Status.RUNNING, "host", 1.0) for name in ("one", "two")]
    golden = Golden([Meeting(boxes)])
    assert golden("stop two one") == 0, golden.transcript
    assert golden.transcript == "$ stop two one\ntwo\none\n[0]\n"


def test_policy() -> None:
    asking = Config(backend="fake", policy=Rules(ask=("stop",), deny=("kill",)))
    golden = Golden(fleet(), asking)
    both(golden, "stop theirs")
    golden("stop theirs --yes")
    golden("stop theirs --confirm wrong")
    golden("stop theirs --confirm ddddddd")
    golden("stop theirs --confirm ddddddddddd4")
    both(golden, "stop web")
    golden("stop web --yes")
    both(golden, "kill web --yes")
    both(golden, "rm batch --read-only")
    golden.check("policy")


def test_exec() -> None:
    golden = Golden(fleet())
    both(golden, "exec web -- echo hello")
    both(golden, "exec web -- exit 42")
    both(golden, "exec web -- nope")
    both(golden, "exec web --timeout 0.1 -- sleep 60")
    both(golden, "exec batch -- echo x")
    both(golden, "exec nope -- echo x")
    golden("exec web")
    golden("exec web --timeout 0 -- echo")
    golden("exec web --env novalue -- echo")
    golden("shell web")
    golden.check("exec")


def test_exec_reads_stdin() -> None:
    golden = Golden(fleet())
    reading, writing = os.pipe()
    os.write(writing, b"in\xff\n")
    os.close(writing)
    try:
        golden("exec web -- cat", stdin=reading)
    finally:
        os.close(reading)
    golden.check("stdin")


def test_logs() -> None:
    golden = Golden(fleet())
    for line in ("logs web", "logs web --timestamps", "logs web batch", "logs web --tail 2", "logs web --grep slow"):
        both(golden, line)
    for words in ("--since 57s", "--until 2023-11-15T00:59:01Z", "--stream stderr", "--timestamps --tail 1"):
        golden(f"logs web batch {words}")
    both(golden, "logs web nope")
    for words in ("--since yesterday", "--tail x", "--tail -1", "--grep ("):
        golden(f"logs web {words.replace('(', chr(39) + '(' + chr(39))}")
    golden.check("logs")


def test_a_terminal_is_shown_nothing_that_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    golden = Golden(fleet(), tty=True)
    for line in (
        "ls",
        "show fake/local/ccccccccccc3",
        "logs web",
        "show web --toml",
        "exec web -- echo '\x1b]0;x\x07'",
    ):
        golden(line)
    monkeypatch.setenv("NO_COLOR", "1")
    golden("logs web --grep slow")
    golden.check("terminal")
    assert "\\u{1b}]" not in golden.transcript


def test_stats() -> None:
    golden = Golden(fleet())
    both(golden, "stats")
    both(golden, "stats web")
    both(golden, "stats nope")
    golden.check("stats")


def test_audit() -> None:
    golden = Golden(fleet())
    both(golden, "audit ls")
    golden("stop web")
    golden("create new --image host")
    golden("rm web --read-only")
    golden("exec batch -- echo hi")
    both(golden, "audit ls")
    both(golden, "audit ls --limit 1")
    both(golden, "audit ls --action stop")
    both(golden, "audit ls --outcome denied")
    both(golden, "audit show 1")
    both(golden, "audit show 99")
    both(golden, "audit verify")
    golden("audit ls --limit 0")
    golden.check("audit")


def test_audit_for_others(tmp_path: Path) -> None:
    golden = Golden(fleet())
    golden("stop web")
    golden("rm web --read-only")
    both(golden, "audit stats")
    golden("audit ls --text web --backend fake --since 2023-11-14T00:00:00Z")
    golden("audit ls --since yesterday")
    golden("audit ls --outcome sideways")
    golden("audit ls --backend fake/local")
    golden("audit export --format xml")
    golden("audit export --format jsonl --after -3")
    golden(f"audit export --format csv -o {tmp_path}/no/such/folder.csv")
    assert golden(f"audit export --format csv -o {tmp_path}/out.csv") == 0, golden.transcript
    assert golden(f"audit export --format csv -o {tmp_path}/out.csv") == 7
    both(golden, "audit ship")
    golden.transcript = golden.transcript.replace(str(tmp_path), "<folder>")
    golden.check("audit_for_others")


def test_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SC_GOOD", "a-very-secret-value")
    table = {
        "GOOD": SecretSource(source="env:SC_GOOD", inject="env", hosts=("api.acme.org",)),
        "BAD": SecretSource(source="env:SC_NOT_SET", inject="file"),
        "VAULT": SecretSource(source='cmd:["/no/such/op", "read", "a-very-secret-value"]'),
    }
    golden = Golden(fleet(), Config(secrets=table))
    golden("create user --image host --secret GOOD --secret VAULT --no-start")
    golden("create user --image host --secret GOOD")
    both(golden, "secrets ls")
    both(golden, "secrets check")
    both(golden, "create far --image host --secret GOOD --egress acme.org --egress api.acme.org --dry-run")
    both(golden, "secrets check GOOD")
    both(golden, "secrets check GOOD somewhere VAULT GOOD")
    golden("secrets check somewhere")
    golden.check("secrets")
    assert "a-very-secret-value" not in golden.transcript


def test_no_audit_log_no_change(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "audit").write_text("in the way")
    golden = Golden(fleet())
    assert [golden(line) for line in ("stop web", "create n --image host", "exec web -- echo", "ls")] == [6, 6, 125, 0]
