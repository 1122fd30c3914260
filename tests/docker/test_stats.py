from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.docker.test_create import said
from tests.support.require import requires

from sandbox_console.backends.docker.cgroups import read
from sandbox_console.backends.docker.stats import _log, measure
from sandbox_console.errors import NotFound
from sandbox_console.model.sandbox import SandboxRef


def sample(at, cpu, system, stats, **more):
    return {
        "read": f"2026-01-02T03:04:{at:02d}.5Z",
        "cpu_stats": {"cpu_usage": {"total_usage": cpu}, "system_cpu_usage": system, "online_cpus": 4},
        "memory_stats": {"usage": 1000, "limit": 5000, "stats": stats},
        "pids_stats": {"current": 3},
        **more,
    }


def test_the_formulas_are_the_docker_clis():
    before = sample(1, 10**9, 10**10, {}, networks={"a": {"rx_bytes": 100, "tx_bytes": 0}, "b": {"rx_bytes": 50}})
    after = sample(
        3,
        2 * 10**9,
        18 * 10**9,
        {"inactive_file": 100, "total_inactive_file": 400},
        networks={"a": {"rx_bytes": 300, "tx_bytes": 40}, "b": {"rx_bytes": 50}},
        blkio_stats={"io_service_bytes_recursive": [{"op": "Read", "value": 10}, {"op": "write", "value": 20}]},
    )
    found = measure(after, before)
    assert found.cpu_percent == pytest.approx(1 / 8 * 4 * 100)
    assert found.memory_bytes == 600
    assert (found.memory_limit, found.pids) == (5000, 3)
    assert (found.net_rx, found.net_tx) == (100, 20)
    assert measure(after, before, host_memory=5000).memory_limit is None  # the host's memory is no limit
    assert measure(after, before, host_memory=5001).memory_limit == 5000
    assert found.block_read is None  # no earlier figure
    assert measure(sample(3, 1, 1, {"inactive_file": 300}), None).memory_bytes == 700
    assert measure(sample(3, 1, 1, {"inactive_file": 3000}), None).memory_bytes == 1000
    assert measure(before, None).cpu_percent is None


@pytest.fixture(params=["here", "by the engine"])
def way(request, monkeypatch):
    """By this machine's files, and as from another machine."""
    if request.param != "here":
        monkeypatch.setattr("sandbox_console.backends.docker.cgroups.read", lambda *_: None)
    return request.param


@requires("docker")
async def test_a_busy_sandbox_is_seen_and_the_samples_end_with_it(way, backend, make, permit):
    ref = await make("sh", "-c", "while :; do :; done", cpus=0.5, memory_mib=64)
    seen = []
    async with asyncio.timeout(60):
        async for found in backend.stats(ref, 1):
            seen.append(found)
            if len(seen) == 2:
                await backend.kill(await permit("kill"), ref, "SIGKILL")
    assert len(seen) >= 2  # an engine that is slow to kill has more under way
    assert 0 < seen[1].cpu_percent < 90  # half of one, and an engine late with a sample
    assert 0 < seen[1].memory_bytes < 64 << 20
    assert seen[1].memory_limit == 64 << 20
    assert seen[1].pids >= 1


@requires("docker")
async def test_a_flood_of_its_log_is_seen_where_the_engines_files_are_here(way, backend, make):
    ref = await make("sh", "-c", "while :; do seq 1000; sleep 0.01; done")
    seen = []
    async with asyncio.timeout(60), aclosing(backend.stats(ref, 0.5)) as samples:
        async for found in samples:
            seen.append(found.log_rate)
            if len(seen) == 4:
                break
    assert seen[0] is None
    assert all((rate or 0) > 1000 for rate in seen[1:]) if way == "here" else not any(seen)


def test_a_log_that_was_rotated_counts_from_its_new_file():
    assert _log((1, 900), (1, 400), 0.5) == 1000
    assert _log((2, 300), (1, 400), 0.5) == 600
    assert _log(None, (1, 400), 0.5) is None


