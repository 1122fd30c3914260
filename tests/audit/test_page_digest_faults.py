"""`audit.pages` under attack: closes that are killed at each step, a full disk, and older, damaged or missing files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys

import msgspec
import pytest
from tests.audit.conftest import SMALL, act, flip
from tests.audit.test_full_disk import disk, fill, make_room  # noqa: F401 - a fixture

from sandbox_console.audit import open_segment, page_digest_writer, verify
from sandbox_console.audit.head import HeadFile
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.errors import AuditUnavailable

STRIDE = int(os.environ.get("AUDIT_KILL_STRIDE", "8"))
UNUSED = 96
"""A byte of SQLite's header that no row uses: the version of the library that wrote last."""


async def write(path, rows=3):
    journal = await Journal.open(path, "user:größe", SMALL)
    await act(journal, rows)
    await journal.close()


def killed_at(path, step):
    """Whether a console that adds a row dies before it has run ``step`` lines of its close."""
    done = subprocess.run([sys.executable, "-m", "tests.audit.killed_close", str(path), str(step)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


async def against_kill(path, step):
    """Kill a close at a step; returns whether it was killed, with what verify() says then asserted."""
    killed = killed_at(path, step)
    found = await verify.verify(path)
    assert found.ok, (step, found.problem)
    apart = found.segments - found.compared
    assert apart <= 1
    assert apart == any("that no row uses" in limit for limit in found.limits), (step, found.limits)
    await against_flip(path, found)
    return killed


async def against_flip(path, before):
    """A flip is told if all bytes are said to be compared. One in a write-ahead log costs no row without being told."""
    shutil.copytree(path.parent, path.parent / "flipped")
    copy = Layout(path.parent / "flipped" / path.name)
    newest = copy.segment(copy.newest())
    wal = newest.with_name(newest.name + "-wal")
    written = wal.exists() and wal.stat().st_size > 0
    flip(wal if written else newest, UNUSED)
    found = await verify.verify(copy.first)
    if written:
        assert not found.ok or found.rows == before.rows
    else:
        assert found.ok == (before.compared < before.segments)
    shutil.rmtree(copy.folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_close_that_is_killed_at_any_step_is_no_false_alarm(tmp_path, capsys):
    await write(tmp_path / "whole" / "audit.db", 20)
    step, killed = 0, True
    while killed:
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        killed = await against_kill(copy / "audit.db", step)
        await write(copy / "audit.db")
        found = await verify.verify(copy / "audit.db")
        assert (found.ok, found.compared) == (True, found.segments), (step, found.problem, found.limits)
        assert not list(copy.glob("*.new"))
        shutil.rmtree(copy)
        step += STRIDE
    with capsys.disabled():
        print(f"\n{step} steps of a close, one of {STRIDE} of them killed")  # noqa: T201
    assert step > 80


async def test_a_close_that_is_killed_at_some_steps_is_no_false_alarm(tmp_path):
    await write(tmp_path / "audit.db")
    for step in random.Random(7).sample(range(90), 3):
        assert await against_kill(tmp_path / "audit.db", step)


async def test_a_full_disk_leaves_older_digests_and_says_so(disk, monkeypatch):  # noqa: F811
    path = disk / "audit.db"
    await write(path, 20)
    before = Layout(path).pages.read_bytes()
    for room in (0, open_segment.ROOM):  # with 0, the digests are tried and cannot be written
        monkeypatch.setattr(page_digest_writer, "ROOM", room)
        journal = await Journal.open(path, "full", SMALL)
        await act(journal, 2)
        fill(disk)
        await journal.close()
        found = await verify.verify(path)
        assert found.ok, found.problem
        assert found.compared == found.segments - 1
        assert any("were added by a console that is still open, was killed" in limit for limit in found.limits)
        assert Layout(path).pages.read_bytes() == before
        assert not list(disk.glob("*.new"))
        make_room(disk)
    await write(path)
    found = await verify.verify(path)
    assert (found.ok, found.compared) == (True, found.segments), found.problem


def older(path, kept):
    Layout(path).pages.write_bytes(kept)


def another(path, kept):
    Layout(path).pages.write_bytes((path.parent / "other" / "audit.pages").read_bytes())


def half(path, kept):
    content = Layout(path).pages.read_bytes()
    Layout(path).pages.write_bytes(content[: len(content) // 2])


def longer(path, kept):
    with Layout(path).pages.open("ab") as file:
        file.write(bytes(31) + b"x")


def folder(path, kept):
    Layout(path).pages.unlink()
    Layout(path).pages.mkdir()


NOT_THE_LAST = pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda path, kept: Layout(path).pages.unlink(), "audit.pages is gone or cut short"),
        (older, "audit.pages was set back: it is from row 10, and digests were written after row 16"),
        (half, "audit.pages is gone or cut short"),
        (another, "audit.pages was changed: its signature is not valid"),
        (longer, "audit.pages was changed: its signature is not valid"),
        (folder, "audit.pages cannot be read: Is a directory"),
    ],
    ids=["deleted", "older", "half", "another log's", "longer", "folder"],
)


async def with_other_digests(path, how):
    """A closed log whose `audit.pages` is not the last one, and in which a byte that no row uses was changed."""
    await write(path, 5)
    kept = Layout(path).pages.read_bytes()
    await write(path.parent / "other" / "audit.db", 5)
    await write(path)
    flip(path, UNUSED)
    how(path, kept)


@NOT_THE_LAST
async def test_what_is_said_of_digests_that_are_not_the_last(tmp_path, how, said):
    """No console and no power cut leaves such a file, because the head says that the last one is on disk."""
    path = tmp_path / "audit.db"
    await with_other_digests(path, how)
    found = await verify.verify(path)
    assert found.compared == 0
    assert not found.ok
    assert said in found.problem


@NOT_THE_LAST
async def test_the_next_console_records_that_the_digests_were_not_the_last(tmp_path, how, said):
    """It would write new ones, which describe the changed file."""
    path = tmp_path / "audit.db"
    await with_other_digests(path, how)
    if how is folder:  # nothing can be written in its place
        with pytest.raises(AuditUnavailable, match="pages"):
            await write(path)
        Layout(path).pages.rmdir()
    await write(path)
    found = await verify.verify(path)
    assert not found.ok
    assert "the digests of its pages were gone, changed or set back, and new ones were made" in found.problem


async def test_digests_that_are_removed_while_a_console_is_open_are_recorded(tmp_path):
    path = tmp_path / "audit.db"
    await write(path, 5)
    journal = await Journal.open(path, "open", SMALL)
    await act(journal, 2)
    Layout(path).pages.unlink()
    await journal.close()
    assert "the digests of its pages were gone" in (await verify.verify(path)).problem


async def test_a_head_that_names_no_digests_is_taken_as_it_was(tmp_path):
    """As an older console wrote it: its MAC covers five fields."""
    path = tmp_path / "audit.db"
    await write(path, 5)
    heads = HeadFile(Layout(path).head, Keys(Layout(path).key))
    head, _ = heads.read()
    assert head.digested == 10
    heads.write(msgspec.structs.replace(head, digested=0, mac=""))
    assert b"digested" not in Layout(path).head.read_bytes()
    Layout(path).pages.unlink()
    found = await verify.verify(path)
    assert found.ok, found.problem
    assert any("there are no digests of its pages" in limit for limit in found.limits)
    await write(path)
    found = await verify.verify(path)
    assert (found.ok, found.compared) == (True, 1), found.problem


async def test_an_older_segment_copied_back_is_told_also_with_its_digests(tmp_path):
    path = tmp_path / "audit.db"
    await write(path, 5)
    shutil.copytree(tmp_path, tmp_path / "kept")
    await write(path, 5)
    for names in (["audit.db"], ["audit.db", "audit.pages"], ["audit.db", "audit.pages", "anchors.jsonl"]):
        for name in names:
            shutil.copy2(tmp_path / "kept" / name, tmp_path / name)
        found = await verify.verify(path)
        assert not found.ok
        assert "tail was cut" in found.problem
