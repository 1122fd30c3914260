"""Each source read for real: variables, files, programs, and a keyring in the process that reads it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.support.file_keyring import file_keyring

from sandbox_console.errors import SecretError
from sandbox_console.secrets import keyrings
from sandbox_console.secrets.sources import SecretSource, definition_problem, problem, resolve, unreached

VALUE = "s3cret-value-of-the-test"


async def read(source: str, **fields) -> str:
    [found] = await resolve(["T"], {"T": SecretSource(source=source, **fields)})
    assert VALUE not in repr(found)
    return found.value


async def refused(source: str, match: str, **fields) -> SecretError:
    with pytest.raises(SecretError, match=match) as caught:
        await read(source, **fields)
    assert VALUE not in f"{caught.value} {caught.value.hint}"
    return caught.value


def python(code: str) -> str:
    import json

    return "cmd:" + json.dumps([sys.executable, "-c", code])


async def test_a_variable(monkeypatch):
    monkeypatch.setenv("SC_T", VALUE)
    assert await read("env:SC_T") == VALUE
    monkeypatch.delenv("SC_T")
    await refused("env:SC_T", "'T': the variable SC_T is not set")


async def test_a_file_of_any_place(tmp_path, monkeypatch):
    (tmp_path / "t").write_text(f"{VALUE}\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (tmp_path / "t", "~/t", "$CREDENTIALS_DIRECTORY/t", "${CREDENTIALS_DIRECTORY}/t"):
        assert await read(f"file:{path}") == VALUE
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    await refused("file:$CREDENTIALS_DIRECTORY/t", "CREDENTIALS_DIRECTORY is not set; systemd sets it")


async def test_what_is_no_file_is_refused_and_waits_for_nobody(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("fifo", "not a file"), ("none", "No such file"), (".", "not a file|Is a directory")):
        async with asyncio.timeout(15):
            await refused(f"file:{tmp_path / name}", why)
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    await refused(f"file:{tmp_path / 'big'}", "more than 65536 bytes")
    (tmp_path / "raw").write_bytes(b"\xff" * 20)
    await refused(f"file:{tmp_path / 'raw'}", "not UTF-8 text")


@pytest.mark.parametrize("value", ["", "1234567", "äöü"])
async def test_fewer_than_eight_bytes_are_refused_with_the_reason(monkeypatch, value):
    monkeypatch.setenv("SC_T", value)
    error = await refused("env:SC_T", "fewer than 8 bytes, too few to be hidden in output")
    assert "longer value" in error.hint


async def test_eight_bytes_are_enough(monkeypatch):
    monkeypatch.setenv("SC_T", "12345678")
    assert await read("env:SC_T") == "12345678"


# Programs


@pytest.mark.parametrize("source", [f'cmd:["printf", "%s", "{VALUE}"]', f"cmd:printf '%s' {VALUE}"])
async def test_a_program_without_a_shell(source):
    assert await read(source) == VALUE
    assert await read("cmd:echo $HOME; echo 12345678") == "$HOME; echo 12345678"


async def test_a_program_that_fails_shows_why_and_never_the_value():
    code = f"import sys; print('{VALUE}'); print('not signed in: {VALUE}', file=sys.stderr); sys.exit(3)"
    error = await refused(python(code), "exit code 3: not signed in: ")
    assert "[secret]" in str(error)
    await refused(python(f"import sys; sys.exit('bad token {VALUE}XYZ0123456789')"), r"bad token \[hidden\]")
    await refused(python("pass"), "printed nothing")
    await refused("cmd:no-such-program-here x", "is not installed")
    await refused("cmd:/etc/passwd", "cannot be run: Permission denied")


async def test_a_program_that_prints_too_much_is_refused_and_not_held_in_memory():
    await refused(python("print('x' * 100_000)"), "prints more than 65536 bytes")


async def test_a_program_past_its_time_is_killed_with_what_it_started(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"
    await refused(f'cmd:["sh", "-c", "{script}"]', "did not end within 2 s", timeout_s=2.0)
    for pid in pids.read_text().split():
        await gone(int(pid))


async def test_a_cancelled_action_kills_the_program_too(tmp_path):
    pids = tmp_path / "pids"
    script = f"echo $$ > {pids}.new; mv {pids}.new {pids}; exec sleep 300"
    task = asyncio.create_task(read(f'cmd:["sh", "-c", "{script}"]'))
    async with asyncio.timeout(30):
        while not pids.exists():
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(int(pids.read_text()))


async def gone(pid: int) -> None:
    async with asyncio.timeout(30):
        while Path(f"/proc/{pid}").exists() and ") Z " not in Path(f"/proc/{pid}/stat").read_text():
            await asyncio.sleep(0.02)


async def test_a_program_has_no_terminal_and_no_input():
    code = "import os, sys; print(sys.stdin.read() == '' and os.getsid(0) == os.getpid(), 'padding')"
    assert await read(python(code)) == "True padding"


async def test_the_loop_goes_on_while_a_program_runs():
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await read(python("import time; time.sleep(0.5); print('12345678')"))
    ticking.cancel()
    assert ticks > 5


# The keyring


@pytest.fixture
def keyring(tmp_path, monkeypatch):
    return file_keyring(tmp_path, monkeypatch, broken=VALUE)


async def test_a_keyring_gives_what_it_keeps(keyring):
    keyring.write_text(f'{{"acme.org/api me": "{VALUE}"}}')
    assert await read("keyring:acme.org/api/me") == VALUE
    error = await refused("keyring:acme.org/you", "no entry for acme.org/you")
    assert error.hint == "keyring set acme.org you"
    await refused("keyring:locked/me", "is locked")
    await refused("keyring:broken/me", "the keyring failed: RuntimeError")


async def test_a_keyring_stores_a_value_that_no_argument_or_error_has(keyring):
    keyring.write_text("{}")
    for value in (VALUE, "another-" + VALUE * 1000):
        await keyrings.store("acme.org/me", value, 30)
        [found] = await resolve(["T"], {"T": SecretSource(source="keyring:acme.org/me")})
        assert found.value == value
    for where, why in (("forgets/me", "no entry"), ("broken/me", "the keyring failed: RuntimeError$")):
        with pytest.raises(SecretError, match=why) as caught:
            await keyrings.store(where, VALUE, 30)
        assert VALUE not in f"{caught.value} {caught.value.hint}"


async def test_without_a_keyring_it_says_what_else_there_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    error = await refused("keyring:acme/me", "there is no keyring here")
    for other in ("$CREDENTIALS_DIRECTORY", "file:", "env:", "cmd:"):
        assert other in error.hint


# What is written in the config


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (VALUE, "is not a source"),
        (f"{VALUE}:x", "this source is not supported"),
        ("vault:x", "source kind 'vault' is not supported"),
        ("env:", "is not a source"),
        ("keyring:alone", "needs SERVICE/USER"),
        ('cmd:["unended', "cannot be read"),
        ("cmd:[]", "cannot be read"),
        ("cmd:'", "cannot be read"),
        ('cmd:["a\\u0000b"]', "NUL"),
    ],
)
def test_what_is_wrong_is_told_and_a_pasted_value_is_not(source, why):
    told = problem(SecretSource(source=source))
    assert why in told
    assert VALUE not in told


def test_hosts_and_times_are_held_to_their_form():
    assert "has a scheme" in problem(SecretSource(source="env:X", hosts=("https://acme.org/",)))
    assert "above 0" in problem(SecretSource(source="env:X", timeout_s=0))
    assert not problem(SecretSource(source="env:X", hosts=("*.acme.org", "10.0.0.0/8:5432")))


def test_a_commands_arguments_are_not_shown():
    assert SecretSource(source=f'cmd:["/usr/bin/op", "read", "{VALUE}"]').shown == "cmd:op"
    assert SecretSource(source="cmd:'").shown == "cmd:?"


@pytest.mark.parametrize(
    ("name", "source", "field", "why"),
    [
        ("", "env:X", "name", "use letters"),
        ("1A", "env:X", "name", "use letters"),
        ("A-B", "env:X", "name", "use letters"),
        ("A\n", "env:X", "name", "use letters"),
        ("A" * 129, "env:X", "name", "use letters"),
        ("ghp_" + "a1" * 20, "env:X", "name", "it looks like a GitHub token"),
        ("T", "env:two words", "from", "not a variable's name"),
        ("T", "env:" + VALUE, "from", "not a variable's name"),
        ("T", "env:ghp_" + "a1" * 20, "from", "it looks like a GitHub token"),
        ("T", "cmd:printf AKIA" + "A1" * 8, "from", "it looks like an AWS access key"),
        ("T", "keyring:alone", "from", "needs SERVICE/USER"),
        ("T", "value:x", "from", "is not supported"),
        ("T", "", "from", "is not a source"),
    ],
)
def test_a_new_definition_is_held_to_more_and_repeats_no_value(name, source, field, why):
    found = definition_problem(name, SecretSource(source=source))
    assert why in found[field]
    assert not any(len(text) > 20 and text in " ".join(found.values()) for text in (name, source))
    assert definition_problem("T", SecretSource(source="env:X", hosts=("https://a/",)))["hosts"].startswith(
        "'https://a/' has"
    )
    assert definition_problem("T", SecretSource(source="env:X", hosts=("a.example",))) == {}


def test_hosts_that_egress_does_not_lead_to_are_told():
    source = SecretSource(source="env:X", hosts=("a.example", "*.b.example"))
    assert unreached("T", source, ["a.example", "*.b.example", "c"]) == ""
    assert "meant for *.b.example, which egress does not allow" in unreached("T", source, ["*.example:80", "a.example"])
    assert "meant for a.example, *.b.example" in unreached("T", source, [])
    assert unreached("T", SecretSource(source="env:X"), []) == ""
