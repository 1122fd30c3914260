"""Real deaths on real backends, each told apart from the others."""

from __future__ import annotations

import asyncio
import os
import re
import signal

import pytest
from tests.incident.conftest import Make, until_ended
from tests.support.engine import DockerEngine

from sandbox_console.model import action
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import Consent, Console
from sandbox_console.service.incident.cause import cause

EATS = "tail /dev/zero"

BY_ITSELF = [
    ("finished", "exit 0", {}, r"it finished: exit 0", True),
    ("failed", "echo oh no >&2; exit 3", {}, r"its command failed: exit 3$", True),
    ("missing command", "no-such-program", {}, r"exit 127, command not found", True),
    ("segfault", "sh -c 'kill -SEGV $$'; exit $?", {}, r"crashed: SIGSEGV", True),
    ("abort", "sh -c 'kill -ABRT $$'; exit $?", {}, r"crashed: SIGABRT", True),
    ("memory, of the main process", f"exec {EATS}", {"memory_mib": 32}, r"out of memory", True),
    ("memory, of a child", f"{EATS}; echo it is gone; exit 3", {"memory_mib": 32}, r"out of memory|memory limit", True),
    ("disk full", "dd if=/dev/zero of=/dev/full bs=1M count=1 && exit 0; exit 1", {},
     r"exit 1; probably its disk, .* was full", True),
    ("processes", "i=0; while [ $i -lt 40 ]; do sleep 9 & i=$((i+1)); done; exit 2", {"pids": 16},
     r"exit 2; probably it reached its limit of processes", True),
    ("no name", "echo 'wget: bad address: Could not resolve host: x.example' >&2; exit 4", {},
     r"exit 4; probably it could not resolve a name", True),
    ("137 by itself", "exit 137", {}, r"killed by SIGKILL, unknown by whom", False),
]  # fmt: skip


@pytest.mark.parametrize(("how", "script", "fields", "told", "sure"), BY_ITSELF, ids=[one[0] for one in BY_ITSELF])
async def test_by_itself(console: Console, make: Make, how, script, fields, told, sure) -> None:
    sandbox = await until_ended(console, await make("sh", "-c", f"sleep 0.3; {script}", **fields))
    found = await cause(console, sandbox)
    assert found.verdict is not None
    assert re.search(told, found.verdict.headline), found.verdict
    assert found.verdict.sure is sure, found.verdict
    assert found.verdict.evidence


async def _kill(console: Console, ref: SandboxRef) -> None:
    await console.perform(action.Kill(ref, "SIGKILL"), consent=Consent(yes=True, confirm=ref.id)).result()


async def test_killed_by_us_names_who_and_the_row(console: Console, make: Make, monkeypatch) -> None:
    ref = await make("sleep", "1000")
    await _kill(console, ref)
    found = await cause(console, await until_ended(console, ref))
    assert re.match(r"killed by \S+", found.verdict.headline)
    assert any(re.match(r"audit row \d+: kill by", line) for line in found.verdict.evidence)
    assert [one.attempt.action for one in found.changed] == ["create"]


async def test_killed_from_the_host_is_not_claimed_to_be_known(console: Console, make: Make) -> None:
    ref = await make("sleep", "1000")
    pid = (await console.inspect(ref)).pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    found = await cause(console, await until_ended(console, ref))
    assert "unknown by whom" in found.verdict.headline
    assert not found.verdict.sure
    assert any("dmesg" in line for line in found.missing)


@pytest.mark.parametrize("backend", ["docker"], indirect=True)
@pytest.mark.parametrize(("words", "signal"), [(("kill",), "SIGKILL"), (("stop", "-t", "1"), "SIGKILL|SIGTERM")])
async def test_another_client_of_the_engine_is_told(console, make: Make, docker_engine: DockerEngine, words, signal):
    ref = await make("sleep", "1000")
    await asyncio.to_thread(docker_engine.docker, *words, ref.id)
    found = await cause(console, await until_ended(console, ref))
    assert re.match(rf"sent ({signal}) through its backend by another client", found.verdict.headline), found.verdict
    assert any(line.startswith("event kill") for line in found.verdict.evidence)


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_limits_in_time(console: Console, make: Make) -> None:
    found = await cause(console, await until_ended(console, await make("sleep", "1000", max_duration_s=1.0)))
    assert found.verdict.headline == "it ran longer than its limit of 1 s"


async def test_the_last_words_are_of_stderr_cleaned_and_of_a_running_one_nothing_ended(console, make: Make) -> None:
    ref = await make("sh", "-c", r"echo out; printf 'bad \033]52;c;AAAA\007thing\n' >&2; exit 9")
    runs = await make("sleep", "1000")
    found = await cause(console, await until_ended(console, ref))
    [line] = found.last_words
    assert "bad" in line
    assert "\x1b" not in line
    assert (await cause(console, await console.inspect(runs))).verdict is None


async def test_a_healthy_sibling_shows_what_differs(console: Console, make: Make) -> None:
    script = ("sh", "-c", '[ -n "$GOOD" ] && sleep 1000; exit 5')
    well = await make(*script, name="well", env={"GOOD": "yes"}, pids=64)
    ill = await make(*script, name="ill", pids=32)
    found = await cause(console, await until_ended(console, ill))
    assert found.beside == (await console.inspect(well)).name
    assert set(found.differs) == {("env", "-", "GOOD"), ("pids", "32", "64")}


async def test_a_long_line_does_not_push_the_other_last_words_out(console: Console, make: Make) -> None:
    """It comes in pieces of 64 KiB, each of which was taken for a line."""
    flood = "head -c 2000000 /dev/zero | tr '\\0' '['"
    ref = await make("sh", "-c", f"(echo first word; {flood}; echo; echo last word) >&2; exit 3")
    words = (await cause(console, await until_ended(console, ref))).last_words
    assert (words[0], words[-1]) == ("first word", "last word")
    assert [word[:2] for word in words] == ["fi", "[[", "la"]