@requires("docker")
async def test_samples_that_are_asked_for_come_as_those_that_are_streamed(way, backend, make, permit):
    ref = await make("sh", "-c", "while :; do :; done", cpus=0.5, memory_mib=64)
    seen = []
    async with asyncio.timeout(60):
        async for found in backend.stats(ref, 2):
            seen.append(found)
            if len(seen) == 4:
                await backend.kill(await permit("kill"), ref, "SIGKILL")
    assert len(seen) == 4
    assert all(0 < found.cpu_percent < 90 for found in seen[1:])
    assert seen[3].at - seen[2].at > 1.5
    assert {found.memory_limit for found in seen} == {64 << 20}


@requires("docker")
async def test_a_stopped_one_has_no_samples_and_an_unknown_one_is_not_found(way, backend, make):
    ref = await make(start=False)
    async with asyncio.timeout(60):
        assert [found async for found in backend.stats(ref, 1)] == []
    with pytest.raises(NotFound):
        [found async for found in backend.stats(SandboxRef("docker", "default", "0" * 64), 1)]


@requires("docker")
async def test_what_is_read_here_is_what_the_engine_tells(backend, make, docker_engine):
    script = "dd if=/dev/zero of=/tmp/x bs=1M count=20 2>/dev/null; sleep 1000 & echo ready; wait"
    ref = await make("sh", "-c", script, memory_mib=64)
    await said(backend, ref, b"ready")
    engine = await backend._engine()
    stolen = int(Path("/proc/stat").read_text().split()[8]) * 10**9 // os.sysconf("SC_CLK_TCK")
    here = read(docker_engine.inspect(ref.id)["State"]["Pid"], ref.id)
    told = await engine.call("GET", f"containers/{ref.id}/stats", params={"stream": 0})
    assert here["memory_stats"]["limit"] == told["memory_stats"]["limit"] == 64 << 20
    assert abs(measure(here, None).memory_bytes - measure(told, None).memory_bytes) < 8 << 20
    assert here["pids_stats"]["current"] == told["pids_stats"]["current"]
    after = read(docker_engine.inspect(ref.id)["State"]["Pid"], ref.id)
    used, more, most = (one["cpu_stats"]["cpu_usage"]["total_usage"] for one in (here, told, after))
    assert used <= more <= most
    assert here["cpu_stats"]["online_cpus"] == told["cpu_stats"]["online_cpus"]
    whole, theirs, later = (one["cpu_stats"]["system_cpu_usage"] for one in (here, told, after))
    assert whole - stolen - 10**9 <= theirs <= later + 10**9, "the engine leaves out what other machines had"
    assert {one["op"] for one in here["blkio_stats"]["io_service_bytes_recursive"]} <= {
        one["op"] for one in told["blkio_stats"]["io_service_bytes_recursive"]
    }
    assert read(os.getpid(), ref.id) is None, "another process"
    assert read(2**22 + 1, ref.id) is None, "none at all"


def test_version_2_of_cgroups_is_read(tmp_path, monkeypatch):
    ref = "f" * 64
    folder = tmp_path / f"system.slice/docker-{ref}.scope"
    folder.mkdir(parents=True)
    files = {
        "cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n", "memory.current": "3000\n", "memory.max": "max\n",
        "memory.stat": "anon 100\ninactive_file 1000\n", "pids.current": "4\n",
        "io.stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2\n253:0 \n",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    monkeypatch.setattr("sandbox_console.backends.docker.cgroups.ROOT", tmp_path)
    monkeypatch.setattr(
        "sandbox_console.backends.docker.cgroups._groups",
        lambda _, container: [("", folder)] if container == ref else [],
    )
    found = measure(read(os.getpid(), ref), None, 10**9)
    assert (found.memory_bytes, found.memory_limit, found.pids) == (2000, None, 4)
    sample = read(os.getpid(), ref)
    assert sample["cpu_stats"]["cpu_usage"]["total_usage"] == 1_500_000
    later = sample | {"read": "2100-01-01T00:00:00+00:00"}
    assert (measure(later, sample).block_read, measure(later, sample).block_write) == (0, 0)
    assert [one["value"] for one in sample["blkio_stats"]["io_service_bytes_recursive"]] == [10, 20, 1, 2, 0, 0]
    assert read(os.getpid(), "e" * 64) is None
