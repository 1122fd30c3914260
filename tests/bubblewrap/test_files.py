"""Files by the file helper: as the sandbox's user, inside its mounts, and nowhere else."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import ROOT, host_pids, until

from sandbox_console.errors import Conflict, NotFound, UsageError


def tar_of(*members, **data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(data.get(member.name, b"")) if member.isreg() else None)
    return out.getvalue()


def member(name, kind=tarfile.REGTYPE, size=0, target="", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mode = kind, size, target, mode
    return info


async def chunks(data):
    for at in range(0, len(data), 65536):
        yield data[at : at + 65536]


async def put(box, path, data):
    await box.backend.upload(await box.permit("upload"), box.ref, path, chunks(data))


async def get(box, path):
    data = b"".join([chunk async for chunk in box.backend.download(await box.permit("download"), box.ref, path)])
    return tarfile.open(fileobj=io.BytesIO(data))


@pytest.fixture
def box(make):
    return make("sleep", "1000")


async def test_a_guests_link_leads_to_its_own_files_only(make, open_folder):
    secret = open_folder / "of-the-host"
    secret.write_text("of the host")
    secret.chmod(0o644)
    box = await make("sleep", "1000")
    await box.sh(f"ln -s {secret} /tmp/out; ln -s /proc/1/root{secret} /tmp/out2; ln -s / /tmp/root")
    for path in ("/tmp/out", "/tmp/out2", f"/tmp/root{secret}"):
        with pytest.raises(NotFound):
            await box.backend.stat(box.ref, path)
    [link] = (await get(box, "/tmp/out")).getmembers()
    assert (link.issym(), link.linkname) == (True, str(secret))
    names = {one.name for one in await box.backend.list_dir(box.ref, "/tmp/root/etc")}
    assert "shadow" not in names


async def test_what_is_uploaded_belongs_to_the_guest_and_has_no_setuid(make):
    box = await make("sleep", "1000")
    await put(box, "/tmp", tar_of(member("x", size=2, mode=0o6755), x=b"hi"))
    assert (await box.sh("stat -c '%U %a' /tmp/x; cat /tmp/x")) == "sandbox 755\nhi"


@pytest.mark.parametrize(
    "hostile",
    [
        [member("/tmp/abs")],
        [member("../up")],
        [member("a/../../up")],
        [member("link", tarfile.SYMTYPE, target="/tmp"), member("link/x")],
        [member("hard", tarfile.LNKTYPE, target="../../etc/passwd")],
        [member("device", tarfile.BLKTYPE)],
    ],
)
async def test_hostile_members_are_refused(make, hostile):
    box = await make("sleep", "1000")
    await box.sh("mkdir -p /tmp/in/to")
    with pytest.raises(UsageError):
        await put(box, "/tmp/in/to", tar_of(*hostile))
    assert await box.sh("ls /tmp /tmp/in") == "/tmp:\nin\n\n/tmp/in:\nto\n"


async def test_a_link_that_is_there_already_is_not_followed_out(make):
    box = await make("sleep", "1000")
    await box.sh("mkdir /tmp/to; ln -s /home/sandbox /tmp/to/out")
    with pytest.raises(UsageError, match="outside"):
        await put(box, "/tmp/to", tar_of(member("out/x")))
    assert await box.sh("ls /home/sandbox") == ""


async def test_a_fifo_does_not_hold_the_reader(make):
    box = await make("sleep", "1000")
    await box.sh("mkdir /tmp/d; mkfifo /tmp/d/fifo; echo x >/tmp/d/file")
    async with asyncio.timeout(30):
        found = await get(box, "/tmp/d")
    assert [one.name for one in found.getmembers()] == ["d", "d/fifo", "d/file"]


async def test_names_that_are_not_utf_8(make):
    box = await make("sleep", "1000")
    await box.sh("mkdir /tmp/d; cd /tmp/d; touch $(printf 'a\\377b') 'new\nline'")
    names = {one.name for one in await box.backend.list_dir(box.ref, "/tmp/d")}
    assert names == {"a\udcffb", "new\nline"}
    assert {one.name for one in (await get(box, "/tmp/d")).getmembers()} == {"d", "d/a\udcffb", "d/new\nline"}


async def test_a_tar_of_the_root_leaves_the_kernels_out_and_ends(make, open_folder):
    root = open_folder / "root"
    (root / "bin").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc/mark").write_text("x")
    (root / "bin/sh").write_bytes(Path("/bin/busybox").read_bytes())
    (root / "bin/sh").chmod(0o755)
    box = await make("/bin/sh", "-c", "read x </dev/full; while :; do :; done", image=f"dir:{root}", cpus=None)
    names = {one.name for one in (await get(box, "/")).getmembers()}
    assert "./etc/mark" in names
    assert not any(name.startswith(("./proc", "./dev")) for name in names)
    await box.stop(0.1)
    [mark] = (await get(box, "/etc/mark")).getmembers()  # the image can be read while it does not run
    assert mark.name == "mark"
    with pytest.raises(Conflict, match="only while it runs"):
        await box.backend.stat(box.ref, "/tmp/x")


async def test_stopped_the_workspace_is_the_root_of_all_links(make, workspace, open_folder):
    (open_folder / "secret").write_text("of the host")
    (open_folder / "secret").chmod(0o644)
    box = await make("sleep", "1000", workspace=str(workspace), start=False)
    await box.start()
    await box.sh(f"ln -s {open_folder}/secret /workspace/out; ln -s ../secret /workspace/up; echo in >/workspace/file")
    await box.stop(0.1)
    for path in ("/workspace/out", "/workspace/up", "/workspace/../etc/passwd"):
        with pytest.raises((NotFound, Conflict)):
            await box.backend.stat(box.ref, path)
    assert (await box.backend.stat(box.ref, "/workspace/file")).size == 3
    await put(box, "/workspace", tar_of(member("new", size=1), new=b"n"))
    new = (workspace / "new").stat()
    assert new.st_uid == (await box.backend.raw(box.ref))["uid"]
    assert (new.st_uid == os.geteuid()) is not ROOT
    with pytest.raises(Conflict, match="in memory"):
        await put(box, "/tmp", tar_of(member("x")))


async def test_without_a_workspace_a_stopped_one_says_why(make):
    box = await make("sleep", "1000", start=False)
    with pytest.raises(Conflict, match="it has no workspace"):
        await put(box, "/workspace", tar_of(member("x")))


async def test_paused_its_files_can_be_read(make):
    box = await make("sleep", "1000")
    await box.backend.pause(await box.permit("pause"), box.ref)
    assert (await box.backend.stat(box.ref, "/etc/passwd")).size
    await box.backend.resume(await box.permit("resume"), box.ref)


async def test_a_full_folder_is_a_conflict_and_so_is_one_that_cannot_be_written(make):
    box = await make("sleep", "1000")
    with pytest.raises(Conflict, match="Read-only"):
        await put(box, "/usr", tar_of(member("x")))
    size = 80 * 1024 * 1024  # /dev/shm is 64 MiB
    with pytest.raises(Conflict, match="No space"):
        await put(box, "/dev/shm", tar_of(member("x", size=size), x=b"x" * size))  # zeros would be holes
    await box.sh("mkdir -m 0 /tmp/closed")
    with pytest.raises(Conflict, match="Permission denied"):
        await box.backend.list_dir(box.ref, "/tmp/closed")


async def test_no_archive_is_told_as_such(make):
    box = await make("sleep", "1000")
    for data in (b"hello " * 1000, tar_of(member("x", size=4096), x=bytes(4096))[:1024]):
        with pytest.raises(UsageError, match="not a tar"):
            await put(box, "/tmp", data)
    with pytest.raises(UsageError, match="absolute"):
        await box.backend.stat(box.ref, "tmp")


async def test_leaving_a_download_leaves_no_process(make):
    box = await make("sleep", "1000")
    await box.sh("head -c 50000000 /dev/zero >/tmp/big")
    found = box.backend.download(await box.permit("download"), box.ref, "/tmp/big")
    assert await anext(found)
    assert host_pids("file_helper.py")
    await found.aclose()

    await until(lambda: not [pid for pid in host_pids("file_helper.py") if Path(f"/proc/{pid}").exists()], 30)


async def test_the_file_helper_is_not_seen_by_the_guest(make):
    box = await make("sleep", "1000")
    await box.sh("head -c 50000000 /dev/zero >/tmp/big")
    found = box.backend.download(await box.permit("download"), box.ref, "/tmp/big")
    await anext(found)
    assert "file_helper" not in await box.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    await found.aclose()
