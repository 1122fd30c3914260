"""``update`` of several real sandboxes, and what a recreation loses and keeps."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Cli
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import requires

__all__ = ["docker_engine"]


@pytest.fixture
def two(cli: Cli) -> tuple[str, str]:
    for name in ("one", "two"):
        cli.ok("create", name, "--image", "host", "-l", "team=x", "--env", f"ME={name}", "--", "sleep", "1000")
    return "one", "two"


@requires("bubblewrap")
def test_several_are_planned_asked_about_and_changed_together(cli: Cli, two: tuple[str, str]) -> None:
    cli.ok("create", "other", "--image", "host", "--", "sleep", "1000")
    change = ("--env", "MODE=new")
    refused = cli("update", *two, *change)
    assert refused.returncode == 4
    for name in two:
        assert f"{name}: env: ME={name} -> ME={name} MODE=new (recreate)".encode() in refused.stderr
    refs = {box["name"]: box["ref"] for box in cli.json("ls")}
    plans = cli.json("update", "--with-label", "team=x", *change, "--dry-run")
    assert [(plan["name"], plan["how"], plan["losses"]["can_commit"]) for plan in plans] == [
        ("one", "recreate", False), ("two", "recreate", False),
    ]  # fmt: skip
    done = cli.json("update", "--with-label", "team=x", *change, "--yes")
    assert [(end["name"], end["ok"], end["how"]) for end in done] == [
        ("one", True, "recreate"),
        ("two", True, "recreate"),
    ]
    now = {box["name"]: box["ref"] for box in cli.json("ls")}
    assert now.keys() == {"one", "two", "other"}
    assert {name for name in now if now[name] != refs[name]} == {"one", "two"}
    for name in two:
        assert cli.ok("exec", name, "--", "sh", "-c", "echo $ME $MODE") == f"{name} new\n".encode()
    rows = [row for row in cli.json("audit", "ls") if row["action"] == "update"]
    assert sorted(row["name"] for row in rows if row["outcome"] == "ok") == ["one", "two"]


@requires("bubblewrap")
def test_one_that_cannot_be_changed_stops_no_other(cli: Cli, two: tuple[str, str]) -> None:
    cli.ok("stop", "two")
    done = cli("update", "one", "gone", "two", "--label", "k=v", "--yes")
    assert (done.returncode, b"gone" in done.stderr) == (3, True)
    assert [box["labels"].get("k") for box in cli.json("ls", "--all")] == ["v", "v"]
    refused = cli("update", *two, "--runtime", "kata")
    assert refused.returncode == 8
    assert b"one: runtime cannot be changed" in refused.stderr
    assert b"two: runtime cannot be changed" in refused.stderr


@requires("docker")
def test_what_a_recreation_loses_is_told_and_kept_in_an_image(
    cli: Cli, docker_engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    (cli.home / "config.toml").write_text("[backends.microsandbox]\nenabled = false\n")
    cli.ok("create", "Web.1", "--image", IMAGE, "--backend", "docker", "--user", "0", "--", "sleep", "600")
    cli.ok("exec", "Web.1", "--", "sh", "-c", "head -c 5000 /dev/zero >/kept; sleep 500 </dev/null >/dev/null 2>&1 &")
    [plan] = cli.json("update", "Web.1", "--env", "A=1", "--dry-run")
    lost = plan["losses"]
    assert lost["files"] == [{"path": "/kept", "size": 5000}]
    assert (lost["files_bytes"], lost["processes"], lost["can_commit"]) == (5000, 1, True)
    told = cli.ok("update", "Web.1", "--env", "A=1", "--dry-run").decode()
    assert "loses: 1 file outside its workspace, 4.9 KiB" in told
    assert "ends: its main process, 1 other process" in told
    assert "--commit" in told
    [done] = cli.json("update", "Web.1", "--env", "A=1", "--commit")
    assert done["committed"].startswith("web-1-kept:")
    assert cli("exec", "Web.1", "--", "test", "-e", "/kept").returncode == 1
    cli.ok("update", "Web.1", "--image", done["committed"])
    assert cli.ok("exec", "Web.1", "--", "wc", "-c", "/kept").split()[0] == b"5000"
    actions = [row["action"] for row in cli.json("audit", "ls") if row["outcome"] == "ok"]
    assert actions.index("commit") > actions.index("update"), "newest first: the image was made before"
    cli.ok("rm", "Web.1", "--force")
    docker_engine.docker("rmi", done["committed"])
