"""kill -9 at each step of a replacement: the old sandbox or the new one is there, and the next console settles it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_ends import backend
from tests.support.engine import IMAGE, docker_engine

__all__ = ["backend", "docker_engine"]

KILLS = """
import os, signal, sys
from sandbox_console.audit.journal import Journal
from sandbox_console.service.effects import dispatch

real, at, calls = dispatch.recreate, int(sys.argv.pop(1)), 0

def reach(where):
    global calls
    if calls == at:
        print(where, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    calls += 1

class Killing:
    def __init__(self, backend):
        self.backend = backend

    def __getattr__(self, name):
        found = getattr(self.backend, name)

        async def call(*words, **options):
            reach(f"before {name}")
            result = await found(*words, **options)
            reach(f"after {name}")
            return result

        return call if name in ("create", "stop", "start", "rename", "remove") else found

async def recreate(backend, *rest):
    return await real(Killing(backend), *rest)

async def begin(self, action, *words, **options):
    permit = await attempt(self, action, *words, **options)
    if action == "update":
        reach("after the attempt")
    return permit

attempt, Journal.begin = Journal.begin, begin

async def finish(*words, **options):
    reach("before the outcome")
    return await record(*words, **options)

record, Journal.finish = Journal.finish, finish
dispatch.recreate = recreate
from sandbox_console.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
CALLS = ("create", "stop", "start", "rename", "rename", "remove")
STEPS = [
    "after the attempt",
    *(f"{when} {name}" for name in CALLS for when in ("before", "after")),
    "before the outcome",
]
READY = STEPS.index("before rename")
"""From here on the new one stays."""


@pytest.fixture
def here(cli: Cli, backend: str) -> Iterator[Cli]:
    cli.env["SANDBOX_CONSOLE_SERVER"] = "off"
    yield cli
    for one in cli.json("ls"):
        cli("rm", one["ref"], "--force")


def killed(cli: Cli, at: int, generation: int) -> str:
    """Replace the sandbox, and kill the process at a step. Returns the step."""
    words = ["update", "web", "--env", f"GENERATION={generation}"]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLS, str(at), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "SANDBOX_CONSOLE_HOME": str(cli.home), **cli.env},
    )  # fmt: skip
    out, err = process.communicate(timeout=120)
    assert process.returncode == -9, (out, err)
    return out.decode().split("\n")[0]


def settled(cli: Cli) -> dict[str, Any]:
    """Let the next console settle it. Returns the only sandbox that is left."""
    cli.ok("exec", "web", "--", "true")
    [one] = cli.json("ls")
    assert (one["name"], one["status"]) == ("web", "running")
    [shown] = cli.json("show", "web")
    return {"ref": one["ref"], "generation": int(shown["spec"]["env"]["GENERATION"])}


def note(cli: Cli) -> dict[str, Any]:
    row = next(row for row in cli.json("audit", "ls") if row["action"] == "update")
    assert row["outcome"] == "unknown"
    [shown] = cli.json("audit", "show", str(row["id"]))
    [found] = shown["notes"]
    return found["body"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_at_each_step_leaves_the_old_or_the_new_one(here: Cli, backend: str) -> None:
    image = IMAGE if backend == "docker" else "host"
    here.ok("create", "web", "--image", image, "--backend", backend, "--env", "GENERATION=0", "--", "sleep", "600")
    generation = 0
    for at, step in enumerate(STEPS):
        [before] = here.json("ls")
        assert killed(here, at, generation + 1) == step
        assert here.json("ls"), f"{step}: neither is left"
        found = settled(here)
        told = note(here)
        assert found["generation"] == generation + (at >= READY), step
        undone = "undone" if at else "not begun"
        assert told["replacement"] == ("finished" if at >= READY else undone), step
        assert told["kept"] == found["ref"], step
        assert (found["ref"] == before["ref"]) == (at < READY), step
        assert "error" not in told, told
        generation = found["generation"]
    assert not list((here.home / "state" / "recreations").glob("*.json"))
