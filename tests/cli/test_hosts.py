"""Several hosts of one backend: which ones ``--host`` means, where a sandbox is made, and what silent ones had."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.cli.golden import NOW, Golden, sandboxes

from sandbox_console.errors import ConfigError, NoRoom, UsageError
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service import Config, load
from sandbox_console.service.bootstrap import timeouts
from sandbox_console.service.host_options import HostOptions, HostTables
from sandbox_console.service.paths import find_paths
from sandbox_console.service.reads.placement import emptiest
from sandbox_console.testing.fake_backend import FakeBackend

HOSTS = {
    "web*": HostOptions(groups=("web",), labels={"zone": "eu", "disk": "ssd"}, timeout_s=0.2),
    "farm/web2": HostOptions(labels={"disk": "nvme"}, max_running=3),
    "db*": HostOptions(groups=("data", "slow"), labels={"zone": "us"}),
}
CONFIG = Config(backend="farm", hosts=HOSTS)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")
    return tmp_path / "home"


def farm(**running: int) -> list[FakeBackend]:
    """Hosts with so many running sandboxes each, and an ended one."""
    web = next(one for one in sandboxes() if one.status is Status.RUNNING)

    def held(host: str, count: int) -> list[Sandbox]:
        rows = [
            msgspec.structs.replace(web, ref=SandboxRef("farm", host, f"{host}{at:08}"), name=f"{host}-{at}")
            for at in range(count + 1)
        ]
        return [*rows[:-1], msgspec.structs.replace(rows[-1], status=Status.EXITED)]

    return [
        FakeBackend(held(host, count), name="farm", host=host, clock=lambda: NOW) for host, count in running.items()
    ]


KEYS = [("farm", name) for name in ("web1", "web2", "web10", "db1")] + [("bubblewrap", "local")]


@pytest.mark.parametrize(
    ("selectors", "meant"),
    [
        (["web1"], "web1"), (["web*"], "web1 web2 web10"), (["web?"], "web1 web2"), (["farm/*"], "web1 web2 web10 db1"),
        (["zone=us"], "db1"), (["disk=n*"], "web2"), (["data"], "db1"), (["sl*", "web10"], "web10 db1"),
        (["local"], "local"), (["*"], "web1 web2 web10 db1 local"),
    ],
)  # fmt: skip
def test_a_selector_is_a_name_a_pattern_a_group_or_a_label(selectors: list[str], meant: str) -> None:
    assert " ".join(host for _, host in HostTables(HOSTS).chosen(KEYS, selectors)) == meant


@pytest.mark.parametrize(
    ("selector", "hint"),
    [("wbe1", "did you mean 'web1'?"), ("dta", "did you mean 'data'?"), ("zone=ue", "did you mean 'zone=eu'?"),
     ("mars*", "there is: farm/web1, farm/web2")],
)  # fmt: skip
def test_a_selector_without_a_host_says_what_was_meant(selector: str, hint: str) -> None:
    with pytest.raises(UsageError, match="matches no host") as caught:
        HostTables(HOSTS).chosen(KEYS, [selector])
    assert caught.value.hint.startswith(hint)


def test_later_tables_win_and_patterns_without_a_host_are_found() -> None:
    tables = HostTables(HOSTS | {"wbe*": HostOptions()})
    assert tables.of(("farm", "web2")) == HostOptions(
        groups=("web",), labels={"zone": "eu", "disk": "nvme"}, timeout_s=0.2, max_running=3
    )
    assert tables.of(("bubblewrap", "local")) == HostOptions()
    assert list(tables.unused(KEYS)) == ["wbe*"]


def test_the_emptiest_with_room() -> None:
    tables = HostTables({"a": HostOptions(max_running=2), "b": HostOptions(max_running=1)})
    a, b, c = ("x", "a"), ("x", "b"), ("x", "c")
    assert emptiest({a: 1, b: 0, c: 5}, tables.of) == b
    assert emptiest({a: 1, b: 1, c: 5}, tables.of) == a
    assert emptiest({a: 2, b: 1, c: 5}, tables.of) == c
    with pytest.raises(NoRoom, match=r"x/a \(2 of 2\), x/b \(7 of 1\)"):
        emptiest({a: 2, b: 7}, tables.of)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('[hosts."web*"]\nlables = {}\n', "line 2: unknown key hosts.web*.lables", "did you mean hosts.web*.labels?"),
        ('[hosts."web*"]\ntimeout_s = 0\n', "timeout_s", ""),
        ('[hosts."web*"]\nmax_running = 0\n', "max_running", ""),
        ('[hosts."web*"]\ngroups = ["a=b"]\n', "'a=b' is no name of a group", ""),
        ('[hosts."web*"]\nlabels = { "a=b" = "c" }\n', "'a=b' is no name of a label", ""),
    ],
)
def test_a_wrong_table_is_named(home: Path, text: str, message: str, hint: str) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(find_paths())
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_timeout_of_a_table_wins() -> None:
    config = Config(hosts=HOSTS, backends={"farm": {"timeout_s": {"web1": 5, "db1": 7}}})
    found = timeouts(config, farm(web1=0, db1=0))
    assert found == {("farm", "web1"): 0.2, ("farm", "db1"): 7.0}


def test_verbs_on_some_hosts_and_the_place_of_a_new_sandbox() -> None:
    golden = Golden(farm(web1=4, web2=3, db1=0), CONFIG)
    assert golden("ls -q --host zone=us --host web2") == 0
    listed = golden.transcript
    assert "farm/db1/" in listed
    assert "farm/web2/" in listed
    assert "web1" not in listed
    assert golden("show web1-0 --json") == 0
    [shown] = [json.loads(line) for line in golden.transcript.splitlines() if '"host_labels"' in line]
    assert (shown["host_groups"], shown["host_labels"]) == (["web"], {"disk": "ssd", "zone": "eu"})
    assert golden("show web1-0") == 0
    assert "host                  web1  web disk=ssd zone=eu" in golden.transcript
    assert golden("--host web* stop db1-0 web1-0") == 3  # it acts on no other host
    assert golden("ls --host wbe1") == 2
    assert "! hint: did you mean 'web1'?" in golden.transcript
    golden.transcript = ""
    assert golden("create a --image host --host web*") == 0
    assert "! note: on farm/web1, which has the fewest running" in golden.transcript  # web2 is full
    assert golden("create b --image host --host *") == 0
    assert "! note: on farm/db1" in golden.transcript
    assert golden("create c --image host --host web2") == 0  # named, so it is used though it is full
    assert golden("--json create d --image host --host disk=n* --backend farm/web2") == 0
    golden.transcript = ""
    full = Golden(farm(web2=3, web3=0), Config(hosts=HOSTS | {"web3": HostOptions(max_running=1)}, backend="farm"))
    assert full("create a --image host --host web*") == 0
    assert full("--json create b --image host --host web*") == 7
    assert '"code": "no_room"' in full.transcript


def test_what_silent_hosts_had_is_dated_and_not_counted() -> None:
    hosts = farm(**{f"web{at}": at for at in range(6)})
    golden = Golden(hosts, CONFIG)
    assert golden("ls -q") == 0
    for host in hosts[2:]:
        host.faults.dead, host.faults.reason = True, "connection refused"
    golden.transcript = ""
    assert golden("ls -q") == 0
    assert golden.transcript.count("farm/web") == 3 + 4  # the rows of two hosts, and the names of four
    assert "! warning: 2 of 6 hosts answer" in golden.transcript
    assert "farm/web5: connection refused; held 18 when last listed, silent since 20" in golden.transcript
    golden.transcript = ""
    assert golden("ls -q --host web5 --host web0") == 5  # one was named
    assert "web5: unreachable: connection refused; held 6 when last listed" in golden.transcript
    golden.transcript = ""
    assert golden("--json ls --host web4 --host web*") == 5
    held = [json.loads(line[2:]) for line in golden.transcript.splitlines() if '"held": ' in line]
    assert [(one["host"], one["held"]) for one in held] == [("web2", 3), ("web3", 4), ("web5", 6)]
    assert all(one["silent_since"] > 1.6e9 for one in held)
    golden.transcript = ""
    assert golden("create a --image host --host web*") == 0
    assert "note: on farm/web0" in golden.transcript
    assert golden("create b --image host --host web4 --host web5") == 5
    assert "none of 2 hosts answers; farm/web4: connection refused" in golden.transcript
    golden.transcript = ""
    assert golden("doctor") == 0
    assert "2 of 6 answer; not: farm/web2, farm/web3, farm/web4, farm/web5" in golden.transcript
    assert '[hosts."db*"] in the configuration matches no host' in golden.transcript
    assert "(web, disk=ssd, zone=eu)" in golden.transcript
