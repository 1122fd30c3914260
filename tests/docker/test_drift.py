"""What other tools change on a sandbox from outside: it is told apart from what was asked, by events, and ended."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker import drift as engine_drift
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import NotFound
from sandbox_console.model import drift
from sandbox_console.model.action import Create, Remove, Rename, Update
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.drift import MADE, DriftState, FieldDrift, drifted
from sandbox_console.model.event import Changed
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Console, open_console

pytestmark = requires("docker")


@pytest.fixture
async def console(engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Console]:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    backend = DockerBackend("default", tmp_path / "state" / "backends" / "docker")
    async with open_console(Config(backend="docker"), backends=[backend]) as opened:
        yield opened


@pytest.fixture
async def box(console: Console, unique) -> AsyncIterator[SandboxRef]:
    spec = SandboxSpec(unique(), IMAGE, ("sleep", "1000"), memory_mib=64, cpus=0.5)
    made = await console.perform(Create(spec, "docker", "default")).result()
    yield made.ref
    with suppress(NotFound):  # one that was recreated is another
        await console.perform(Remove(made.ref, force=True)).result()


def docker(engine, *words: str) -> str:
    """The engine's own client, or another tool: its API over the same socket."""
    done = subprocess.run(["docker", "-H", engine.url, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def rows(console: Console, ref: SandboxRef) -> dict[str, FieldDrift]:
    found = await console.drifts.fields(await console.inspect(ref))
    return {row.field: row for row in found if row.state is DriftState.DRIFTED}


async def seen(console: Console, ref: SandboxRef, field: str) -> Sandbox:
    """The sandbox as an event brought it, once that field has drifted. No list is asked for."""
    watching = console.watch()
    try:
        async with asyncio.timeout(60), aclosing(watching.__aiter__()) as events:
            async for event in events:
                if isinstance(event, Changed) and event.sandbox.ref == ref and field in drifted(event.sandbox):
                    return event.sandbox
    finally:
        watching.close()
    raise AssertionError(field)


async def test_limits_changed_by_docker_update_are_not_shown_as_asked(console, box, engine):
    waiting = asyncio.create_task(seen(console, box, "memory_mib"))
    await asyncio.sleep(0.5)
    docker(engine, "update", "--memory", "128m", "--memory-swap", "128m", "--cpus", "1.25", box.id)
    found = await waiting
    assert (found.spec.memory_mib, found.found["memory_mib"]) == (64, 128)
    told = await rows(console, box)
    assert set(told) == {"memory_mib", "cpus"}
    assert (told["cpus"].asked, told["cpus"].found, told["cpus"].by) == (0.5, 1.25, "outside the console")
    await console.perform(drift.reapply(found).action).result()
    assert await rows(console, box) == {}
    assert (await console.inspect(box)).found["memory_mib"] == 64


async def test_what_is_found_can_be_taken_for_what_was_asked(console, box, engine):
    docker(engine, "update", "--memory", "96m", "--memory-swap", "96m", "--pids-limit", "77", box.id)
    mend = drift.adopt(await console.inspect(box))
    assert mend.left == {}
    await console.perform(mend.action).result()
    found = await console.inspect(box)
    assert (found.spec.memory_mib, found.spec.pids, found.spec.cpus) == (96, 77, 0.5)
    assert drifted(found) == ()
    entry = (await console.history(AuditQuery(limit=1)))[0]
    assert (entry.attempt.action, entry.outcome) == ("update", "ok")
    assert entry.attempt.body["diff"]["memory_mib"] == [64, 96]


async def test_a_change_of_the_consoles_own_is_no_drift(console, box, unique):
    await console.perform(Update(box, SandboxSpec("xx", IMAGE, ("sleep", "1000"), memory_mib=80, cpus=0.7))).result()
    name = unique()
    await console.perform(Rename(box, name)).result()
    found = await console.inspect(box)
    assert (found.spec.memory_mib, found.spec.cpus, found.spec.name, found.name) == (80, 0.7, name, name)
    assert drifted(found) == ()


async def test_a_rename_from_outside(console, box, engine, unique):
    name = unique()
    docker(engine, "rename", box.id, name)
    told = await rows(console, box)
    assert set(told) == {"name"}
    asked = told["name"].asked
    assert (told["name"].found, asked == name) == (name, False)
    await console.perform(drift.reapply(await console.inspect(box)).action).result()
    assert (await console.inspect(box)).name == asked
    docker(engine, "rename", box.id, name)
    await console.perform(drift.adopt(await console.inspect(box)).action).result()
    assert await rows(console, box) == {}
    assert (await console.inspect(box)).spec.name == name


@pytest.fixture
def network(engine, unique):
    name = unique()
    docker(engine, "network", "create", "--subnet", "10.213.99.0/24", name)
    yield name
    docker(engine, "network", "rm", "-f", name)


async def test_a_network_that_another_tool_gave_it_is_taken_away_again(console, box, engine, network):
    """Nothing of a sandbox without egress may reach a network; `docker network` can give it one."""
    waiting = asyncio.create_task(seen(console, box, "network"))
    await asyncio.sleep(0.5)
    docker(engine, "network", "disconnect", "none", box.id)
    docker(engine, "network", "connect", network, box.id)
    found = await waiting
    assert found.found["network"] == f"also on network {network}"
    assert "eth0" in docker(engine, "exec", box.id, "ls", "/sys/class/net")
    [(field, row)] = (await rows(console, box)).items()
    assert (field, row.asked, row.by) == ("network", "its own", "outside the console")
    assert drift.adopt(await console.inspect(box)).action is None
    plan = await console.plan(await console.inspect(box), found.spec)
    assert [(change.field, str(change.how)) for change in plan.changes] == [("network", "live")]
    await console.perform(drift.reapply(await console.inspect(box)).action).result()
    assert await rows(console, box) == {}
    assert "eth0" not in docker(engine, "exec", box.id, "ls", "/sys/class/net")


async def test_a_restart_policy_from_outside_is_taken_away_again(console, box, engine):
    """A sandbox that the engine starts again would outlive its limit of time."""
    assert "restart_policy" not in await rows(console, box)
    waiting = asyncio.create_task(seen(console, box, "restart_policy"))
    await asyncio.sleep(0.5)
    docker(engine, "update", "--restart", "on-failure:3", box.id)
    found = await waiting
    row = (await rows(console, box))["restart_policy"]
    assert (row.asked, row.found, row.by) == ("no", "on-failure:3", "outside the console")
    assert drift.adopt(found).left == {"restart_policy": "a spec cannot ask for it: on-failure:3"}
    await console.perform(drift.reapply(found).action).result()
    assert docker(engine, "inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", box.id) == "no"
    assert await rows(console, box) == {}
    assert (await console.inspect(box)).found["memory_mib"] == 64


async def test_swap_and_a_tie_to_cpus_from_outside_are_taken_away_again(console, box, engine):
    """Neither is a field of a spec, but both change what a limit of memory or of CPUs means."""
    assert not {"swap", "cpuset"} & set(await rows(console, box))
    waiting = asyncio.create_task(seen(console, box, "cpuset"))
    await asyncio.sleep(0.5)
    docker(engine, "update", "--memory-swap", "200m", "--cpuset-cpus", "0", box.id)
    found = await waiting
    told = await rows(console, box)
    assert {name: (row.asked, row.found, row.by) for name, row in told.items()} == {
        "swap": ("none", "136M", "outside the console"),
        "cpuset": ("every CPU", "0", "outside the console"),
    }
    assert drift.adopt(found).action is None
    plan = await console.plan(found, found.spec)
    assert [(change.field, str(change.how)) for change in plan.changes] == [("swap", "live"), ("cpuset", "live")]
    await console.perform(drift.reapply(found).action).result()
    assert await rows(console, box) == {}
    last = int(docker(engine, "info", "--format", "{{.NCPU}}")) - 1
    limits = docker(
        engine, "inspect", "--format", "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.CpusetCpus}}",
        box.id,
    )  # fmt: skip
    assert limits == f"{64 << 20} {64 << 20} 0-{last}"


async def test_every_other_resource_that_docker_update_can_set_is_drift(console, box, engine):
    """A weight is put back. The engine has no value that takes the others back, which is said."""
    assert not MADE.keys() & set(await rows(console, box))
    docker(engine, "update", "--cpu-shares", "512", "--memory-reservation", "32m", "--cpuset-mems", "0", box.id)
    found = await console.inspect(box)
    told = {name: (row.asked, row.found, row.by) for name, row in (await rows(console, box)).items()}
    assert told == {
        "cpu_shares": ("1024", "512", "outside the console"),
        "memory_reservation": ("none", "32M", "outside the console"),
        "cpuset_mems": ("every memory node", "0", "outside the console"),
    }
    assert drift.adopt(found).action is None
    repair = drift.reapply(found)
    assert set(repair.left) == {"memory_reservation", "cpuset_mems"}
    plan = await console.plan(found, found.spec)
    assert [(change.field, str(change.how)) for change in plan.changes] == [("cpu_shares", "live")]
    await console.perform(repair.action).result()
    assert set(await rows(console, box)) == set(repair.left)
    recreated = await console.perform(Update(box, structs.replace(found.spec, env={"A": "1"}))).result()
    try:
        assert await rows(console, recreated.ref) == {}
    finally:
        await console.perform(Remove(recreated.ref, force=True)).result()


def test_what_an_engine_reports_of_weights_and_real_time_is_worded():
    host = {"BlkioWeight": 300, "CpuRealtimeRuntime": 950, "CpuRealtimePeriod": 0, "CpuShares": 1024}
    data = {"Name": "/x", "Config": {}, "HostConfig": host}
    found = engine_drift.found(data, {}, SandboxSpec("x", IMAGE), ())
    told = {name: found[name] for name in MADE if found[name] and name != "network"}
    assert told == {"blkio_weight": "300", "cpu_realtime": "950 of the default us"}


async def test_memory_that_was_lowered_from_outside_leaves_room_to_swap(console, box, engine):
    docker(engine, "update", "--memory", "48m", box.id)
    told = await rows(console, box)
    assert {name: (row.asked, row.found) for name, row in told.items()} == {
        "memory_mib": (64, 48),
        "swap": ("none", "16M"),
    }
    await console.perform(drift.reapply(await console.inspect(box)).action).result()
    assert await rows(console, box) == {}


async def test_swap_without_limit_from_outside(console, box, engine):
    docker(engine, "update", "--memory-swap", "-1", box.id)
    assert (await rows(console, box))["swap"].found == "no limit"
    await console.perform(drift.reapply(await console.inspect(box)).action).result()
    assert await rows(console, box) == {}


async def test_one_that_another_tool_made_has_no_drift(console, engine, unique):
    other = docker(engine, "run", "-d", "--name", unique(), IMAGE, "sleep", "100")
    try:
        docker(engine, "update", "--memory", "64m", "--memory-swap", "64m", other)
        found = await console.inspect(SandboxRef("docker", "default", other))
        assert drifted(found) == ()
        assert await console.drifts.fields(found) == []
    finally:
        docker(engine, "rm", "-f", other)
