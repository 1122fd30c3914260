"""The command line on a real microVM: one console is killed, and the next ones find everything again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.support.microimage import IMAGE
from tests.support.microvms import PATIENCE_S, folder, microsandbox_home
from tests.support.require import requires

__all__ = ["folder", "microsandbox_home"]

pytestmark = requires("microsandbox")

TICKS = "i=0; while :; do i=$((i+1)); echo tick-$i; sleep 0.2; done"
# The command line with more patience: emulated on a loaded machine a list may take longer than a backend is given.
PATIENT = """
import sys
from sandbox_console.service import fleet
fleet.ANSWER_S = 100.0
from sandbox_console.__main__ import main
sys.exit(main())
"""
# A console that makes a sandbox, says so, and holds on to it until it is killed.
HOLDER = """
import asyncio, sys
from sandbox_console.model.action import Create
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console

async def main():
    async with open_console(only_backend="microsandbox") as console:
        spec = SandboxSpec("web", image=sys.argv[1], memory_mib=128, labels={"team": "x"}, command=("sh", "-c", sys.argv[2]))
        await console.perform(Create(spec, "microsandbox", "local")).result()
        print("made", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest.fixture
def environment(folder):
    return {**os.environ, "SANDBOX_CONSOLE_HOME": str(folder / "state")}


@pytest.fixture
def tell(environment):
    """Runs the command line; gives exit code, stdout and stderr."""

    def run(*words):
        command = [sys.executable, "-c", PATIENT, *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return done.returncode, done.stdout, done.stderr

    yield run
    run("rm", "web", "--backend", "microsandbox", "--force")


def test_a_console_is_killed_and_the_next_one_finds_everything_again(environment, tell):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, IMAGE, TICKS], env=environment, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"made\n"
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    code, out, err = tell("ls", "--backend", "microsandbox", "--json")
    [row] = [json.loads(line) for line in out.splitlines()]
    assert (code, row["name"], row["status"], row["labels"]) == (0, "web", "running", {"team": "x"}), (out, err)
    code, out, err = tell("exec", "web", "--backend", "microsandbox", "--", "sh", "-c", "echo inside; exit 7")
    assert (code, out) == (7, "inside\n"), err
    code, out, err = tell("logs", "web", "--backend", "microsandbox")
    lines = out.splitlines()
    assert lines[:5] == [f"tick-{number}" for number in range(1, 6)], (out, err)
    assert lines == [f"tick-{number}" for number in range(1, len(lines) + 1)]
    code, out, err = tell("update", "web", "--backend", "microsandbox", "--egress", "example.com", "--dry-run")
    assert (code, "recreate" in out + err) == (0, True), (out, err)
    code, out, err = tell("audit", "verify")
    assert code == 0, (out, err)
    assert tell("rm", "web", "--backend", "microsandbox", "--force")[0] == 0
    assert tell("ls", "--backend", "microsandbox", "--all", "--json")[1] == ""
