"""A value that is pasted into a command before the console has read it: the audit log never has it raw."""

from __future__ import annotations

import json
import sys

import pytest

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Create, Exec
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake import FakeBackend

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
