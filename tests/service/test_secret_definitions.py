"""A secret is defined while the console runs: on record, by the policy, for use at once, and never by its value."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from sandbox_console.errors import ConfigError, Denied, InvalidSpec, NeedsConfirmation, NotFound
from sandbox_console.model.action import Create
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets import keyrings
from sandbox_console.service import Config, SecretSource, find_paths, open_console
from sandbox_console.service.effects.secret_definition import SecretDefinition
from sandbox_console.testing.fake_backend import FakeBackend

VALUE = "canary-1f5c9a7d3e"


def asked(name="TOKEN", source="env:SC_DEFINED", value="", **fields):
    return SecretDefinition(name, SecretSource(source=source, **fields), value)


@pytest.fixture
def opened(home):
    home.chmod(0o700)

    @asynccontextmanager
    async def run(text="", **options):
        path = find_paths().config_file
        path.write_text(text)
        path.chmod(0o600)
        async with open_console(backends=[FakeBackend()], **options) as console:
            yield console

    return run


async def rows(console):
    return [(one.attempt.action, one.outcome, one.attempt.body) for one in await console.history(AuditQuery())]


async def test_it_is_written_recorded_and_used_at_once(opened, monkeypatch):
    monkeypatch.setenv("SC_DEFINED", VALUE)
    async with opened("# mine\n") as console:
        assert await console.definitions.checked(asked()) == ""
        assert console.secrets.masked(f"x{VALUE}x") != f"x{VALUE}x", "what was read is masked"
        await console.definitions.define(asked(hosts=("a.example",), inject="file"))
        assert console.secrets.names == ["TOKEN"]
        assert find_paths().config_file.read_text() == (
            '# mine\n\n[secrets.TOKEN]\nfrom = "env:SC_DEFINED"\ninject = "file"\nhosts = ["a.example"]\n'
        )
        await console.perform(Create(SandboxSpec("one", image="x", secrets=("TOKEN",)), "fake", "local")).result()
        [_, (action, outcome, body)] = await rows(console)
        assert (action, outcome) == ("define-secret", "ok")
        assert (body["secret"], body["from"], body["hosts"]) == ("TOKEN", "env:SC_DEFINED", ["a.example"])
        await console.definitions.remove("TOKEN")
        assert console.secrets.names == []
        assert (await rows(console))[0][:2] == ("undefine-secret", "ok")
        with pytest.raises(NotFound) as caught:
            await console.definitions.remove("TOKEN")
        assert caught.value.audit_id
        assert (await console.verify()).ok


async def test_a_value_goes_into_the_keyring_and_nowhere_else(opened, monkeypatch, home):
    kept = {}

    async def store(text, value, timeout_s):
        kept[text] = value

    monkeypatch.setattr(keyrings, "store", store)
    async with opened() as console:
        one = asked(source="keyring:sandbox-console/TOKEN", value=VALUE)
        assert VALUE not in repr(one)
        await console.definitions.define(one)
        assert kept == {"sandbox-console/TOKEN": VALUE}
        assert console.secrets.masked(VALUE) != VALUE
        for source in ("env:X", "cmd:printf x"):
            with pytest.raises(InvalidSpec, match=r"value: a value can only go into the keyring"):
                await console.definitions.define(asked("OTHER", source, VALUE))
        with pytest.raises(InvalidSpec, match=r"value: .*fewer than 8 bytes"):
            await console.definitions.define(asked("OTHER", "keyring:a/b", "short"))
    assert len(kept) == 1
    for path in home.rglob("*"):
        assert not path.is_file() or VALUE.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("policy", "options", "error"),
    [
        ("", {"read_only": True}, Denied),
        ('[policy]\ndeny = ["define-secret"]\n', {}, Denied),
        ('[policy]\nask = ["define-secret"]\n', {}, NeedsConfirmation),
    ],
)
async def test_the_policy_holds_and_a_refusal_is_recorded(opened, policy, options, error):
    async with opened(policy, **options) as console:
        with pytest.raises(error) as caught:
            await console.definitions.define(asked())
        assert caught.value.audit_id
        assert [row[:2] for row in await rows(console)] == [("define-secret", "denied")]
        assert console.secrets.names == []
        assert find_paths().config_file.read_text() == policy
        if error is NeedsConfirmation:
            await console.definitions.define(asked(), agreed=True)
            assert console.secrets.names == ["TOKEN"]


async def test_what_is_wrong_is_told_by_field_and_in_the_row(opened):
    async with opened('[secrets.TOKEN]\nfrom = "env:X"\n') as console:
        wrong = asked("TOKEN", "nowhere", hosts=("https://a",))
        assert set(console.definitions.problems(wrong)) == {"name", "from"}
        with pytest.raises(InvalidSpec):
            await console.definitions.define(wrong)
        assert [row[:2] for row in await rows(console)] == [("define-secret", "failed")]


async def test_a_sandbox_with_a_secret_that_is_not_defined_names_the_command_that_defines_it(opened):
    async with opened() as console:
        unknown, other = SandboxSpec("one", "x", secrets=("GONE",)), SandboxSpec("one", "x", egress=("https://x",))
        with pytest.raises(InvalidSpec) as caught:
            await console.perform(Create(unknown, "fake", "local")).result()
        assert caught.value.hint == "define it: sandbox-console secrets add GONE"
        with pytest.raises(InvalidSpec) as caught:
            await console.perform(Create(other, "fake", "local")).result()
        assert caught.value.hint == ""


async def test_a_console_without_a_file_says_so(home):
    async with open_console(Config(), backends=[FakeBackend()]) as console:
        with pytest.raises(ConfigError, match="has no configuration file"):
            await console.definitions.define(asked())
