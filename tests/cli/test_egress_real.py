"""``egress`` as a user meets it: a real bubblewrap sandbox, its gateway, and a server of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import CONFIG, Cli
from tests.egress import world
from tests.support.require import requires

pytestmark = requires("bubblewrap")
GOOD = "good.example.com"


@pytest.fixture
def server() -> Iterator[world.Server]:
    made = world.Server()
    yield made
    made.close()


@pytest.fixture
def agent(cli: Cli, server: world.Server, tmp_path: Path) -> str:
    """A sandbox that may reach this machine's address, and no name that leads there."""
    (tmp_path / "hosts").write_text(f"127.0.0.1 {GOOD} other.example.com\n")
    options = f'[policy]\negress_ip = true\n[backends.bubblewrap]\negress_hosts = "{tmp_path / "hosts"}"\n'
    (cli.home / "config.toml").write_text(CONFIG + options)
    words = ("--image", "host", "--egress", f"127.0.0.1:{server.port}", "--egress", "seed.example.com")
    cli.ok("create", "agent", *words, "--", "sleep", "1000")
    return "agent"


def status(cli: Cli, host: str, port: int) -> str:
    """What the sandbox is answered."""
    words = ("curl", "-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", f"http://{host}:{port}/")
    return cli("exec", "agent", "--", *words).stdout.decode()


def test_from_a_denial_to_a_rule_that_holds(cli: Cli, agent: str, server: world.Server) -> None:
    target = f"{GOOD}:{server.port}"
    assert status(cli, GOOD, server.port) == "403"
    cli.until(lambda: [one["host"] for one in cli.json("egress", "ls")] == [GOOD], "the denial is in the fleet's list")
    told = cli("egress", "test", agent, target)
    assert (told.returncode, told.stdout.decode()) == (1, f"{target} is denied: no rule allows it\n")
    assert not server.seen, "testing connects to nobody"

    allowed = cli("egress", "allow", agent, target, "--for", "1h")
    assert allowed.returncode == 0, allowed
    assert f"in effect: {target} is allowed" in allowed.stderr.decode()
    assert status(cli, GOOD, server.port) == "200"
    assert [request[0] for request in server.seen] == [target]
    assert cli("egress", "test", agent, target).returncode == 0

    replayed = cli("egress", "replay", agent, "--egress", "seed.example.com", "--json")
    assert replayed.returncode == 1
    assert [(one["host"], one["change"]) for one in map(json.loads, replayed.stdout.splitlines())] == [(GOOD, "denied")]

    assert f"in effect: {GOOD}:443 is denied" in cli("egress", "deny", agent, GOOD).stderr.decode()
    assert status(cli, GOOD, server.port) == "403"
    rows = {one["action"]: one for one in cli.json("audit", "ls")}
    assert {"egress", "egress-deny"} <= rows.keys()
    [row] = cli.json("audit", "show", str(rows["egress"]["id"]))
    patterns = [{rule["pattern"] for rule in row["end"]["body"][when]} for when in ("before", "after")]
    assert patterns[1] - patterns[0] == {target}
    cli.ok("audit", "verify")


def in_force(cli: Cli) -> set[tuple[str, str]]:
    return {(one["effect"], one["pattern"]) for one in cli.json("egress", "show", "agent") if "pattern" in one}


def edited(cli: Cli, *hosts: str) -> tuple[str, ...]:
    return ("update", "agent", *(word for host in hosts for word in ("--egress", host)))


def test_an_edit_of_the_list_is_applied_to_the_running_gateway(cli: Cli, agent: str, server: world.Server) -> None:
    target, door = f"{GOOD}:{server.port}", f"127.0.0.1:{server.port}"
    cli.ok("egress", "deny", agent, "other.example.com")
    cli.ok("egress", "allow", agent, "live.example.com")
    [before] = cli.json("show", agent)
    [plan] = cli.json(*edited(cli, door, target, f"other.example.com:{server.port}"), "--dry-run")
    assert [(change["field"], change["how"]) for change in plan["changes"]] == [("egress", "live")]
    [done] = cli.json(*edited(cli, door, target, f"other.example.com:{server.port}"))
    assert (done["ref"], done["how"]) == (before["ref"], "live")
    assert cli.json("show", agent)[0]["started_at"] == before["started_at"]
    assert (status(cli, GOOD, server.port), status(cli, "other.example.com", server.port)) == ("200", "403")
    assert in_force(cli) == {
        ("allow", door), ("allow", target), ("allow", f"other.example.com:{server.port}"),
        ("allow", "live.example.com"), ("deny", "other.example.com"),
    }  # fmt: skip
    [row] = cli.json("audit", "show", str(done["audit_id"]))
    assert {one["pattern"]: one["allowed"] for one in row["end"]["body"]["egress"]["checked"]} == {
        "seed.example.com": False, target: True, f"other.example.com:{server.port}": False,
    }  # fmt: skip
    cli.ok(*edited(cli, door))
    assert status(cli, GOOD, server.port) == "403"


