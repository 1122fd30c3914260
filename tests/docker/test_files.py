"""Files in and out of a container: by the engine's archive, and by tar inside where a path is in memory."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile

import pytest
from tests.docker.conftest import collect
from tests.support.engine import SHELLLESS
from tests.support.require import requires

from sandbox_console.backends.docker.failures import Refused
from sandbox_console.backends.docker.raw_http import BLOCK
from sandbox_console.errors import BackendError, Conflict, NotFound, Unsupported, UsageError
from sandbox_console.model.action import Exec
from sandbox_console.model.guest import FileKind
from sandbox_console.model.sandbox import SandboxRef

pytestmark = requires("docker")

ODD = ["-dash", "spa ce", "new\nline", "tab\t", "quo'te\"", "ünïcode", "*?[", "$(x)", "back\\slash", "l" * 200]
PLACES = ["/home/user", "/tmp"]  # on the layers, and in memory


def tar_of(*members, format=tarfile.PAX_FORMAT):
    """A tar of (name, bytes) for files and (name, type, target) for others."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for name, *rest in members:
            info = tarfile.TarInfo(name)
            info.uid = info.gid = 1000
            if len(rest) == 1:
                info.size = len(rest[0])
                tar.addfile(info, io.BytesIO(rest[0]))
            else:
                info.type, info.linkname = rest
                info.mode = 0o755
                tar.addfile(info)
    return buffer.getvalue()


async def chunks(data, size=65536):
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def got(backend, permit, ref, path):
    """The regular files of a download, by name."""
    data = b"".join([chunk async for chunk in backend.download(await permit("download"), ref, path)])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}


