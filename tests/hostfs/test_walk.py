"""Where paths lead that a guest has a hand in, and where the operator's own do."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from tests.support.as_user import UID

from sandbox_console.errors import Conflict
from sandbox_console.hostfs import kernel, mounts
from sandbox_console.hostfs.files import NewFile, read_small
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import find, folder_at

ROOT = os.geteuid() == 0


@pytest.fixture(params=["openat2", "stepwise"])
def way(request, monkeypatch):
    if request.param == "stepwise":
        monkeypatch.setattr(kernel, "_has_openat2", lambda: False)


@pytest.fixture
def place(tmp_path):
    """A workspace, and a file and a folder of the operator's beside it."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret").write_text("of the host")
    return tmp_path


@pytest.fixture
def ground(place):
    return GuestFolders.of([str(place / "ws")])


def link(at, to):
    at.symlink_to(to)


def proc_root(place):
    link(place / "ws/x", f"/proc/{os.getpid()}/root{place}/private")


PLANTED = {
    "a link": lambda place: link(place / "ws/x", place / "private"),
    "a relative link": lambda place: link(place / "ws/x", "../private"),
    "a chain": lambda place: (link(place / "ws/y", place / "private"), link(place / "ws/x", "y")),
    "a link that stays inside": lambda place: ((place / "ws/in").mkdir(), link(place / "ws/x", "in")),
    "/proc/PID/root": proc_root,
    "/proc/self/cwd": lambda place: link(place / "ws/x", "/proc/self/cwd"),
    "a link to a link of the operator's": lambda place: (
        link(place / "own", place / "private"), link(place / "ws/x", place / "own")),
    "a loop": lambda place: link(place / "ws/x", "x"),
}  # fmt: skip


@pytest.mark.parametrize("how", PLANTED)
@pytest.mark.parametrize("rest", ["", "/secret", "/../private/secret"])
def test_no_link_is_followed_where_a_guest_writes(place, ground, way, how, rest):
    PLANTED[how](place)
    with pytest.raises(Conflict, match="where a sandbox can write"):
        find(f"{place}/ws/x{rest}", ground)


def test_the_operators_links_are_followed_up_to_it(place, ground, way, monkeypatch):
    link(place / "one", "two")
    link(place / "two", place / "ws")
    (place / "ws/file").write_text("x")
    assert read_small(place / "one/file", ground, 10) == b"x"
    link(place / "ws/out", place / "private")
    for path in ("one/out", "one/out/secret", "two/../ws/out/secret"):
        with pytest.raises(Conflict):
            find(place / path, ground)
    assert read_small(f"{place}/ws/../private/secret", ground, 99) == b"of the host"
    monkeypatch.chdir(place / "ws")
    with pytest.raises(Conflict):
        find("out/secret", ground)
    with pytest.raises(Conflict):
        find("/proc/self/cwd/out/secret", ground)
    assert read_small("/proc/self/cwd/file", ground, 10) == b"x"


