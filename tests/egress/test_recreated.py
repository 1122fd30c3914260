"""A sandbox that is recreated keeps what was allowed and denied while the old one ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.errors import Conflict
from sandbox_console.model.action import ChangeEgress, Create, DenyEgress, Remove, Update
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.egress import Effect, EgressRule, EgressState
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Console, open_console
from sandbox_console.testing.fake_backend import FakeBackend

SPEC = SandboxSpec("web", image="python:3.12", command=("sleep", "600"), egress=("a.example.com", "b.example.com"))


async def decided_and_recreated(console: Console, backend: Any, spec: SandboxSpec, place: tuple[str, str]) -> None:
    made = await console.perform(Create(spec, *place)).result()
    until = time.time() + 3600
    added = (EgressRule("c.example.com", source="live"), EgressRule("d.example.com", until=until, source="live"))
    await console.perform(ChangeEgress(made.ref, add=added)).result()
    await console.perform(DenyEgress(made.ref, ("a.example.com",))).result()
    before = {(one.pattern, str(one.effect), one.until) for one in (await backend.egress(made.ref)).rules}
    assert ("a.example.com", str(Effect.DENY), None) in before
    old = await console.inspect(made.ref)
    assert old.spec is not None
    new = structs.replace(old.spec, env={"A": "1"})
    assert str((await console.plan(old, new)).how) == "recreate"
    done = await console.perform(Update(made.ref, new)).result()
    assert done.ref not in (None, made.ref)
    try:
        after = {(one.pattern, str(one.effect), one.until) for one in (await backend.egress(done.ref)).rules}
        assert after == before
        entry = (await console.history(AuditQuery(limit=1)))[0]
        assert entry.attempt.action == "update"
        kept = {one["pattern"] for one in entry.end.body["egress_kept"]}
        assert {"a.example.com", "c.example.com", "d.example.com"} <= kept
    finally:
        await console.perform(Remove(done.ref, force=True)).result()


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))


async def test_in_memory() -> None:
    backend = FakeBackend()
    async with open_console(Config(backend="fake"), backends=[backend]) as console:
        await decided_and_recreated(console, backend, SPEC, ("fake", "local"))


@requires("bubblewrap")
async def test_on_bubblewrap(tmp_path: Path) -> None:
    [backend] = BubblewrapProvider.backends(BackendSettings(tmp_path / "state", {}))
    async with open_console(Config(backend="bubblewrap"), backends=[backend]) as console:
        await decided_and_recreated(console, backend, structs.replace(SPEC, image="host"), ("bubblewrap", "local"))


async def test_a_change_of_its_list_is_made_too() -> None:
    backend = FakeBackend()
    async with open_console(Config(backend="fake"), backends=[backend]) as console:
        made = await console.perform(Create(SPEC, "fake", "local")).result()
        await console.perform(DenyEgress(made.ref, ("a.example.com",))).result()
        new = structs.replace(SPEC, env={"A": "1"}, egress=("a.example.com", "e.example.com"))
        done = await console.perform(Update(made.ref, new)).result()
        rules = {(one.pattern, str(one.effect)) for one in (await backend.egress(done.ref)).rules}
        assert ("a.example.com", "deny") in rules
        assert ("e.example.com", "allow") in rules
        assert "b.example.com" not in {pattern for pattern, _ in rules}


class Unreadable(FakeBackend):
    """A backend whose rules cannot be read after the sandbox was made."""

    async def egress(self, ref: Any) -> Any:
        return EgressState((), "its rules cannot be read")


async def test_without_the_rules_nothing_is_recreated() -> None:
    backend = Unreadable()
    async with open_console(Config(backend="fake"), backends=[backend]) as console:
        made = await console.perform(Create(SPEC, "fake", "local")).result()
        with pytest.raises(Conflict, match="its rules cannot be read"):
            await console.perform(Update(made.ref, structs.replace(SPEC, env={"A": "1"}))).result()
        assert list(backend.sandboxes) == [made.ref.id]
