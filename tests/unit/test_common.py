"""What every backend says in one way: the memory in use, who can reach a port, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sandbox_console
from sandbox_console.backends.bubblewrap import stats as bubblewrap_stats
from sandbox_console.backends.common.messages import reach
from sandbox_console.backends.docker.container_facts import port_fact
from sandbox_console.backends.docker.stats import measure

MIB = 1 << 20
BACKENDS = Path(sandbox_console.__file__).parent / "backends"
ALL = {"bubblewrap", "docker", "microsandbox"}
REMOTE = {"a2a", "a3s", "daytona", "e2b", "microsandbox_legacy", "opensandbox"}


def sources():
    return [path for path in BACKENDS.rglob("*.py") if "__pycache__" not in path.parts]


@pytest.mark.parametrize("version", [1, 2])
def test_one_cgroup_has_the_same_memory_in_every_backend(tmp_path, version):
    """100 MiB, of them 60 in active and 10 in inactive pages of files: 90."""
    prefix = "total_" if version == 1 else ""
    stat = {f"{prefix}active_file": 60 * MIB, f"{prefix}inactive_file": 10 * MIB}
    (tmp_path / ("memory.usage_in_bytes" if version == 1 else "memory.current")).write_text(f"{100 * MIB}\n")
    (tmp_path / "memory.stat").write_text("".join(f"{key} {value}\n" for key, value in stat.items()))
    here = bubblewrap_stats._memory({"memory": str(tmp_path)}, version)
    sample = {"read": "2026-01-01T00:00:00Z", "cpu_stats": {}, "memory_stats": {"usage": 100 * MIB, "stats": stat}}
    assert (here, measure(sample, None).memory_bytes) == (90 * MIB, 90 * MIB)


def test_a_port_that_others_can_reach_is_noted():
    assert reach(["127.0.0.1", "::1", "127.8.8.8"]) == reach([]) == ""
    for address in ("0.0.0.0", "192.168.1.5", "::", "fe80::1", "box.lan"):
        assert reach(["127.0.0.1", address]) == "other machines can reach it"
    assert port_fact("80/tcp", [{"HostIp": "192.168.1.5", "HostPort": "80"}]).note == "other machines can reach it"
    assert port_fact("80/tcp", [{"HostIp": "", "HostPort": "80"}]).note == "other machines can reach it"
    assert port_fact("80/tcp", [{"HostIp": "127.0.0.1", "HostPort": "80"}], "why").note == "why"


def test_each_refusal_is_worded_in_one_place():
    """Another backend would say it in other words: the words are in ``common/messages.py``, and all three use them."""
    wordings = (
        (r'Conflict\(\s*f"\{[^}]*\} is not running', "not_running"),
        (r"the name \{[^}]*\} is taken", "name_taken"),
        (r" is taken by \{", "address_taken"),
        (r"rm --force \{[^}]*\}\"\)", "not_stopped"),
    )
    for words, function in wordings:
        said = {str(path.relative_to(BACKENDS)) for path in sources() if re.search(words, path.read_text())}
        assert said == {"common/messages.py"}, words
        users = {path.relative_to(BACKENDS).parts[0] for path in sources() if f"{function}(" in path.read_text()}
        assert users >= ALL - ({"docker"} if function == "not_stopped" else set()), function  # its engine says it


def test_one_concept_has_one_file_name_in_every_backend_that_has_it():
    page = (BACKENDS.parents[2] / "docs" / "architecture.md").read_text()
    [line] = [one for one in page.splitlines() if one.startswith("The same concept has the same file name")]
    names = re.findall(r"`(\w+)`", line)
    assert len(names) > 10
    for name in names:
        # Podman is reached by docker's modules: only where it is found and what is registered are its own.
        # A cluster has no gateway, no ports of this host and no statistics of its own; a remote server has even less.
        having = {path.parent.name for path in BACKENDS.glob(f"*/{name}.py")} - {"podman", "kubernetes", *REMOTE}
        assert having >= {"bubblewrap", "docker"} if name in ("events", "attach") else having == ALL, name
