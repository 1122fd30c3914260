"""What every backend says in one way: the memory in use, who can reach a port."""

from __future__ import annotations

import pytest

from sandbox_console.backends.bubblewrap import stats as bubblewrap_stats
from sandbox_console.backends.common.messages import reach
from sandbox_console.backends.docker.container_facts import port_fact
from sandbox_console.backends.docker.stats import measure

MIB = 1 << 20


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
