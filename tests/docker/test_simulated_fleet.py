"""Ten simulated engines, one frozen and one that flaps, under a real console: nobody waits for them."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.simulated_engines import Simulation, contexts

from sandbox_console.model.sandbox import HealthState
from sandbox_console.service import Config, open_console
from sandbox_console.service.host_options import HostOptions

NAMES = [f"h{at:03}" for at in range(10)]
FROZEN, FLAPPING = NAMES[:2]
PATIENCE_S = 60.0


async def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_one_frozen_and_one_flapping_host_of_ten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    folder = Path(tempfile.mkdtemp(prefix="sc-", dir="/tmp"))  # a socket's path is short
    contexts(tmp_path / "docker", folder, NAMES)
    tables = {"*": HostOptions(groups=("farm",), timeout_s=5.0), FROZEN: HostOptions(timeout_s=0.2)}
    config = Config(backends={"docker": {"contexts": NAMES}}, hosts=tables)
    async with Simulation(folder, 10, 200, frozen=1) as simulation:
        flapping = simulation.engines[1]
        async with open_console(config, only_backend="docker", only_hosts=["farm"]) as console:
            parts = console.list_as_answered(patience_s=2.0)
            (rows, healths), waiting = await anext(parts)
            await parts.aclose()
            assert len(rows) == 20 * sum(health.ok for health in healths)  # without those of the frozen host
            assert ("docker", FROZEN) not in {(one.backend, one.host) for one in healths if one.ok}
            assert set(waiting) <= {("docker", name) for name in NAMES}

            console.watch()
            hub = console.hub
            await until(lambda: len(hub.sandboxes) == 180)
            assert (await console.place_for())[1] != FROZEN

            before = dict(hub.sandboxes)
            await simulation.engines[5].happen(random.Random(1))
            await until(lambda: any(before[ref].status != one.status for ref, one in hub.sandboxes.items()))

            await flapping.down()
            key = ("docker", FLAPPING)
            await until(lambda: hub.health[key].state is HealthState.UNREACHABLE)
            assert hub.health[key].since > 1.6e9
            assert len(hub.sandboxes) == 180  # what it held is kept
            await flapping.up()
            await until(lambda: hub.health[key].ok)
            assert hub.health[key].since == 0.0
            await until(lambda: hub.health["docker", FROZEN].state is HealthState.UNREACHABLE)
            assert sum(health.ok for health in hub.health.values()) == 9
    for socket in folder.iterdir():
        socket.unlink()
    folder.rmdir()
