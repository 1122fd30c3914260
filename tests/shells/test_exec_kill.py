"""A command whose console is killed: it ends in the sandbox, and its end is on record, whichever face began it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.cli.conftest import Cli
from tests.shells.test_kept import until

COMMAND = ("sh", "-c", "echo begun; sleep 4242 & sleep 4243; true")
PYTHON = """
import asyncio
from sandbox_console import open_console
async def main():
    async with open_console() as console:
        await (await console.sandbox("box")).exec({command!r})
asyncio.run(main())
"""
SYNC = """
from sandbox_console import sync
with sync.open_console() as console:
    console.sandbox("box").exec({command!r})
"""
FACES = {
    "cli": ("-m", "sandbox_console", "exec", "box", "--", *COMMAND),
    "python": ("-c", PYTHON.format(command=COMMAND)),
    "sync": ("-c", SYNC.format(command=COMMAND)),
}


@pytest.mark.parametrize("face", FACES)
def test_it_ends_with_what_it_started(cli: Cli, box: str, face: str) -> None:
    env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(cli.home), **cli.env}
    process = subprocess.Popen([sys.executable, *FACES[face]], env=env, stdout=subprocess.DEVNULL)
    until(lambda: b"sleep 4243" in cli.ok("top", box))
    process.kill()
    process.wait()
    until(lambda: b"sleep 424" not in cli.ok("top", box))
    cli.ok("exec", box, "--", "true")  # the next writer ends the rows of a killed console
    row = next(row for row in cli.json("audit", "ls") if row["action"] == "exec" and row["outcome"] != "ok")
    assert row["outcome"] == "unknown"
    assert not list((cli.home / "state" / "shells").glob("*.json"))
