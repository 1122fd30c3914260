"""Recordings that somebody has put there or changed: each is told by itself, and hides or leads to nothing else."""

from __future__ import annotations

import os

import pytest
from tests.cli.conftest import Cli, cli

from sandbox_console.recording.cast import plain
from sandbox_console.service.reads.recordings import _make_room

__all__ = ["cli"]
GOOD = (
    '{"version":2,"width":80,"height":24,"timestamp":1700000000,"title":"ok","audit_id":1}\n[0.1,"o","needle\\r\\n"]\n'
)


@pytest.fixture
def folder(cli: Cli):
    made = cli.home / "state" / "recordings"
    made.mkdir(mode=0o700, parents=True)
    (made / "20260101T000000Z-1.cast").write_text(GOOD)
    return made


@pytest.mark.parametrize(
    "field",
    [
        '"timestamp":1e300', '"timestamp":NaN', '"timestamp":Infinity', '"timestamp":-1e18', '"timestamp":-1',
        '"timestamp":[1]', '"audit_id":1e300', '"audit_id":-1', '"audit_id":{"a":1}', '"title":' + "[" * 9000 + "]" * 9000,
    ],
)  # fmt: skip
def test_one_odd_header_hides_no_other_recording(cli: Cli, folder, field: str) -> None:
    (folder / "odd.cast").write_text('{"version":2,' + field + "}\n")
    done = cli("recordings", "ls")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"20260101T000000Z-1" in done.stdout
    assert b"unreadable: " in done.stdout
    assert {one["id"]: bool(one["problem"]) for one in cli.json("recordings", "ls")} == {
        "odd": True, "20260101T000000Z-1": False,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["cast", "text"])
def test_a_link_hands_on_no_other_file(cli: Cli, folder, form: str, tmp_path) -> None:
    private = tmp_path / "private"
    private.write_text(GOOD)
    (folder / "link.cast").symlink_to(private)
    done = cli("recordings", "export", "link", "--format", form)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"no recording is called" in done.stderr


def test_what_is_no_recording_neither_counts_nor_is_in_the_way(folder, tmp_path) -> None:
    large = tmp_path / "large"
    large.write_bytes(b"")
    os.truncate(large, 1 << 30)
    (folder / "large.cast").symlink_to(large)
    (folder / "nowhere.cast").symlink_to(tmp_path / "nothing")
    _make_room(folder, 1 << 20)
    assert (folder / "20260101T000000Z-1.cast").exists()


def test_backspaces_are_read_in_one_pass() -> None:
    """Pass by pass this would take ten minutes."""
    assert plain("a" * 200_000 + "\b" * 199_999 + "b") == "ab"
    assert plain("\b\bxy\bz") == "xz"
