"""A command whose console is killed: it ends in the sandbox, and its end is on record."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.shells.test_kept import until


def test_it_ends_with_what_it_started(cli: Cli, box: str) -> None:
    process = cli.start("exec", box, "--", "sh", "-c", "echo begun; sleep 4242 & sleep 4243; true")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    until(lambda: b"sleep 4243" in cli.ok("top", box))
    process.kill()
    process.communicate()
    until(lambda: b"sleep 424" not in cli.ok("top", box))
    cli.ok("exec", box, "--", "true")  # the next writer ends the rows of a killed console
    row = next(row for row in cli.json("audit", "ls") if row["action"] == "exec" and row["outcome"] != "ok")
    assert row["outcome"] == "unknown"
    assert not list((cli.home / "state" / "shells").glob("*.json"))
