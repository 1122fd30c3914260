"""How a secret gets in where its table does not say: as the backend can best."""

from __future__ import annotations

import pytest

from sandbox_console.model.action import Create
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake import FakeBackend

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
