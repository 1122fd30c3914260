"""A secret's value that stands in a sandbox as plain text: no face gets it, and it is still there afterwards."""

from __future__ import annotations

import sys
import time

import msgspec
import pytest
from msgspec import structs
from tests.service.conftest import REF

from sandbox_console.errors import InvalidSpec
from sandbox_console.model.action import Create, Exec, Update
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.drift import DriftState, adopt, reapply
from sandbox_console.model.event import Changed, Listed
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, How, open_console
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.incident.cause import cause
from sandbox_console.service.incident.timeline import timeline
from sandbox_console.service.reads.masking import Masking
from sandbox_console.testing.fake_backend import FakeBackend

VALUE, OTHER = "hunter2-Tr0ub4dor", 'p"w-with-quotes-\N{LATIN SMALL LETTER E WITH ACUTE}'
SPEC = SandboxSpec(
    "box", image="x", command=("serve", f"--token={VALUE}", "-v"), env={"TOKEN": VALUE, "OTHER": OTHER, "MODE": "fast"},
    labels={"note": f"key {VALUE}", "team": "a"}, egress=(f"{VALUE.lower()}.example.com", "pypi.org"),
)  # fmt: skip
BOX = Sandbox(
    REF, "box", Status.RUNNING, "x", labels=SPEC.labels, spec=SPEC, found={"name": "box", "env": dict(SPEC.env)},
    effective=(Fact("command", " ".join(SPEC.command)),), detail=f"exec {VALUE} failed",
)  # fmt: skip
FOREIGN = Sandbox(
    SandboxRef("fake", "local", "box-id-2"), "theirs", Status.RUNNING, "x", labels={"t": VALUE}, managed=False
)


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setenv("SC_TOKEN", VALUE)
    monkeypatch.setenv("SC_OTHER", OTHER)
    return Config(secrets={"T": SecretSource(source="env:SC_TOKEN"), "O": SecretSource(source="env:SC_OTHER")})


@pytest.fixture
def fake():
    logs = {REF.id: [LogRecord(1, Stream.STDERR, f"error: bad token {VALUE}\n".encode())]}
    return FakeBackend([BOX, FOREIGN], logs=logs)


@pytest.fixture
async def console(home, config, fake):
    async with open_console(config, backends=[fake]) as console:
        yield console


def clean_of(*told: object) -> bool:
    text = repr([msgspec.to_builtins(one) for one in told])
    return "hunter2" not in text and "with-quotes" not in text


async def test_no_read_gives_it(console):
    listed, _ = await console.list()
    parts = [part async for part in console.list_as_answered()]
    [found, other] = await console.find_all(["box", "theirs"])
    box = await console.inspect(REF)
    assert clean_of(listed, parts, found, other, box)
    assert box.spec.env == {"TOKEN": "[secret]", "OTHER": "[secret]", "MODE": "fast"}
    assert box.spec.command == ("serve", "--token=[secret]", "-v")
    assert box.labels["note"] == "key [secret]"
    assert box.spec.egress == ("[secret].example.com", "pypi.org")
    drift = await console.drifts.fields(box)
    assert all(row.state is DriftState.SAME for row in drift)
    raw = await console.inside.raw(REF)
    processes = await console.inside.processes(REF)
    why = await cause(console, box)
    assert why.sandbox.name == "box"
    assert clean_of(drift, raw, processes, why.as_dict(), await timeline(console, [box]))
    lines = [item async for batch in console.logs(REF, LogQuery()) for item in batch]
    assert clean_of(lines)


async def test_no_event_gives_it(console):
    watching = console.watch()
    told = []
    async for event in watching:
        told.append(event)
        if isinstance(event, Listed):
            break
    watching.close()
    assert clean_of(told)
    assert all(clean_of(one) for one in console.hub.sandboxes.values())


async def test_a_value_that_is_known_only_later_is_shown_again_masked(home, config, fake):
    late = "known-only-afterwards"
    labelled = structs.replace(BOX, labels={"late": late})
    async with open_console(config, backends=[FakeBackend([labelled])]) as console:
        watching = console.watch()
        async for event in watching:
            if isinstance(event, Listed):
                assert event.sandboxes[0].labels == {"late": late}
                break
        console._vault.mask([late])
        [event] = await watching.batch()
        assert event == Changed(console.hub.sandboxes[REF])
        assert event.sandbox.labels == {"late": "[secret]"}


