"""How a secret gets in where its table does not say: as the backend can best."""

from __future__ import annotations

import pytest

from sandbox_console.errors import InvalidSpec, SecretError
from sandbox_console.model.action import (
    Create,
    Fork,
    TakeSnapshot,
)
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.host_action import RestoreSnapshot
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend

ALL = frozenset(Capability)
SOURCES = {
    "BOUND": SecretSource(source="env:SC_BOUND", hosts=("api.acme.org",)),
    "FREE": SecretSource(source="env:SC_FREE"),
    "SAID": SecretSource(source="env:SC_SAID", hosts=("api.acme.org",), inject="env"),
}


class Noting(FakeBackend):
    async def create(self, permit, spec, secrets, progress):
        self.given = {one.name: one.inject for one in secrets}
        return await super().create(permit, spec, secrets, progress)

    async def fork(self, permit, ref, name, secrets):
        self.given = {one.name: one.value for one in secrets}
        return await super().fork(permit, ref, name, secrets)

    async def restore_snapshot(self, permit, snapshot, name, secrets):
        self.given = {one.name: one.value for one in secrets}
        if name == "broken":
            raise RuntimeError(f"no room for {secrets[0].value}")
        return await super().restore_snapshot(permit, snapshot, name, secrets)


@pytest.mark.parametrize(
    ("can", "bound", "unkept"),
    [(ALL, "placeholder", ["SAID"]), (ALL - {Capability.SECRET_PLACEHOLDER}, "env", ["BOUND", "SAID"])],
)
async def test_a_secret_with_hosts_is_a_placeholder_where_there_are_such(home, monkeypatch, can, bound, unkept):
    for name in SOURCES:
        monkeypatch.setenv(f"SC_{name}", f"value-of-{name.lower()}")
    backend = Noting(capabilities=Capabilities(can, {}))
    spec = SandboxSpec("one", image="x", secrets=tuple(SOURCES), egress=("api.acme.org", "evil.example.com"))
    async with open_console(Config(secrets=SOURCES), backends=[backend]) as console:
        await console.perform(Create(spec, "fake", "local")).result()
        notes = console.secrets.notes(spec, "fake", "local")
    assert backend.given == {"BOUND": bound, "FREE": "env", "SAID": "env"}
    assert [note.split()[0] for note in notes] == unkept


async def copies(console, ref):
    await console.perform(TakeSnapshot(ref, "kept", full=True)).result()
    return Fork(ref, "copy"), RestoreSnapshot("fake", "local", "kept", "again")


async def test_a_copy_gets_the_secrets_of_its_spec_and_nobody_sees_them(home, monkeypatch):
    """Neither fork nor restore read them: the copy ran without, and what it printed was not masked."""
    value = "a-value-of-a-variable"
    monkeypatch.setenv("SC_FREE", value)
    backend = Noting(capabilities=Capabilities(ALL, {}))
    async with open_console(Config(secrets=SOURCES), backends=[backend]) as console:
        made = await console.perform(Create(SandboxSpec("one", image="x", secrets=("FREE",)), "fake", "local")).result()
        actions = await copies(console, made.ref)
    for action in actions:  # a console that has read no value yet, so that a pasted one could get into the row
        backend.given = {}
        async with open_console(Config(secrets=SOURCES), backends=[backend]) as console:
            await console.perform(action).result()
            assert backend.given == {"FREE": value}
            assert console._vault.redactor.text(value) != value
    async with open_console(Config(secrets=SOURCES), backends=[backend]) as console:
        with pytest.raises(Exception, match="no room for") as told:
            await console.perform(RestoreSnapshot("fake", "local", "kept", "broken")).result()
        assert value not in str(told.value)
        assert value not in repr(await console.history(AuditQuery()))


async def test_a_copy_without_its_secret_is_not_made(home, monkeypatch):
    monkeypatch.setenv("SC_FREE", "a-value-of-a-variable")
    backend = Noting(capabilities=Capabilities(ALL, {}))
    async with open_console(Config(secrets=SOURCES), backends=[backend]) as console:
        made = await console.perform(Create(SandboxSpec("one", image="x", secrets=("FREE",)), "fake", "local")).result()
        actions = await copies(console, made.ref)
        monkeypatch.delenv("SC_FREE")
        for action in actions:
            with pytest.raises(SecretError, match="SC_FREE is not set"):
                await console.perform(action).result()
    assert len(backend.sandboxes) == 1


async def test_a_copy_is_refused_the_folder_that_no_sandbox_may_have(home, tmp_path_factory):
    """What was a workspace when the snapshot was taken leads to the console's own state by now."""
    ws = tmp_path_factory.mktemp("project") / "ws"
    ws.mkdir()
    backend = Noting(capabilities=Capabilities(ALL, {}))
    async with open_console(backends=[backend]) as console:
        spec = SandboxSpec("one", image="x", workspace=str(ws))
        made = await console.perform(Create(spec, "fake", "local")).result()
        actions = await copies(console, made.ref)
        ws.rmdir()
        ws.symlink_to(console.audit_log.path.parent)
        for action in actions:
            with pytest.raises(InvalidSpec, match="is, contains or is inside"):
                await console.perform(action).result()
