"""A value that is pasted into a command before the console has read it: the audit log never has it raw."""

from __future__ import annotations

import json
import sys
from contextlib import suppress

import pytest

from sandbox_console.errors import ConsoleError, Denied, NotFound
from sandbox_console.model.action import (
    ChangeEgress,
    Create,
    EndShell,
    Exec,
    Forward,
    Kill,
    OpenShell,
    Quarantine,
    Release,
    Update,
)
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, open_console
from sandbox_console.service.alerts.alerts import AlertBook
from sandbox_console.service.gate.gate import Consent
from sandbox_console.testing.fake_backend import FakeBackend

VALUE = "hunter2-Tr0ub4dor"


def printing(text: str) -> SecretSource:
    return SecretSource(source="cmd:" + json.dumps([sys.executable, "-c", text]))


async def made(home, source: SecretSource) -> tuple[FakeBackend, str]:
    """A sandbox with the secret, made by a console that has ended."""
    backend = FakeBackend()
    async with open_console(Config(secrets={"TOKEN": source}), backends=[backend]) as console:
        done = await console.perform(
            Create(SandboxSpec("one", image="x", secrets=("TOKEN",)), "fake", "local")
        ).result()
    return backend, done.ref


def files_of(home) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file())


async def test_the_row_has_a_hash_and_its_end_the_rest_masked(home):
    source = printing(f"print('{VALUE}')")
    backend, ref = await made(home, source)
    async with open_console(Config(secrets={"TOKEN": source}), backends=[backend]) as console:
        await console.perform(Exec(ref, (VALUE, "-x", f"--token={VALUE}"))).result()
        [entry] = await console.history(AuditQuery(action="exec"))
    first, short, last = entry.attempt.body["argv"]
    assert (first[:5], short, last[:5]) == ("hmac:", "-x", "hmac:")
    assert first != last
    assert entry.end.body["argv"] == ["[secret]", "-x", "--token=[secret]"]
    assert VALUE.encode() not in files_of(home)


async def test_a_value_that_cannot_be_read_stays_a_hash(home):
    backend, ref = await made(home, printing(f"print('{VALUE}')"))
    broken = {"TOKEN": printing("raise SystemExit(1)")}
    strict = Rules(enter_without_secrets=False)
    async with open_console(Config(secrets=broken, policy=strict), backends=[backend]) as console:
        with pytest.raises(ConsoleError):
            await console.perform(Exec(ref, (VALUE,))).result()
        [entry] = await console.history(AuditQuery(action="exec"))
    assert entry.attempt.body["argv"][0].startswith("hmac:")
    assert VALUE.encode() not in files_of(home)


async def test_once_read_arguments_are_told_masked_in_the_row_itself(home):
    source = printing(f"print('{VALUE}')")
    backend, ref = await made(home, source)
    async with open_console(Config(secrets={"TOKEN": source}), backends=[backend]) as console:
        for _ in range(2):
            await console.perform(Exec(ref, ("echo", "a long argument", VALUE))).result()
        second, *_ = await console.history(AuditQuery(action="exec"))
    assert second.attempt.body["argv"] == ["echo", "a long argument", "[secret]"]


async def rows(console, action: str):
    return await console.history(AuditQuery(action=action))


