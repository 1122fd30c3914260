"""``secrets add`` and ``secrets rm``, for scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

VALUE = b"canary-7be21f09aa41"


@pytest.fixture
def here(cli: Cli) -> Cli:
    cli.env["SC_DEFINED"] = VALUE.decode()
    return cli


def test_one_is_added_used_and_removed(here: Cli) -> None:
    assert (
        here.ok("secrets", "add", "SC_DEFINED", "--host", "a.example") == b"SC_DEFINED is defined as env:SC_DEFINED\n"
    )
    [one] = here.json("secrets", "check")
    assert (one["name"], one["ok"], one["hosts"]) == ("SC_DEFINED", True, ["a.example"])
    [row] = here.json("audit", "ls")
    assert (row["action"], row["outcome"]) == ("define-secret", "ok")
    again = here("secrets", "add", "SC_DEFINED")
    assert (again.returncode, b"is defined already" in again.stderr) == (2, True)
    done = here("secrets", "rm", "SC_DEFINED", "NOWHERE")
    assert (done.returncode, done.stdout) == (3, b"SC_DEFINED is no longer defined\n")
    assert here.json("secrets", "ls") == []


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        (("--value",), b"", b"and there is none"),
        (("--value",), b"\xff" * 9, b"not UTF-8"),
        (("--value",), b"x" * 70_000, b"more than 65536 bytes"),
        (("--value",), b"short", b"fewer than 8 bytes"),
        (("--value", "--from", "env:X"), VALUE, b"can only go into the keyring"),
        (("--inject", "socket"), b"", b"--inject 'socket' is not known"),
        (("--from", "env:ghp_" + "a1" * 20), b"", b"looks like a GitHub token"),
        (("--host", "https://a.example/"), b"", b"has a scheme"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(
    here: Cli, words: tuple[str, ...], stdin: bytes, why: bytes
) -> None:
    before = (here.home / "config.toml").read_bytes()
    done = here("secrets", "add", "TOKEN", *words, stdin=stdin)
    assert (done.returncode, why in done.stderr) == (2, True), done
    assert VALUE not in done.stderr + done.stdout
    assert (here.home / "config.toml").read_bytes() == before


def test_a_name_is_checked_alone_and_a_path_needs_leaks(here: Cli, tmp_path: Path) -> None:
    there = tmp_path / "notes.txt"
    there.write_bytes(b"it is " + VALUE)
    here.ok("secrets", "add", "SC_DEFINED")
    here.ok("secrets", "add", "SC_MISSING")
    [one] = here.json("secrets", "check", "SC_DEFINED")
    assert (one["name"], one["ok"]) == ("SC_DEFINED", True)
    assert here("secrets", "check").returncode == 1, "of all, one cannot be read"
    path = here("secrets", "check", str(there))
    assert (path.returncode, f"secrets check --leaks {there}".encode() in path.stderr) == (2, True)
    gone = here("secrets", "check", "SC_NOWHERE")
    assert (gone.returncode, gone.stdout) == (3, b""), gone
    assert b"no secret is called 'SC_NOWHERE'" in gone.stderr
    leaks = here("secrets", "check", "--leaks", str(there))
    assert (leaks.returncode, str(there).encode() in leaks.stdout) == (1, True), leaks
