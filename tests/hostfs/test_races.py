"""A guest that swaps what the console looks at, as fast as it can: ten ways, both directions."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import tarfile

import pytest
from tests.support.as_user import UID

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs import kernel, partial_files
from sandbox_console.hostfs.files import NewFile, read_small
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.tar_pack import PackOptions, packed
from sandbox_console.hostfs.tar_unpack import Unpacker
from sandbox_console.hostfs.walk import find

ROOT = os.geteuid() == 0
ROUNDS = [40, pytest.param(1000, marks=pytest.mark.slow)]
SECRET = b"of the host"

# Exchanges two names for ever (renameat2(2) with RENAME_EXCHANGE), and puts a link in the place of each .part it sees.
SWAPPER = """
import ctypes, os, sys
swap = ctypes.CDLL(None).renameat2
a, b, folder, link = (os.fsencode(one) for one in sys.argv[1:])
print(flush=True)
while True:
    for _ in range(20):
        swap(-100, a, -100, b, 2)
    for name in os.listdir(folder):
        if name.endswith(b".part"):
            try:
                os.rename(os.path.join(folder, name), os.path.join(folder, b"taken"))
                os.symlink(link, os.path.join(folder, name))
            except OSError:
                pass
"""


@contextlib.contextmanager
def swapping(one, other, folder, link):
    guest = subprocess.Popen([sys.executable, "-c", SWAPPER, one, other, folder, link], stdout=subprocess.PIPE)
    try:
        assert guest.stdout is not None
        guest.stdout.readline()
        yield
        assert guest.poll() is None
    finally:
        guest.kill()
        guest.wait()


@pytest.fixture(params=["openat2", "stepwise"])
def place(request, tmp_path, monkeypatch):
    if request.param == "stepwise":
        monkeypatch.setattr(kernel, "_has_openat2", lambda: False)
    for name in ("ws", "ws/job", "private", "private/job"):
        (tmp_path / name).mkdir()
    (tmp_path / "private/secret").write_bytes(SECRET)
    (tmp_path / "private/job/secret").write_bytes(SECRET)
    (tmp_path / "private/secret").chmod(0o600)
    return tmp_path


def tar(*names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name.rstrip("/"))
            info.type, info.mode = (tarfile.DIRTYPE, 0o755) if name.endswith("/") else (tarfile.REGTYPE, 0o644)
            info.size = 0 if name.endswith("/") else 3
            archive.addfile(info, io.BytesIO(b"new"))
    return out.getvalue()


async def unpack(data, target, ground):
    unpacker = Unpacker(lambda _: find(target, ground), lambda _: None, ground)
    with contextlib.suppress(ConsoleError):
        await unpacker.give(data)
        await unpacker.finish()
    await unpacker.abandon()


async def pack(source, ground, *, follow=False):
    out = b""
    with contextlib.suppress(ConsoleError, OSError), find(source, ground, follow=follow) as found:
        async for chunk in packed(found, "x", PackOptions(ground, lambda _: None, follow)):
            out += chunk
    return out


def untouched(place):
    there = sorted(str(one.relative_to(place / "private")) for one in (place / "private").rglob("*"))
    assert there == ["job", "job/secret", "secret"]
    assert (place / "private/secret").read_bytes() == SECRET
    assert (place / "private/secret").stat().st_mode & 0o777 == 0o600


OUT = {
    "into a folder that is there": ("top/", "top/job/", "top/job/file", "top/job/secret"),
    "into a deep one": ("top/", "top/job/", "top/job/a/", "top/job/a/b/", "top/job/a/b/secret"),
    "over a file": ("top/", "top/job", "top/secret"),
}


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("how", OUT)
async def test_out(place, how, rounds):
    ground, data = GuestFolders.of([str(place / "ws")], place / "parts"), tar(*OUT[how])
    (place / "ws/other").symlink_to(place / "private")
    with swapping(place / "ws/job", place / "ws/other", place / "ws", place / "private"):
        for _ in range(rounds):
            await unpack(data, place / "ws", ground)
    untouched(place)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("reach", ["out of reach", "in reach"])
async def test_out_to_a_new_folder(place, rounds, reach, monkeypatch):
    """``in reach``: nothing else is on the workspace's mount, so what is half lies where the guest writes."""
    if reach == "in reach":
        monkeypatch.setattr(partial_files, "_usable", lambda *_: None)
    ground, data = GuestFolders.of([str(place / "ws")], place / "parts"), tar("top/", "top/job/", "top/job/secret")
    (place / "ws/other").symlink_to(place / "private")
    with swapping(place / "ws/job", place / "ws/other", place / "ws", place / "private"):
        for at in range(rounds):
            await unpack(data, place / f"ws/new{at}", ground)
            await unpack(data, place / "ws/job/job", ground)
    untouched(place)


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("how", ["file", "folder", "fifo", "folder below", "followed"])
async def test_in(place, how, rounds):
    ground = GuestFolders.of([str(place / "ws")])
    (place / "ws/job/secret").write_bytes(b"the guest's")
    swapped, source = place / "ws/job", place / "ws/job"
    if how == "file":
        swapped = source = place / "ws/job/secret"
    if how == "folder below":
        source = place / "ws"
    other = place / "ws/other"
    if how == "fifo":
        swapped = place / "ws/job/secret"
        os.mkfifo(other)
    else:
        other.symlink_to(place / "private/secret" if how == "file" else place / "private")
    got = 0
    with swapping(swapped, other, place / "ws", place / "private"):
        for _ in range(rounds):
            data = await pack(source, ground, follow=how == "followed")
            assert SECRET not in data
            got += b"the guest's" in data
    untouched(place)
    if rounds > 100:
        assert 0 < got < rounds, "the guest never swapped it in time: nothing was raced for"


@pytest.mark.skipif(not ROOT, reason="another owner needs root")
@pytest.mark.parametrize("rounds", ROUNDS)
async def test_in_a_second_name_of_anothers_file(place, rounds):
    os.chown(place / "ws", UID, UID)
    ground = GuestFolders.of([str(place / "ws")])
    os.link(place / "private/secret", place / "ws/other")
    (place / "ws/job/file").write_bytes(b"the guest's")
    os.chown(place / "ws/job/file", UID, UID)
    with swapping(place / "ws/job/file", place / "ws/other", place / "ws", place / "private"):
        for _ in range(rounds):
            assert SECRET not in await pack(place / "ws/job", ground)
    untouched(place)


@pytest.mark.parametrize("rounds", ROUNDS)
async def test_files_that_the_console_writes_and_reads(place, rounds):
    ground = GuestFolders.of([str(place / "ws")])
    (place / "ws/job/secret").write_bytes(b"the guest's")
    (place / "ws/other").symlink_to(place / "private")
    with swapping(place / "ws/job", place / "ws/other", place / "ws", place / "private"):
        for at in range(rounds):
            with contextlib.suppress(ConsoleError, OSError):
                assert read_small(place / "ws/job/secret", ground, 100) == b"the guest's"
            with contextlib.suppress(ConsoleError, OSError):
                made = NewFile(place / f"ws/job/log{at}", ground)
                made.file.write(b"x")
                await asyncio.to_thread(made.keep if at % 2 else made.drop)
    untouched(place)
