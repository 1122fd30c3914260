"""Eleven ways of swapping what the console opens, 1,000 rounds each: nothing of the host is read, changed or made.

Archives are raced for 250 rounds here; test_races.py has 1,000 for them, among the slow tests.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.hostfs.test_races import SECRET, pack, place, swapping, tar, unpack, untouched
from tests.support import as_user
from tests.support.as_user import UID
from tests.support.require import missing

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs.files import NewFile, make_folder, opened, read_small, remove_tree, written
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import folder_at

__all__ = ["place"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROUNDS = 1000
ROOT = os.geteuid() == 0
THEIRS = b"the guest's"


def read_a_file(place, ground, at):
    return read_small(place / "ws/job", ground, 100)


def read_below_a_folder(place, ground, at):
    return read_small(place / "ws/job/secret", ground, 100)


def read_by_dots(place, ground, at):
    return read_small(place / "ws/job/../secret", ground, 100)


def read_as_a_stream(place, ground, at):
    with opened(place / "ws/job/secret", ground) as file:
        return file.read()


def list_a_folder(place, ground, at):
    with folder_at(place / "ws/job", ground) as folder:
        return b" ".join(map(os.fsencode, folder.names()))


def write_a_new_file(place, ground, at):
    made = NewFile(place / f"ws/job/log{at}", ground)
    made.file.write(b"x")
    (made.keep if at % 2 else made.drop)()
    return THEIRS


def write_over_a_file(place, ground, at):
    with written(place / "ws/job/secret", ground) as file:
        file.write(THEIRS)
    return THEIRS


def make_folders(place, ground, at):
    make_folder(place / f"ws/job/new{at}/deep", ground)
    return THEIRS


def remove_a_tree(place, ground, at):
    """Whichever of the two has the name: the link, or the guest's folder. Both are there again for the next round."""
    with folder_at(place / "ws", ground) as folder:
        remove_tree(folder, "job", ground)
    with contextlib.suppress(FileExistsError):
        if (place / "ws/other").is_symlink():
            (place / "ws/fresh/deep").mkdir(parents=True)
            (place / "ws/fresh/secret").write_bytes(THEIRS)
            (place / "ws/fresh").rename(place / "ws/job")
        elif not os.path.lexists(place / "ws/job"):
            (place / "ws/job").symlink_to(place / "private")
    return THEIRS


WAYS = {
    "a file for a link": (read_a_file, "file"), "a folder for a link": (read_below_a_folder, "folder"),
    "dots after a folder": (read_by_dots, "dots"), "a stream": (read_as_a_stream, "folder"),
    "a list": (list_a_folder, "folder"), "a new file": (write_a_new_file, "folder"),
    "a file to empty": (write_over_a_file, "folder"), "new folders": (make_folders, "folder"),
    "a tree to remove": (remove_a_tree, "folder"),
}  # fmt: skip


def laid_out(place, how):
    """What is swapped. ``secret`` is the guest's own, and has the name of one of the host's."""
    (place / "ws/job/secret").write_bytes(THEIRS)
    (place / "ws/secret").write_bytes(THEIRS)
    (place / "ws/other").symlink_to(
        {"file": place / "private/secret", "dots": place / "private/job"}.get(how, place / "private")
    )
    if how == "file":
        (place / "ws/job/secret").rename(place / "ws/file")
        (place / "ws/job").rmdir()
        (place / "ws/file").rename(place / "ws/job")


@pytest.mark.parametrize("way", WAYS)
def test_no_round_of_a_thousand_leads_out(place, way, capsys):
    act, how = WAYS[way]
    laid_out(place, how)
    ground, ends = GuestFolders.of([str(place / "ws")]), Counter()
    with swapping(place / "ws/job", place / "ws/other", place / "ws", place / "private"):
        for at in range(ROUNDS):
            try:
                found = act(place, ground, at)
            except (ConsoleError, OSError) as error:
                ends[type(error).__name__] += 1
                continue
            ends["escaped" if SECRET in found or found == b"job secret" else "own"] += 1
    untouched(place)
    with capsys.disabled():
        sys.stdout.write(f"\n{way}: {dict(ends)}\n")
    assert ends["escaped"] == 0
    assert sum(ends.values()) == ROUNDS
    assert len(ends) > 1 or act is remove_a_tree, "the guest never swapped it in time: nothing was raced for"


@pytest.mark.skipif(not ROOT, reason="a mount, and another owner, need root")
@pytest.mark.parametrize("way", ["a second name", "a mount"])
def test_neither_does_a_second_name_nor_a_mount(place, way):
    ground_of = place / "ws"
    os.chown(ground_of, UID, UID)
    ground, ends = GuestFolders.of([str(ground_of)]), Counter()
    for name in ("job/secret", "own"):
        (place / "ws" / name).write_bytes(THEIRS)
        os.chown(place / "ws" / name, UID, UID)
    (place / "ws/mnt").mkdir()
    if way == "a mount":
        subprocess.run(["mount", "--bind", place / "private", place / "ws/mnt"], check=True)
        (place / "ws/other").symlink_to("mnt")
        swapped, path = "job", "ws/job/secret"
    else:
        os.link(place / "private/secret", place / "ws/other")
        swapped, path = "own", "ws/own"
    try:
        with swapping(place / "ws" / swapped, place / "ws/other", place / "ws", place / "private"):
            for _ in range(ROUNDS):
                for name in (path, "ws/mnt/secret"):
                    try:
                        ends["escaped" if SECRET in read_small(place / name, ground, 100) else "own"] += 1
                    except (ConsoleError, OSError):
                        ends["refused"] += 1
    finally:
        if way == "a mount":
            subprocess.run(["umount", place / "ws/mnt"], check=True)
    untouched(place)
    assert ends["escaped"] == 0
    assert ends["own"] > 0


@pytest.mark.parametrize("way", ["in", "out"])
async def test_nor_do_archives(place, way):
    laid_out(place, "folder")
    ground = GuestFolders.of([str(place / "ws")], place / "parts")
    data = tar("top/", "top/job/", "top/job/secret", "top/secret")
    with swapping(place / "ws/job", place / "ws/other", place / "ws", place / "private"):
        for _ in range(ROUNDS // 4):
            if way == "in":
                assert SECRET not in await pack(place / "ws/job", ground)
            else:
                await unpack(data, place / "ws", ground)
    untouched(place)


@pytest.mark.skipif(not ROOT or bool(missing("user")), reason="needs root, to become another user")
def test_as_an_ordinary_user() -> None:
    done = as_user.run("tests/hostfs/test_thousand_rounds.py", "-k", "not ordinary_user", timeout_s=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