def test_another_root_is_not_walked_into(place, ground):
    child = subprocess.Popen(["unshare", "-r", "-m", "sh", "-c", "mount -t tmpfs none /mnt; echo; exec sleep 100"],
                             stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(Conflict, match="another process"):
            find(f"/proc/{child.pid}/root/mnt/x", ground)
    finally:
        child.kill()
        child.wait()


def test_a_shells_pipe_is_read_and_a_guests_fifo_never(place, ground):
    reader, writer = os.pipe()
    os.write(writer, b"spec")
    os.close(writer)
    assert read_small(f"/dev/fd/{reader}", ground, 10) == b"spec"
    os.close(reader)
    os.mkfifo(place / "ws/fifo")
    with pytest.raises(OSError, match="not a file"):
        read_small(place / "ws/fifo", ground, 10)
    with pytest.raises(OSError, match="longer"):
        read_small("/dev/zero", ground, 1024)


def test_a_new_file_is_never_made_through_a_link(place, ground, way):
    link(place / "ws/dangling", place / "private/new")
    with pytest.raises(FileExistsError):
        NewFile(place / "ws/dangling", ground)
    link(place / "ws/out", place / "private")
    with pytest.raises(Conflict):
        NewFile(place / "ws/out/new", ground)
    made = NewFile(place / "ws/log", ground)
    (place / "ws/log").rename(place / "ws/moved")
    (place / "ws/log").write_text("the guest's")
    made.drop()
    assert (place / "ws/log").read_text() == "the guest's"
    assert os.listdir(place / "private") == ["secret"]


@pytest.mark.skipif(not ROOT, reason="mounts need root")
def test_a_mount_in_a_workspace_is_not_entered_and_one_of_it_is_the_guests(place, ground, way):
    (place / "ws/mnt").mkdir()
    (place / "ws/sub").mkdir()
    (place / "view").mkdir()
    link(place / "ws/sub/x", place / "private")
    subprocess.run(["mount", "--bind", place / "private", place / "ws/mnt"], check=True)
    subprocess.run(["mount", "--bind", place / "ws/sub", place / "view"], check=True)
    try:
        with pytest.raises(Conflict, match="a mount"):
            find(place / "ws/mnt/secret", ground)
        again = GuestFolders.of([str(place / "ws")])
        with pytest.raises(Conflict, match="where a sandbox can write"):
            find(place / "view/x/secret", again)
    finally:
        subprocess.run(["umount", place / "ws/mnt", place / "view"], check=True)


@pytest.mark.skipif(not ROOT, reason="mounts need root")
def test_an_overlay_over_a_workspace_is_the_guests(place):
    for name in ("up", "work", "merged"):
        (place / name).mkdir()
    tmpfs = place / "up"
    subprocess.run(["mount", "-t", "tmpfs", "none", tmpfs], check=True)
    try:
        (tmpfs / "u").mkdir()
        (tmpfs / "w").mkdir()
        words = f"lowerdir={place}/ws,upperdir={tmpfs}/u,workdir={tmpfs}/w"
        subprocess.run(["mount", "-t", "overlay", "none", "-o", words, place / "merged"], check=True)
        link(place / "ws/x", place / "private")
        try:
            with pytest.raises(Conflict):
                find(place / "merged/x/secret", GuestFolders.of([str(place / "ws")]))
            known = mounts.read()
            assert mounts.overlap(mounts.spots(str(place / "merged"), known), mounts.spots(str(place / "ws"), known))
        finally:
            subprocess.run(["umount", place / "merged"], check=True)
    finally:
        subprocess.run(["umount", tmpfs], check=True)


@pytest.mark.skipif(not ROOT, reason="another owner needs root")
def test_a_second_name_of_anothers_file_is_not_read(place, ground):
    os.chown(place / "ws", UID, UID)
    ground = GuestFolders.of([str(place / "ws")])
    (place / "ws/mine").write_text("root's")
    os.link(place / "ws/mine", place / "ws/innocent")
    with pytest.raises(Conflict, match="second name"):
        read_small(place / "ws/innocent", ground, 99)
    os.chown(place / "ws/mine", UID, UID)
    assert read_small(place / "ws/innocent", ground, 99) == b"root's"


@pytest.mark.skipif(not ROOT, reason="another owner needs root")
def test_a_strangers_link_in_a_folder_for_all_is_not_followed(place, ground):
    shared = place / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    link(shared / "x", place / "private")
    assert read_small(shared / "x/secret", ground, 99) == b"of the host"
    os.chown(shared / "x", UID, UID, follow_symlinks=False)
    with pytest.raises(PermissionError):
        find(shared / "x/secret", ground)


def test_opened_folders_are_let_go_of(place, ground):
    link(place / "ws/x", place / "private")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("ws", "ws/none", "ws/x", "ws/none/none", "private/secret/x"):
        try:
            find(place / path, ground).folder.close()
        except (Conflict, OSError):
            continue
    folder_at(place / "ws", ground).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_told_of_a_path(place, ground):
    with find(place / "ws", ground) as found:
        assert (found.path, found.is_folder, found.folder.root) == (str(place / "ws"), True, None)
    with folder_at(place / "ws", ground) as folder:
        assert folder.root is not None
        assert stat.S_ISDIR(os.fstat(folder.fd).st_mode)
    with find("/", ground) as top:
        assert (top.name, top.path) == (".", "/")
    assert Path(find(place / "ws/..", ground).path) == place