async def sh(backend, permit, ref, script):
    out, err, end = await collect(await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", script)), ()))
    assert end.code == 0, err
    return out.decode()


@pytest.mark.parametrize("folder", PLACES)
async def test_what_goes_in_comes_out(backend, make, permit, folder):
    ref = await make()
    files = {"empty": b"", "binary": bytes(range(256)) * 300, "lines": b"a\n" * 5} | {
        name: name.encode() for name in ODD
    }
    await backend.upload(await permit("upload"), ref, folder, chunks(tar_of(*files.items())))
    for name, data in files.items():
        assert await got(backend, permit, ref, f"{folder}/{name}") == {name: data}
    whole = await got(backend, permit, ref, folder)
    base = folder.rpartition("/")[2]
    assert {f"{base}/{name}": data for name, data in files.items()}.items() <= whole.items()
    assert await sh(backend, permit, ref, f"cat {folder}/lines") == "a\n" * 5


@pytest.mark.parametrize("folder", PLACES)
async def test_a_folder_is_listed(backend, make, permit, folder):
    ref = await make()
    await backend.upload(
        await permit("upload"), ref, folder,
        chunks(tar_of(*((name, b"12345") for name in ODD), ("sub", tarfile.DIRTYPE, ""), ("sub/deep", b"x"),
                      ("link", tarfile.SYMTYPE, "a b\nc"))),
    )  # fmt: skip
    found = {info.name: info for info in await backend.list_dir(ref, f"{folder}/")}
    assert found.keys() == {*ODD, "sub", "link"}
    assert [*found] == sorted(found)
    assert {found[name].kind for name in ODD} == {FileKind.FILE}
    assert {(found[name].size, found[name].mode) for name in ODD} == {(5, 0o644)}
    assert (found["sub"].kind, found["link"].kind, found["link"].target) == (
        FileKind.DIRECTORY,
        FileKind.LINK,
        "a b\nc",
    )
    assert {found[name].uid for name in ODD} == {1000}
    assert found["sub"].modified_at is not None
    with pytest.raises(NotFound):
        await backend.list_dir(ref, f"{folder}/nope")
    if folder == "/home/user":
        with pytest.raises(Conflict, match="not a directory"):
            await backend.list_dir(ref, f"{folder}/tab\t")


async def test_one_path_is_told_with_its_links_followed(backend, make, permit):
    ref = await make()
    await sh(backend, permit, ref, "cd /tmp; echo 123 > f; chmod 4750 f; ln -s f l; ln -s nowhere b; mkfifo p")
    for path, kind in (("/etc/passwd", FileKind.FILE), ("/bin", FileKind.DIRECTORY), ("/bin/sh", FileKind.FILE),
                       ("/tmp/f", FileKind.FILE), ("/tmp/l", FileKind.FILE), ("/tmp/p", FileKind.OTHER),
                       ("/", FileKind.DIRECTORY), ("/dev/null", FileKind.OTHER)):  # fmt: skip
        found = await backend.stat(ref, path)
        assert (found.kind, found.name) == (kind, path.rpartition("/")[2] or "/")
    found = await backend.stat(ref, "/tmp/l")
    assert (found.size, found.mode, found.uid) == (4, 0o4750, 1000)
    for path in ("/nope", "/tmp/nope", "/tmp/b", "/etc/passwd/x", "/tmp/f/x"):
        with pytest.raises(NotFound):
            await backend.stat(ref, path)
    for path in ("relative", "", "/nul\0"):
        with pytest.raises(UsageError, match="absolute"):
            await backend.stat(ref, path)


async def test_links_into_memory_are_followed_there(backend, make, permit):
    ref = await make(user="0")
    await sh(
        backend,
        permit,
        ref,
        "mkdir /tmp/d /in; echo x > /tmp/d/f; ln -s /tmp/d /in/away; ln -s ../tmp /in/up",
    )
    assert await got(backend, permit, ref, "/in/away/f") == {"f": b"x\n"}
    assert [info.name for info in await backend.list_dir(ref, "/in/up")] == ["d"]
    await backend.upload(await permit("upload"), ref, "/in/away", chunks(tar_of(("g", b"y"))))
    assert await sh(backend, permit, ref, "cat /tmp/d/g") == "y"


@pytest.mark.parametrize("path", ["/proc/cpuinfo", "/sys/kernel"])
async def test_what_the_kernel_makes_as_it_is_read_is_not_copied(backend, make, permit, path):
    ref = await make()
    with pytest.raises(Conflict, match="generated by the kernel") as caught:
        await got(backend, permit, ref, path)
    assert path in caught.value.hint


async def test_a_stopped_sandbox_has_its_disk_and_no_memory(backend, make, permit):
    ref = await make(start=False)
    assert {"bin", "etc", "tmp"} <= {info.name for info in await backend.list_dir(ref, "/")}
    await backend.upload(await permit("upload"), ref, "/home/user", chunks(tar_of(("a", b"1"), ("sub/b", b"22"))))
    assert await got(backend, permit, ref, "/home/user/sub") == {"sub/b": b"22"}
    found = {info.name: info for info in await backend.list_dir(ref, "/home/user")}
    assert (found["a"].size, found["a"].uid, found["sub"].kind) == (1, 1000, FileKind.DIRECTORY)
    assert (await backend.stat(ref, "/home/user/sub/b")).size == 2
    for path in ("/tmp", "/run/secrets/x", "/proc/1"):
        with pytest.raises(Conflict, match="in memory") as caught:
            await backend.list_dir(ref, path)
        assert "start" in caught.value.hint


@pytest.mark.parametrize("folder", PLACES)
@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize(
    "members",
    [
        [("../out", b"x")],
        [("/tmp/out", b"x")],
        [("a/../../out", b"x")],
        [("a", tarfile.SYMTYPE, "/tmp"), ("a/out", b"x")],
        [("a", tarfile.SYMTYPE, ".."), ("./a/b/out", b"x")],
        [("a", tarfile.LNKTYPE, "../../etc/passwd")],
        [("a", tarfile.LNKTYPE, "/etc/passwd")],
        [("x" * 300 + "/../../../out", b"x")],
    ],
)
async def test_no_member_leaves_the_folder(backend, make, permit, folder, format, members):
    ref = await make()
    await sh(backend, permit, ref, f"mkdir {folder}/in")
    with pytest.raises(UsageError, match="archive's member"):
        await backend.upload(
            await permit("upload"), ref, f"{folder}/in", chunks(tar_of(("ok", b"1"), *members, format=format))
        )
    assert await sh(backend, permit, ref, "find / -xdev -name out; find /tmp -name out") == ""


async def test_an_upload_that_cannot_be_is_said(backend, make, permit):
    ref = await make(read_only_root=True)
    for path in ("/nope", "/tmp/nope"):
        with pytest.raises(NotFound, match="no /"):
            await backend.upload(await permit("upload"), ref, path, chunks(tar_of(("a", b"1"))))
    await sh(backend, permit, ref, "echo x >/tmp/file")
    for path in ("/etc/passwd", "/tmp/file"):
        with pytest.raises(Conflict, match="not a directory"):
            await backend.upload(await permit("upload"), ref, path, chunks(tar_of(("a", b"1"))))
        with pytest.raises(Conflict, match="not a directory"):
            await backend.list_dir(ref, path)
    await sh(backend, permit, ref, "fallocate -l 500M /tmp/most")
    with pytest.raises(BackendError, match="No space left") as full:
        await backend.upload(await permit("upload"), ref, "/tmp", chunks(tar_of(("big", bytes(20 << 20)))))
    assert "on disk" in full.value.hint
    with pytest.raises(Conflict, match="cannot be written"):
        await backend.upload(await permit("upload"), ref, "/etc", chunks(tar_of(("a", b"1"))))
    with pytest.raises(UsageError, match="not a tar"):
        await backend.upload(await permit("upload"), ref, "/tmp", chunks(b"something else" * 100))
    with pytest.raises(NotFound):
        await got(backend, permit, ref, "/nope")
    with pytest.raises(NotFound):
        await got(backend, permit, SandboxRef("docker", "default", "0" * 64), "/etc")


async def test_an_image_without_programs_has_its_disk_only(backend, make, permit):
    ref = await make(image=SHELLLESS)
    assert "sleep" in {info.name for info in await backend.list_dir(ref, "/bin")}
    assert await got(backend, permit, ref, "/etc/group") == {"group": b"root:x:0:\nuser:x:1000:\n"}
    for call in (backend.stat(ref, "/tmp/x"), got(backend, permit, ref, "/tmp/x"),
                 backend.upload(await permit("upload"), ref, "/tmp", chunks(tar_of(("a", b"1"))))):  # fmt: skip
        with pytest.raises(Unsupported, match="lacks sh"):
            await call


async def test_a_source_that_fails_fails_the_upload_by_its_own_name(backend, make, permit):
    ref = await make()

    async def broken():
        yield tar_of(("a", b"1" * 100_000))[:50_000]
        raise NotFound("the file went away")

    for folder in PLACES:
        with pytest.raises(NotFound, match="went away"):
            await backend.upload(await permit("upload"), ref, folder, broken())


@pytest.mark.parametrize("folder", PLACES)
async def test_an_upload_and_a_download_can_be_cancelled(backend, make, permit, folder):
    ref = await make()
    begun = asyncio.Event()

    async def endless():
        info = tarfile.TarInfo("big")
        info.size = 10**12
        yield info.tobuf()
        while True:
            begun.set()
            yield b"x" * 1000
            await asyncio.sleep(0.01)

    task = asyncio.ensure_future(backend.upload(await permit("upload"), ref, folder, endless()))
    async with asyncio.timeout(30):
        await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    async with asyncio.timeout(30):
        while any("tar" in row.command for row in await backend.processes(ref)):
            await asyncio.sleep(0.1)
    reading = backend.download(await permit("download"), ref, "/bin/busybox")
    assert await anext(reading)
    await reading.aclose()


async def test_a_large_file_streams_through_in_bounded_memory(backend, make, permit):
    import tracemalloc

    ref = await make()
    size, block = 64 << 20, os.urandom(1 << 20)
    digest = hashlib.sha256()

    async def big():
        info = tarfile.TarInfo("big")
        info.size, info.uid = size, 1000
        yield info.tobuf()
        for _ in range(size // len(block)):
            digest.update(block)
            yield block
        yield b"\0" * 1024

    tracemalloc.start()
    try:
        await backend.upload(await permit("upload"), ref, "/home/user", big())
        back, total, pieces = hashlib.sha256(), 0, 0
        async for chunk in backend.download(await permit("download"), ref, "/home/user/big"):
            data = chunk[512:] if total == 0 else chunk
            back.update(data[: max(size - max(total - 512, 0), 0)])
            total, pieces = total + len(chunk), pieces + 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total >= size
    assert pieces <= total // BLOCK + 1
    assert back.digest() == digest.digest()
    assert peak < 16 << 20


async def test_the_engine_is_not_asked_to_pack_what_it_sends(tmp_path):
    from sandbox_console.backends.docker.contexts import Endpoint
    from sandbox_console.backends.docker.engine import Engine

    asked = []

    async def refuse(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(refuse, tmp_path / "s"):
        engine = Engine("default", Endpoint(f"unix://{tmp_path}/s"))
        with pytest.raises(Refused):
            await engine.call("GET", "containers/x/archive")
        await engine.close()
    assert [b"Accept-Encoding: identity" in head for head in asked] == [True]