UNUSED = {"OTHER": printing("raise SystemExit('never run')")}


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ("sh", "-c", VALUE)},
        {"labels": {"why": VALUE}},
        {"labels": {VALUE: "why"}},
        {"env": {"PASTED": VALUE}},
        {"workdir": f"/{VALUE}"},
        {"user": VALUE},
    ],
)
async def test_no_part_of_a_spec_is_raw(home, fields):
    """In a spec that does not even use the secret, at create and at update."""
    backend = FakeBackend()
    async with open_console(Config(secrets=UNUSED), backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x", **fields), "fake", "local")).result()
        await console.perform(Update(done.ref, SandboxSpec("one", image="x", cpus=1))).result()
        assert len(await rows(console, "create")) == len(await rows(console, "update")) == 1
    assert VALUE.encode() not in files_of(home)


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": (VALUE,)},
        {"argv": ("sh", "-c", f"echo {VALUE} | cat")},
        {"argv": ("true",), "env": {"PASTED": VALUE}},
        {"argv": ("true",), "env": {VALUE: "1"}},
        {"argv": ("true",), "workdir": VALUE},
        {"argv": ("true",), "user": VALUE},
    ],
)
async def test_no_part_of_a_command_is_raw_though_the_sandbox_does_not_use_the_secret(home, fields):
    backend = FakeBackend()
    async with open_console(Config(secrets=UNUSED), backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        with suppress(ConsoleError):
            await console.perform(Exec(done.ref, **fields)).result()
        with suppress(ConsoleError):
            await console.perform(OpenShell(done.ref, shell=VALUE)).result()
        assert len(await rows(console, "exec")) == 1
    assert VALUE.encode() not in files_of(home)


async def test_an_error_that_names_the_word_has_its_hash_in_the_row(home):
    backend = FakeBackend()

    async def fails(*_):
        raise NotFound(f"{VALUE!r}: not found in the sandbox, nor is /bin/{VALUE}")

    async with open_console(Config(secrets=UNUSED), backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        backend.exec = fails
        with pytest.raises(NotFound, match=VALUE):
            await console.perform(Exec(done.ref, (VALUE,))).result()
        [entry] = await rows(console, "exec")
    [word] = entry.attempt.body["argv"]
    assert entry.end.body["error"] == f"{word!r}: not found in the sandbox, nor is /bin/{word}"
    assert VALUE.encode() not in files_of(home)


async def test_an_error_that_names_a_word_with_bytes_that_are_no_text_has_its_hash(home):
    """An engine's errors are text, with a replacement for each such byte: the word was not recognised in them."""
    backend = FakeBackend()

    async def fails(*_):
        raise NotFound(f"{VALUE}\ufffd: not found")

    async with open_console(Config(secrets=UNUSED), backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        backend.exec = fails
        with pytest.raises(NotFound, match=VALUE):
            await console.perform(Exec(done.ref, (f"{VALUE}\udcff", "\ud800"))).result()
        [entry] = await rows(console, "exec")
    assert entry.end.body["error"] == f"{entry.attempt.body['argv'][0]}: not found"
    assert VALUE.encode() not in files_of(home)


async def test_a_refusal_that_names_the_word_has_its_hash_too(home):
    backend = FakeBackend()
    rules = Rules(deny=("exec",))
    async with open_console(Config(secrets=UNUSED, policy=rules), backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        with pytest.raises(ConsoleError):
            await console.perform(Exec(done.ref, (VALUE,))).result()
    assert VALUE.encode() not in files_of(home)


@pytest.mark.parametrize(("least", "raw"), [(4, 0), (8, 1), (18, 2)])
async def test_the_policy_says_from_which_length(home, least, raw):
    backend = FakeBackend()
    config = Config(secrets=UNUSED, policy=Rules(hash_words_from=least))
    async with open_console(config, backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        await console.perform(Exec(done.ref, ("seven77", VALUE))).result()
        [entry] = await rows(console, "exec")
    assert len(VALUE) == 17
    assert sum(not word.startswith("hmac:") for word in entry.attempt.body["argv"]) == raw


async def test_by_default_a_log_stays_readable_and_no_token_gets_in(home):
    backend = FakeBackend()
    words = ("python3.12", "manage.py", "migrate", "--no-input-at-all", VALUE, f"--token={VALUE}", "sixteen-byte-key")
    async with open_console(Config(secrets=UNUSED), backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        await console.perform(Exec(done.ref, words)).result()
        [entry] = await rows(console, "exec")
    argv = entry.attempt.body["argv"]
    assert argv[:4] == list(words[:4])
    assert all(word.startswith("hmac:") for word in argv[4:])
    assert VALUE.encode() not in files_of(home)


async def test_the_policy_may_look_at_the_sandboxs_own_alone(home):
    backend = FakeBackend()
    config = Config(secrets=UNUSED, policy=Rules(hash_words_for="own"))
    async with open_console(config, backends=[backend]) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        await console.perform(Exec(done.ref, ("a longer word", VALUE))).result()
        [entry] = await rows(console, "exec")
    assert entry.attempt.body["argv"] == ["a longer word", VALUE]


async def test_a_variable_that_the_sandbox_does_not_use_is_known_all_the_same(home, monkeypatch):
    monkeypatch.setenv("OF_OURS", VALUE)
    backend = FakeBackend()
    async with open_console(
        Config(secrets={"OURS": SecretSource(source="env:OF_OURS")}), backends=[backend]
    ) as console:
        done = await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()
        await console.perform(Exec(done.ref, ("a longer word", VALUE))).result()
        [entry] = await rows(console, "exec")
    assert entry.attempt.body["argv"] == ["a longer word", "[secret]"]


async def test_with_one_known_and_one_not_the_rest_stays_a_hash(home):
    source = printing("print('another-value')")
    backend, ref = await made(home, source)
    async with open_console(Config(secrets={"TOKEN": source, **UNUSED}), backends=[backend]) as console:
        await console.perform(Exec(ref, (VALUE, "another-value"))).result()
        [entry] = await rows(console, "exec")
    assert "argv" not in entry.end.body
    assert VALUE.encode() not in files_of(home)
    assert b"another-value" not in files_of(home)


async def one(console):
    return (await console.perform(Create(SandboxSpec("one", image="x"), "fake", "local")).result()).ref


@pytest.mark.parametrize(
    "fields",
    [
        {"runtime": VALUE},
        {"secrets": (VALUE,)},
        {"ports": (VALUE,)},
        {"workspace": VALUE},
        {"ports": (f"127.0.0.1:{VALUE}:80",)},
    ],
)
async def test_a_value_in_a_field_of_another_form_is_a_hash_in_the_row_and_its_error(home, fields):
    async with open_console(Config(secrets=UNUSED), backends=[FakeBackend()]) as console:
        with suppress(ConsoleError):
            await console.perform(Create(SandboxSpec("one", image="x", **fields), "fake", "local")).result()
        [entry] = await rows(console, "create")
    assert "hmac:" in str(entry.attempt.body["spec"])
    assert VALUE.encode() not in files_of(home)


async def test_fields_of_a_usual_form_stay_readable(home):
    fields = {"runtime": "io.containerd.runsc.v1", "ports": ("127.0.0.1:18080:80", "[::1]:18081:81")}
    async with open_console(
        Config(secrets={**UNUSED, "A_LONGER_NAME": UNUSED["OTHER"]}), backends=[FakeBackend()]
    ) as console:
        spec = SandboxSpec("one", image="x", secrets=("A_LONGER_NAME",), **fields)
        with suppress(ConsoleError):
            await console.perform(Create(spec, "fake", "local")).result()
        [entry] = await rows(console, "create")
    told = entry.attempt.body["spec"]
    assert {name: tuple(told[name]) if name != "runtime" else told[name] for name in fields} == fields
    assert told["secrets"] == ["A_LONGER_NAME"]


@pytest.mark.parametrize(
    "act",
    [lambda ref: Kill(ref, VALUE), lambda ref: EndShell(ref, VALUE), lambda ref: Forward(ref, 80, VALUE)],
)
async def test_an_argument_of_another_form_is_a_hash_too(home, act):
    async with open_console(Config(secrets=UNUSED), backends=[FakeBackend()]) as console:
        ref = await one(console)
        with suppress(ConsoleError):
            await console.perform(act(ref), consent=Consent(yes=True)).result()
        with suppress(ConsoleError):
            await console.shell(OpenShell(ref, attach=VALUE))
    assert VALUE.encode() not in files_of(home)


REASON = f"on 2026-11-30 at 06:45, exfiltration to 203.0.113.77 (see Grafana): {VALUE}, token={VALUE}."


@pytest.mark.parametrize("known", [True, False])
async def test_a_reason_has_no_value_in_rows_refusals_silences_or_the_state(home, monkeypatch, known):
    monkeypatch.setenv("OF_OURS", VALUE)
    secrets = {"OURS": SecretSource(source="env:OF_OURS")} if known else UNUSED
    async with open_console(Config(secrets=secrets), backends=[FakeBackend()]) as console:
        ref = await one(console)
        yes = Consent(yes=True, confirm="one")
        await console.perform(Quarantine(ref, REASON), consent=yes).result()
        with pytest.raises(Denied, match=r"exfiltration to 203\.0\.113\.77"):
            await console.perform(Exec(ref, ("true",))).result()
        [entry] = await rows(console, "quarantine")
        await console.perform(Release(ref), consent=yes).result()
        await AlertBook(console).silence("rule", "one", 60, REASON)
    written = files_of(home)
    assert VALUE.encode() not in written
    start, colon, end = entry.attempt.body["reason"].partition("): ")
    assert (start + colon, VALUE in end) == (REASON.partition(VALUE)[0], False)
    assert ("[secret]" in end, "hmac:" in end) == (known, not known)


async def test_a_host_with_a_known_value_is_masked_however_it_is_written(home, monkeypatch):
    """Hosts are in lower case. A spec's were masked only as they were typed."""
    monkeypatch.setenv("OF_OURS", VALUE)
    secrets = {"OURS": SecretSource(source="env:OF_OURS")}
    async with open_console(Config(secrets=secrets), backends=[FakeBackend()]) as console:
        egress = (f"{VALUE.lower()}.example.com", f"{VALUE}.{VALUE.lower()}.example.com")
        done = await console.perform(Create(SandboxSpec("one", image="x", egress=egress), "fake", "local")).result()
        await console.perform(ChangeEgress(done.ref, tuple(map(EgressRule, egress)))).result()
    assert VALUE.lower().encode() not in files_of(home / "state/audit").lower()