async def test_an_update_by_what_was_shown_keeps_the_values(console, fake):
    shown = await console.inspect(REF)
    wanted = structs.replace(
        shown.spec, command=("serve", "-q", "--token=[secret]"), env={**shown.spec.env, "MODE": "slow"}, cpus=2.0
    )
    plan = await console.plan(shown, wanted)
    assert {change.field for change in plan.changes} == {"command", "env", "cpus"}
    assert clean_of(plan)
    ref = (await console.perform(Update(REF, wanted)).result()).ref
    true = fake.sandboxes[ref.id].spec
    assert true.env == {"TOKEN": VALUE, "OTHER": OTHER, "MODE": "slow"}
    assert true.command == ("serve", "-q", f"--token={VALUE}")
    assert true.labels == SPEC.labels
    assert true.egress == SPEC.egress
    assert clean_of(await console.history(AuditQuery()))


async def test_nothing_differs_from_a_file_that_has_the_values(console):
    plan = await console.plan(await console.inspect(REF), SPEC)
    assert plan.changes == ()
    plan = await console.plan(await console.inspect(REF), structs.replace(SPEC, env={**SPEC.env, "TOKEN": OTHER}))
    assert plan.how is How.RECREATE
    [change] = plan.changes
    assert clean_of(change)
    plan = await console.plan(await console.inspect(REF), structs.replace(SPEC, egress=()))
    assert clean_of(plan)
    assert change.before != change.after


@pytest.mark.parametrize("repair", [adopt, reapply])
async def test_drift_between_two_secrets_shows_and_is_ended_with_the_values(home, config, repair):
    now = {**SPEC.env, "TOKEN": OTHER}
    backend = FakeBackend([structs.replace(BOX, found={"env": now})])
    async with open_console(config, backends=[backend]) as console:
        shown = await console.inspect(REF)
        assert [row.field for row in await console.drifts.fields(shown) if row.state is DriftState.DRIFTED] == ["env"]
        action = repair(shown).action
        restored = console.masking.restored(action.spec, backend.sandboxes[REF.id], adopts=action.drift == "adopt")
        assert restored.env == (now if repair is adopt else SPEC.env)


@pytest.mark.parametrize("action", [
    Create(SandboxSpec("new", image="x", env={"TOKEN": "[secret]"}), "fake", "local"),
    Update(REF, structs.replace(SPEC, env={"TOKEN": "[secret]-more"})),
])  # fmt: skip
async def test_a_mask_that_stands_for_nothing_known_is_refused(console, action):
    with pytest.raises(InvalidSpec, match="masked"):
        await console.perform(action).result()


async def test_a_command_line_and_a_spec_are_shown_masked(console):
    await console.masking.ready()
    shown = console.masking.action(Create(SPEC, "fake", "local")), console.masking.action(Exec(REF, ("x", VALUE)))
    assert clean_of(*shown)


async def test_a_value_that_changes_is_masked_too(console, monkeypatch):
    await console.inspect(REF)
    monkeypatch.setenv("SC_TOKEN", "a-rotated-value")
    console._vault._plain_at -= 60
    assert (await console.inspect(REF)).labels["note"] == "key [secret]"
    assert console.secrets.masked("a-rotated-value") == "[secret]"


async def test_a_thousand_sandboxes_cost_little(home, config, capsys):
    vault = Vault(config.secrets)
    await vault.learn_plain()
    masking = Masking(vault)
    plain = structs.replace(
        BOX, spec=SandboxSpec("box", image="x", command=("serve", "-v"), env={"MODE": "fast"}), labels={"team": "a"},
        found={}, effective=(), detail="",
    )  # fmt: skip
    many = [structs.replace(plain, ref=SandboxRef("fake", "local", f"id-{n}"), name=f"box-{n}") for n in range(1000)]
    began = time.perf_counter()
    shown = masking.sandboxes(many)
    took = time.perf_counter() - began
    began = time.perf_counter()
    masking.sandboxes([structs.replace(BOX, ref=one.ref) for one in many])
    worst = time.perf_counter() - began
    with capsys.disabled():
        sys.stdout.write(f"\n1,000 sandboxes: {took * 1e3:.1f} ms; with values in all: {worst * 1e3:.0f} ms\n")
    assert all(one is other for one, other in zip(shown, many, strict=True))


async def test_a_word_may_be_a_secret_until_every_program_was_asked(home):
    words = (VALUE, f"/srv/{VALUE}", "longer-than-12", "short", "/workspace/of/agents")
    sources = {"T": SecretSource(source=f"cmd:echo {VALUE}")}
    async with open_console(Config(secrets=sources), backends=[FakeBackend([BOX])]) as console:
        secrets = console.secrets
        assert [secrets.may_be_one(word, 12) for word in words] == [True, False, True, False, False]
        assert not (await secrets.checked(secrets.defined[0])).problem
        assert [secrets.may_be_one(word, 12) for word in words] == [True, True, False, False, False]
