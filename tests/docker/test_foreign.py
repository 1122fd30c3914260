"""A container that another tool made: shown as theirs, changed only by its id, and only as far as an engine can live."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import NeedsConfirmation, Unsupported
from sandbox_console.model.action import Kill, Remove, Stop, Update
from sandbox_console.service import Config, Consent, How, open_console, spec_of

pytestmark = requires("docker")


@pytest.fixture
async def console(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    async with open_console(Config(), backends=[DockerBackend("default")]) as made:
        yield made


@pytest.fixture
async def theirs(engine, console, unique):
    """A running container of the docker CLI, with 64 MiB of memory and as much swap beside them."""
    name = unique()
    limits = ("--memory", "64m", "--memory-swap", "128m")
    engine.docker("run", "-d", "--network", "none", *limits, "--name", name, IMAGE, "sleep", "1000")
    yield await console.inspect((await console.find(name)).ref)
    engine.docker("rm", "-f", engine.docker("ps", "-aq", "--filter", f"ancestor={IMAGE}", "--filter", f"name={name}"))


async def updated(console, sandbox, **fields):
    now = await console.inspect(sandbox.ref)
    wanted = Update(sandbox.ref, structs.replace(spec_of(now), **fields))
    return await console.perform(wanted, consent=Consent(yes=True, confirm=sandbox.ref.id)).result()


async def test_its_limits_and_name_change_while_it_lives(console, engine, theirs):
    assert (theirs.managed, theirs.spec, spec_of(theirs).memory_mib) == (False, None, 64)
    began = engine.inspect(theirs.ref.id)
    before, started = began["HostConfig"], began["State"]["StartedAt"]
    await updated(console, theirs, pids=33)
    after = engine.inspect(theirs.ref.id)["HostConfig"]
    assert after == before | {"PidsLimit": 33}, "what was not asked for stays, its swap too"
    await updated(console, theirs, name=f"{theirs.name}-more", memory_mib=96, cpus=0.5)
    changed = engine.inspect(theirs.ref.id)
    host = changed["HostConfig"]
    assert (changed["Name"], host["Memory"], host["NanoCpus"]) == (f"/{theirs.name}-more", 96 << 20, 5 * 10**8)
    assert started == changed["State"]["StartedAt"]
    assert changed["State"]["Running"]


async def test_nothing_of_it_changes_without_its_id(console, engine, theirs):
    state = engine.inspect(theirs.ref.id)["State"]
    actions = [
        Update(theirs.ref, structs.replace(spec_of(theirs), memory_mib=96)),
        Stop(theirs.ref),
        Kill(theirs.ref),
        Remove(theirs.ref, force=True),
    ]
    for action in actions:
        for consent in (Consent(yes=True), Consent(yes=True, confirm=theirs.name)):
            with pytest.raises(NeedsConfirmation):
                await console.perform(action, consent=consent).result()
    assert engine.inspect(theirs.ref.id)["State"] == state
    assert engine.inspect(theirs.ref.id)["HostConfig"]["Memory"] == 64 << 20


async def test_it_is_never_replaced(console, engine, theirs):
    for field, value in (("image", "alpine"), ("env", {"A": "1"}), ("workdir", "/tmp"), ("memory_mib", None)):
        wanted = structs.replace(spec_of(theirs), **{field: value})
        plan = await console.plan(theirs, wanted)
        assert [(change.field, change.how) for change in plan.changes] == [(field, How.UNSUPPORTED)]
        with pytest.raises(Unsupported, match=f"{field} cannot be changed: .*another tool"):
            await updated(console, theirs, **{field: value})
    assert engine.inspect(theirs.ref.id)["State"]["Running"]
