"""A hostile tar writes nothing outside its target, and a half one leaves nothing."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from sandbox_console.errors import BackendError, ConsoleError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.tar_unpack import Unpacker
from sandbox_console.hostfs.walk import find


def member(name, kind=tarfile.REGTYPE, target="", data=b"", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, target, len(data), mode
    return info, data


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


NOBODYS = GuestFolders()
TOP = member("top", tarfile.DIRTYPE, mode=0o755)


async def unpack(data, target, step=1000, ground=NOBODYS, origin=""):
    skipped = []
    unpacker = Unpacker(lambda _: find(target, ground), skipped.append, ground, origin)
    try:
        for at in range(0, len(data), step):
            await unpacker.give(data[at : at + step])
        await unpacker.finish()
    finally:
        await unpacker.abandon()
    return skipped


def everything(folder):
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


async def test_a_folder_comes_whole(tmp_path):
    data = tar_of(
        TOP, member("top/a", data=b"a" * 5000, mode=0o6777), member("top/sub", tarfile.DIRTYPE, mode=0o1777),
        member("top/sub/l", tarfile.SYMTYPE, "../a"), member("top/h", tarfile.LNKTYPE, "top/a"),
    )  # fmt: skip
    assert await unpack(data, tmp_path / "new") == []
    assert everything(tmp_path) == ["new", "new/a", "new/h", "new/sub", "new/sub/l"]
    assert (tmp_path / "new/a").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "new/sub").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "new/h").stat().st_ino == (tmp_path / "new/a").stat().st_ino
    assert (tmp_path / "new/a").stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    "hostile",
    [
        [member("/abs", data=b"x")],
        [member("top/../../up", data=b"x")],
        [member("other/x", data=b"x"), member("x", data=b"x")],
        [member("top/out", tarfile.SYMTYPE, "/etc")],
        [member("top/out", tarfile.SYMTYPE, "../..")],
        [member("top/s", tarfile.SYMTYPE, "a"), member("top/a", tarfile.SYMTYPE, ".."), member("top/s/x", data=b"x")],
        [member("top/hard", tarfile.LNKTYPE, "/etc/passwd")],
        [member("top/hard", tarfile.LNKTYPE, "top/../../secret")],
        [member("top/dev", tarfile.CHRTYPE)],
        [member("top/dev", tarfile.BLKTYPE)],
        [member("top/fifo", tarfile.FIFOTYPE)],
    ],
)
async def test_a_hostile_member_is_left_out(tmp_path, hostile):
    (tmp_path / "secret").write_text("of the host")
    inner = tmp_path / "in"
    inner.mkdir()
    skipped = await unpack(tar_of(TOP, *hostile, member("top/good", data=b"good")), inner / "new")
    assert skipped
    assert (inner / "new/good").read_bytes() == b"good"
    assert all(
        "x" not in name and "up" not in name and "abs" not in name
        for name in everything(tmp_path)
        if "new/" not in name
    )
    assert (tmp_path / "secret").stat().st_nlink == 1
    for one in (inner / "new").rglob("*"):
        assert one.resolve().is_relative_to(inner / "new")


async def test_a_link_that_was_there_is_not_written_through(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "out").symlink_to(tmp_path)
    (there / "file").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_text("mine")
    skipped = await unpack(tar_of(TOP, member("top/out/x", data=b"x"), member("top/file", data=b"new")), there)
    assert len(skipped) == 1
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "victim").read_text() == "mine"
    assert (there / "file").read_text() == "new"
    assert not (there / "file").is_symlink()


async def test_one_file(tmp_path):
    assert await unpack(tar_of(member("name", data=b"x" * 100_000)), tmp_path / "mine") == []
    assert (tmp_path / "mine").read_bytes() == b"x" * 100_000
    assert await unpack(tar_of(member("name", tarfile.SYMTYPE, "/etc/shadow")), tmp_path / "link") != []
    assert everything(tmp_path) == ["mine"]


@pytest.mark.parametrize("cut", [100, 512, 700, 1024, 3000, 60_000])
@pytest.mark.parametrize("first", [[], [TOP]])
async def test_a_half_one_leaves_nothing(tmp_path, cut, first):
    name = "top/big" if first else "big"
    data = tar_of(*first, member(name, data=b"x" * 100_000))
    with pytest.raises(BackendError, match=r"incomplete|empty"):
        await unpack(data[:cut], tmp_path / "new")
    assert not [name for name in everything(tmp_path) if "part" in name]
    assert not (tmp_path / "new/big").exists()


async def test_a_place_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConsoleError, match="cannot be written"):
        await unpack(tar_of(TOP, member("top/x", data=b"x" * 300_000)), tmp_path / "file" / "x")


async def test_leaving_early_leaves_no_thread_and_no_file(tmp_path):
    unpacker = Unpacker(lambda _: find(tmp_path / "new", NOBODYS), print, NOBODYS)
    await unpacker.give(tar_of(TOP, member("top/big", data=b"x" * 500_000))[:200_000])
    await unpacker.abandon()
    assert everything(tmp_path) == []
