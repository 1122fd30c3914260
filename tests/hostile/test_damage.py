"""Damaged files, garbage on the control socket, and an image that is gone: none may end or hide a sandbox."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Box, Make

from sandbox_console.errors import BackendError
from sandbox_console.model.sandbox import Status


def _say(box: Box, data: bytes) -> bytes:
    folder = os.open(box.folder, os.O_PATH | os.O_CLOEXEC)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(f"/proc/self/fd/{folder}/sock")
        os.close(folder)
        sock.settimeout(5)
        sock.send(data)
        return sock.recv(4096)


async def test_garbage_on_its_socket_ends_no_sandbox(make: Make) -> None:
    box = await make()
    for data in (b"garbage", b"[]", b"\xff\xfe", b"[" * 60_000, b'{"op":"exec"}', b'{"op":"limits","limits":5}'):
        assert b"error" in _say(box, data), data
    assert (await box.show()).status == Status.RUNNING
    assert await box.sh("echo fine") == "fine\n"


async def test_a_time_limit_beyond_the_kernels_timers_ends_no_sandbox(make: Make) -> None:
    box = await make(max_duration_s=1e300)
    assert await box.sh("echo fine") == "fine\n"
    assert (await box.show()).status == Status.RUNNING


@pytest.mark.parametrize("name", ["spec.json", "status.json"])
@pytest.mark.parametrize("text", ["", "[]", "null", '{"status":"odd","spec":[]}', '{"spec":{"name":"a"}, "status": 3}'])
async def test_a_damaged_file_hides_no_other_sandbox(make: Make, name: str, text: str) -> None:
    box, other = await make(start=False), await make(start=False)
    (box.folder / name).write_text(text)
    found = {one.ref: one for one in await box.backend.list()}
    assert set(found) == {box.ref, other.ref}
    assert found[box.ref].status == Status.LOST
    assert name in found[box.ref].detail
    with pytest.raises(BackendError, match=name) as caught:
        await box.start()
    assert str(box.folder) in caught.value.message
    assert "rm --force" in caught.value.hint
    await make(name="third", start=False)
    shutil.rmtree(box.folder)


async def test_a_spec_cannot_ask_for_the_hosts_root(make: Make) -> None:
    box = await make(start=False)
    for uid in ("0", "true", '"0"', *(["null"] if os.geteuid() == 0 else [])):
        text = (box.folder / "spec.json").read_text()
        (box.folder / "spec.json").write_text(text[: text.index('"uid"')] + f'"uid": {uid}}}')
        with pytest.raises(BackendError, match="uid is"):
            await box.start()
    shutil.rmtree(box.folder)


async def test_a_sandbox_whose_image_is_gone_is_listed_and_says_so(make: Make, open_folder: Path) -> None:
    root = open_folder / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/sleep")
    for folder in (root, root / "bin"):
        folder.chmod(0o755)
    box, other = await make(image=f"dir:{root}"), await make(start=False)
    shutil.rmtree(root)
    assert {one.ref for one in await box.backend.list()} == {box.ref, other.ref}
    assert any(not fact.enforced and str(root) in fact.value for fact in (await box.show()).effective)
    with pytest.raises(BackendError, match=str(root)):
        await box.exec("sleep", "1")
    await box.kill()
    with pytest.raises(BackendError, match=str(root)):
        await box.start()
    await box.remove()
