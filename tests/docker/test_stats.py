from __future__ import annotations

import asyncio

import pytest
from tests.support.require import requires

from sandbox_console.backends.docker.stats import measure
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


@requires("docker")
async def test_a_busy_sandbox_is_seen_and_the_samples_end_with_it(backend, make, permit):
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
async def test_samples_that_are_asked_for_come_as_those_that_are_streamed(backend, make, permit):
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
async def test_a_stopped_one_has_no_samples_and_an_unknown_one_is_not_found(backend, make):
    ref = await make(start=False)
    async with asyncio.timeout(60):
        assert [found async for found in backend.stats(ref, 1)] == []
    with pytest.raises(NotFound):
        [found async for found in backend.stats(SandboxRef("docker", "default", "0" * 64), 1)]
