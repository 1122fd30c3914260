"""A backend that is registered, but whose module is not there: the others work, and it is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

REASON = "backend 'hollow' cannot be loaded: No module named 'hollow_backend'"


@pytest.fixture
def here(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    info = tmp_path / "site" / "hollow-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hollow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sandbox_console.backends]\nhollow = hollow_backend:Hollow\n")
    cli.env["PYTHONPATH"] = str(info.parent)
    config = cli.home / "config.toml"
    before = config.read_text()
    config.write_text(before + "[backends.hollow]\nenabled = true\n")
    yield cli
    config.write_text(before)  # this process, which removes what is left, does not know it


def ran(cli: Cli, *words: str) -> tuple[int, str, str]:
    """It runs as a process: the entry points of this one are known already."""
    process = cli.start(*words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), err.decode()


def test_only_it_fails_and_a_warning_names_it(here: Cli) -> None:
    code, out, err = ran(here, "ls")
    assert (code, err) == (0, f"warning: hollow: unreachable: {REASON} (hint: pip install hollow[hollow])\n"), out
    for words in (("audit", "ls"), ("secrets", "ls"), ("create", "box", "--image", "host", "--no-start")):
        code, out, err = ran(here, *words)
        assert code == 0, (words, out, err)
    code, out, err = ran(here, "rm", "box", "nope")
    assert (code, out) == (3, "box\n"), "a name that it cannot have had is not found, not unknown"


def test_it_is_told_by_backends_and_doctor_and_refused_by_name(here: Cli) -> None:
    _, out, _ = ran(here, "backends", "--json")
    rows = {row["backend"]: row for row in map(json.loads, out.splitlines())}
    assert (rows["hollow"]["state"], rows["hollow"]["reason"]) == ("unreachable", REASON)
    assert rows["bubblewrap"]["state"] != "unreachable"
    _, out, err = ran(here, "doctor")
    assert REASON in out, (out, err)
    code, out, err = ran(here, "ls", "--backend", "hollow")
    assert (code, REASON in err) == (2, True), (out, err)
    code, out, err = ran(here, "create", "box", "--backend", "hollow", "--image", "x")
    assert (code, REASON in err) == (2, True), (out, err)
