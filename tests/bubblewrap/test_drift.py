"""What can change under a sandbox of bubblewrap: limits in the kernel, the rules of its gateway, its folders."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sandbox_console.model import drift
from sandbox_console.model.action import ChangeEgress, Create, Remove, Stop
from sandbox_console.model.drift import DriftState, drifted
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.event import Changed, Listed
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Console, open_console


@pytest.fixture
async def console(backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Console]:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:ann")
    async with open_console(Config(backend="bubblewrap"), backends=[backend]) as opened:
        yield opened
        for one in (await opened.list())[0]:
            await opened.perform(Remove(one.ref, force=True)).result()


async def create(console: Console, **fields: Any) -> SandboxRef:
    spec = SandboxSpec("box", "host", ("sleep", "1000"), **fields)
    made = await console.perform(Create(spec, "bubblewrap", "local")).result()
    assert made.ref is not None
    return made.ref


async def seen(console: Console, field: str) -> Sandbox:
    """The sandbox as an event brought it, once that field has drifted."""
    watching = console.watch()
    try:
        async with asyncio.timeout(60), aclosing(watching.__aiter__()) as events:
            async for event in events:
                told = event.sandboxes if isinstance(event, Listed) else ()  # the list has it if the watch began late
                for one in (event.sandbox,) if isinstance(event, Changed) else told:
                    if field in drifted(one):
                        return one
    finally:
        watching.close()
    raise AssertionError(field)


async def mend(console: Console, ref: SandboxRef, *, adopt: bool = False) -> None:
    found = await console.inspect(ref)
    action = (drift.adopt(found) if adopt else drift.reapply(found)).action
    assert action is not None
    await console.perform(action).result()


async def test_a_limit_that_another_program_wrote_into_the_cgroup(console: Console, backend) -> None:
    if why := backend._limiter.why_not("pids") or ("pids" not in backend._limiter.parents and "no pids cgroup"):
        pytest.skip(why)
    ref = await create(console, pids=40)
    assert drifted(await console.inspect(ref)) == ()
    [folder] = [Path(one) for name, one in backend._store.get(ref.id).raw["cgroups"].items() if name == "pids"]
    waiting = asyncio.create_task(seen(console, "pids"))
    await asyncio.sleep(0.5)
    subprocess.run(["sh", "-c", f"echo 4000 > {folder}/pids.max"], check=True)
    found = await waiting
    assert (found.spec.pids, found.found["pids"]) == (40, 4000)
    [row] = [row for row in await console.drifts.fields(found) if row.state is DriftState.DRIFTED]
    assert (row.field, row.by, row.at) == ("pids", "outside the console", None)
    await mend(console, ref)
    assert (folder / "pids.max").read_text().strip() == "40"
    (folder / "pids.max").write_text("max")
    await mend(console, ref)  # back from no limit at all
    (folder / "pids.max").write_text("50")
    await mend(console, ref, adopt=True)
    after = await console.inspect(ref)
    assert (after.spec.pids, drifted(after)) == (50, ())


async def test_rules_of_egress_that_are_not_in_the_spec_name_who_added_them(console: Console) -> None:
    ref = await create(console, egress=("api.example.com",))
    waiting = asyncio.create_task(seen(console, "egress"))
    await asyncio.sleep(0.5)
    changed = await console.perform(ChangeEgress(ref, (EgressRule("pypi.example.org", source="live"),), ())).result()
    found = await waiting
    assert found.found["egress"] == ("api.example.com", "pypi.example.org")
    [row] = [row for row in await console.drifts.fields(found) if row.state is DriftState.DRIFTED]
    assert (row.field, row.by, row.audit_id) == ("egress", "user:ann", changed.audit_id)
    await mend(console, ref)
    assert drifted(await console.inspect(ref)) == ()
    await console.perform(ChangeEgress(ref, (EgressRule("pypi.example.org"),), ())).result()
    await mend(console, ref, adopt=True)
    after = await console.inspect(ref)
    assert (set(after.spec.egress), drifted(after)) == ({"api.example.com", "pypi.example.org"}, ())


async def test_a_workspace_that_was_replaced_or_removed(console: Console, workspace: Path) -> None:
    ref = await create(console, workspace=str(workspace))
    assert drifted(await console.inspect(ref)) == ()
    workspace.rename(workspace.with_name("moved"))
    [row] = [row for row in await console.drifts.fields(await console.inspect(ref)) if row.state is DriftState.DRIFTED]
    assert (row.field, "No such file" in row.found) == ("workspace", True)
    workspace.mkdir()
    found = await console.inspect(ref)
    assert "another folder" in found.found["workspace"]
    mended = drift.reapply(found)
    assert (mended.action, set(mended.left)) == (None, {"workspace"})


async def test_what_cannot_be_told_is_unknown_with_its_reason(console: Console) -> None:
    ref = await create(console, max_duration_s=600.0, env={"A": "b"}, memory_mib=64, limits="best-effort")
    rows = {row.field: row for row in await console.drifts.fields(await console.inspect(ref))}
    assert (rows["max_duration_s"].state, rows["max_duration_s"].note) == (
        DriftState.UNKNOWN, "its supervisor keeps it, and does not report it",
    )  # fmt: skip
    # Without any cgroup, as for an ordinary user, nothing at all can be read back.
    told = bool((await console.inspect(ref)).found)
    assert rows["env"].state is (DriftState.SAME if told else DriftState.UNKNOWN)
    await console.perform(Stop(ref)).result()
    rows = {row.field: row for row in await console.drifts.fields(await console.inspect(ref))}
    assert rows["memory_mib"].state is DriftState.UNKNOWN
    assert "it does not run" in rows["memory_mib"].note