def test_a_list_that_opens_or_closes_the_network_needs_a_new_sandbox(cli: Cli, agent: str, box: str) -> None:
    [closed] = cli.json("update", agent, "--unset", "egress", "--dry-run")
    [opened] = cli.json("update", box, "--egress", GOOD, "--dry-run")
    assert [plan["changes"][0]["how"] for plan in (closed, opened)] == ["recreate", "recreate"]
    assert "gateway" in opened["changes"][0]["reason"]


KILLS = """
import os, signal, sys
from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend as Backend

name, when = sys.argv.pop(1), sys.argv.pop(1)
real = getattr(Backend, name)

async def call(*words, **options):
    if when == "after":
        await real(*words, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(Backend, name, call)
from sandbox_console.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("name", "when", "rules", "spec"),
    [
        ("set_egress", "before", False, False), ("set_egress", "after", True, False),
        ("adopt", "before", True, False), ("adopt", "after", True, True),
    ],
)  # fmt: skip
def test_kill_between_the_gateway_and_the_spec_shows_as_drift(
    cli: Cli, agent: str, name: str, when: str, rules: bool, spec: bool
) -> None:
    cli.env["SANDBOX_CONSOLE_SERVER"] = "off"
    env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(cli.home), **cli.env}
    words = [sys.executable, "-c", KILLS, name, when, *edited(cli, GOOD)]
    done = subprocess.run(words, env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == -9, done
    assert (in_force(cli) == {("allow", GOOD)}) is rules
    assert (cli.json("show", agent)[0]["spec"]["egress"] == [GOOD]) is spec
    assert cli("drift", agent).returncode == (1 if rules is not spec else 0)
    cli.ok(*edited(cli, GOOD))
    assert cli("drift", agent).returncode == 0
    assert in_force(cli) == {("allow", GOOD)}


def test_a_rule_for_a_time_ends_while_no_console_runs(cli: Cli, agent: str, server: world.Server) -> None:
    cli.ok("egress", "allow", agent, f"{GOOD}:{server.port}", "--for", "15s")
    shown = next(one for one in cli.json("egress", "show", agent) if one.get("source") == "live")
    assert shown["until"] is not None
    loop = f"while [ $(curl -s -m 20 -o /dev/null -w '%{{http_code}}' http://{GOOD}:{server.port}/) = 200 ]; do sleep 0.2; done; echo over"
    assert cli.ok("exec", agent, "--timeout", "90", "--", "sh", "-c", loop) == b"over\n", (
        "the sandbox alone waits for it"
    )
    assert server.seen, "it was allowed before"
    assert not [one for one in cli.json("egress", "show", agent) if one.get("source") == "live"]


def test_following_tells_each_decision_as_it_comes(cli: Cli, agent: str, server: world.Server) -> None:
    following = cli.start("egress", "feed", "-f", "--json")
    try:
        cli.until(lambda: _heard(cli, following, server), "the denial came")
    finally:
        following.terminate()
        out, _ = following.communicate(timeout=60)
    told = [json.loads(line) for line in out.splitlines()]
    assert told[0]["host"] == "other.example.com"
    assert told[0]["sandbox"] == agent
    assert following.returncode == 143


def _heard(cli: Cli, following: subprocess.Popen[bytes], server: world.Server) -> bool:
    """Ask again until the follower has come up: what was before it is not told."""
    import select

    status(cli, "other.example.com", server.port)
    return bool(select.select([following.stdout], [], [], 1.0)[0])


def test_without_a_gateway_it_says_why(cli: Cli, box: str) -> None:
    refused = cli("egress", "allow", box, "acme.org")
    assert refused.returncode == 8
    assert b"was made without egress" in refused.stderr
