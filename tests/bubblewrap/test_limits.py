from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import structs
from tests.bubblewrap.conftest import Make, until

from sandbox_console.backends.bubblewrap.stats import _written
from sandbox_console.errors import ConfigError, Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogGap, LogRecord

_EAT = "import time; x = []\nfor _ in range(200): x.append(b'x' * (1 << 20))\nprint('ate it all'); time.sleep(100)"


async def test_memory_and_cpu_hold_where_a_cgroup_can_and_are_refused_where_not(make: Make, backend) -> None:
    able = backend.capabilities()
    for capability, field, value in (
        (Capability.LIMIT_MEMORY, "memory_mib", 64),
        (Capability.LIMIT_CPU, "cpus", 0.5),
        (Capability.LIMIT_PIDS, "pids", 50),
    ):
        if able.has(capability):
            facts = {fact.field: fact for fact in (await (await make(**{field: value}, name=field)).show()).effective}
            assert facts[field].enforced
        else:
            assert "cgroup" in able.reason(capability)
            with pytest.raises(Unsupported, match=str(capability)):
                await make(**{field: value})
            box = await make(**{field: value}, limits="best-effort", name=f"best-{field.replace('_', '-')}")
            facts = {fact.field: fact for fact in (await box.show()).effective}
            assert not facts[field].enforced
            assert facts[field].note.startswith("needs a writable ")


async def test_a_command_that_takes_too_much_memory_is_known_to_be_killed_for_it(make: Make, backend) -> None:
    if not backend.capabilities().has(Capability.LIMIT_MEMORY):
        pytest.skip(backend.capabilities().reason(Capability.LIMIT_MEMORY))
    box = await make("python3", "-c", _EAT, memory_mib=64)
    await until(lambda: box.raw["status"] == "exited")
    end = (await box.show()).exit
    assert (end.code, end.signal, end.oom) == (137, 9, True)
    assert b"ate" not in await box.text()
    fine = await make("sh", "-c", "kill -9 $$", name="fine", memory_mib=64)
    await until(lambda: fine.raw["status"] == "exited")
    assert (await fine.show()).exit.oom is False


async def test_best_effort_memory_holds_each_process(make: Make, backend) -> None:
    if backend.capabilities().has(Capability.LIMIT_MEMORY):
        pytest.skip("here the limit is enforced for the whole")
    box = await make("python3", "-c", _EAT, memory_mib=64, limits="best-effort")
    await until(lambda: box.raw["status"] == "exited")
    assert b"MemoryError" in await box.text()


async def test_limits_and_labels_change_while_it_runs(make: Make, backend, permit) -> None:
    box = await make(labels={"a": "1"})
    spec = (await box.show()).spec
    await backend.update(await permit("update"), box.ref, structs.replace(spec, labels={"b": "2"}))
    assert (await box.show()).labels == {"b": "2"}
    if backend.capabilities().has(Capability.UPDATE_MEMORY):
        grown = structs.replace(spec, memory_mib=128, cpus=0.5, pids=70)
        await backend.update(await permit("update"), box.ref, grown)
        folder = box.raw["cgroups"]
        assert open(f"{folder['memory']}/memory.limit_in_bytes").read().strip() == str(128 << 20)
        assert open(f"{folder['pids']}/pids.max").read().strip() == "70"
        await backend.update(await permit("update"), box.ref, structs.replace(spec, memory_mib=64))
        await backend.update(await permit("update"), box.ref, structs.replace(spec, memory_mib=256))


async def test_stats_tell_a_busy_sandbox_from_an_idle_one(make: Make, backend) -> None:
    busy = await make("sh", "-c", "while :; do :; done", name="busy")
    idle = await make(name="idle")
    seen = {}
    for box in (busy, idle):
        samples = []
        async for sample in backend.stats(box.ref, 0.3):
            samples.append(sample)
            shown = box is idle or (sample.cpu_percent or 0) > 5  # beside ten others on two processors it gets little
            if len(samples) >= 3 and (shown or len(samples) == 100):
                break
        seen[box] = samples[-1]
    assert seen[busy].cpu_percent > 5 > seen[idle].cpu_percent
    assert seen[idle].pids == 1
    assert 0 < seen[idle].memory_bytes < 50 << 20
    await idle.stop()
    assert [sample async for sample in backend.stats(idle.ref, 0.1)] == []


async def test_what_limits_its_files_and_its_log_is_told(make: Make, workspace: Path) -> None:
    facts = {fact.field: fact for fact in (await (await make(workspace=str(workspace))).show()).effective}
    assert "any size and number of files" in facts["workspace"].note
    assert facts["log_rate"].value == "16 MiB/s"
    assert facts["tmpfs /tmp"].value == "512 MiB"
    assert "any number of files" in facts["tmpfs /tmp"].note


async def test_stats_tell_a_flood_of_the_log_also_over_its_files(make: Make, backend) -> None:
    loud = await make("sh", "-c", "while :; do seq 1000; done", name="loud")
    quiet = await make(name="quiet")
    seen = {}
    for box in (loud, quiet):
        samples = []
        async with aclosing(backend.stats(box.ref, 0.3)) as found:
            async for sample in found:
                samples.append(sample.log_rate)
                if len(samples) == 3:
                    break
        seen[box] = samples
    assert seen[loud][0] is None
    assert all(rate > 10_000 for rate in seen[loud][1:])
    assert seen[quiet][1:] == [0, 0]
    assert _written({3: 100, 4: 50}, {4: 900, 5: 900, 6: 10}) == 850 + 900 + 10


def test_options_are_strict() -> None:
    from sandbox_console.backends.bubblewrap.options import Options

    with pytest.raises(ConfigError) as caught:
        Options.from_table({"log_mb": 3})
    assert "log_mib" in caught.value.hint
    with pytest.raises(ConfigError, match="whole number"):
        Options.from_table({"pids": "many"})
    with pytest.raises(ConfigError):
        Options.from_table({"pids": 0})


@pytest.mark.parametrize("options", [{"log_rate_mib": 1}])
async def test_a_flood_is_cut_to_the_rate_with_a_gap(make: Make, backend) -> None:
    assert backend.capabilities().has(Capability.LIMIT_LOG_RATE)
    box = await make("sh", "-c", "yes $(printf %04000d 0) | head -c 30000000; echo; sleep 1; echo after")
    await until(lambda: box.raw["status"] == "exited")
    items = await box.logs()
    assert sum(len(item.data) for item in items if isinstance(item, LogRecord)) < 30_000_000
    assert any("a flood" in item.reason and item.lines for item in items if isinstance(item, LogGap))
    assert (await box.logs(tail=1))[-1].data == b"after\n"


@pytest.mark.parametrize("options", [{"log_rate_mib": 1}])
async def test_a_flood_that_silence_follows_is_told_while_the_sandbox_runs(make: Make) -> None:
    box = await make("sh", "-c", "yes | head -c 5000000; sleep 1000")

    async def told() -> int:
        items = await box.logs()
        return sum(item.lines or 0 if isinstance(item, LogGap) else item.data.count(b"\n") for item in items)

    async with asyncio.timeout(30):
        while await told() < 2_500_000:
            await asyncio.sleep(0.2)
    assert box.raw["status"] == "running"
    assert await told() == 2_500_000
