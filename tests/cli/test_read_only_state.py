"""A state folder on a disk that became read-only: what is there is shown, and nothing is changed without a record."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.support.require import requires

pytestmark = requires("bubblewrap")


@pytest.fixture
def read_only(cli: Cli, box: str) -> Iterator[Path]:
    """The state, read-only while the test runs."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    state = cli.home / "state"
    subprocess.run(["mount", "--bind", str(state), str(state)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(state)], check=True)
    yield state
    subprocess.run(["umount", "-l", str(state)], check=True)


def test_it_is_looked_at(cli: Cli, read_only: Path) -> None:
    [row] = cli.json("ls")
    assert (row["name"], row["status"]) == ("box", "running")
    assert cli.ok("logs", "box") == b"ready\n"
    for words in (("show", "box"), ("audit", "ls"), ("backends",), ("audit", "verify")):
        assert cli(*words).returncode == 0, words


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("stop", "box"), 6),
        (("kill", "box"), 6),
        (("pause", "box"), 6),
        (("rm", "--force", "box"), 6),
        (("create", "other", "--image", "host", "--no-start"), 6),
        (("update", "box", "--label", "a=b"), 6),
        (("exec", "box", "--json", "--", "true"), 125),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_a_change_is_refused_with_6_and_not_done(cli: Cli, read_only: Path, words: tuple[str, ...], code: int) -> None:
    done = cli(*words, *(() if "--json" in words else ("--json",)))
    assert (done.returncode, json.loads(done.stderr.splitlines()[-1])["code"]) == (code, "audit_unavailable"), done
    [row] = cli.json("ls", "--all")
    assert (row["name"], row["status"], row["labels"]) == ("box", "running", {})
