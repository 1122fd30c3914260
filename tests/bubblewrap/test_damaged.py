"""A sandbox whose own files are damaged or gone: shown with the file's name, hiding no other, and removable."""

from __future__ import annotations

import os
import time

import pytest
from tests.bubblewrap.conftest import Make

from sandbox_console.errors import BackendError, NotFound
from sandbox_console.model.sandbox import Status

SPOILT = {
    "empty": "", "no JSON": "{", "a list": "[]", "a number": "5", "another shape": '{"spec": 5, "status": 5}',
    "odd types": '{"spec": {"name": "x"}, "created_at": "x", "status": "running", "starts": "x", "exit": 3}',
}  # fmt: skip


def spoil(path, how):
    if how == "missing":
        path.unlink()
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif how == "huge":
        os.truncate(path, 5 << 30)
    else:
        path.write_text(SPOILT[how])


# Without status.json it is as one that was never started.
@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, how) for name in ("spec.json", "status.json") for how in (*SPOILT, "a folder", "a pipe", "huge")),
        ("spec.json", "missing"),
    ],
)
async def test_it_is_shown_by_what_is_left_and_removed_by_force(make: Make, backend, name, how) -> None:
    box, other = await make(), await make()
    spoil(box.folder / name, how)
    shown = {one.ref.id: one for one in await backend.list()}
    assert shown[other.ref.id].status is Status.RUNNING
    damaged = shown[box.ref.id]
    assert damaged.status is Status.LOST
    assert f"{box.folder / name}" in damaged.detail
    assert "damaged" in damaged.detail
    if name == "spec.json":
        assert damaged.created_at is None, "its age is not known"
        assert damaged.name == box.ref.id
    else:
        assert abs(damaged.created_at - time.time()) < 3600
    assert (await backend.inspect(box.ref)).detail == damaged.detail
    with pytest.raises(BackendError, match=name):
        await backend.remove(await box.permit("remove"), box.ref, False)
    assert box.folder.exists()
    await backend.remove(await box.permit("remove"), box.ref, True)
    assert [one.ref.id for one in await backend.list()] == [other.ref.id]
    with pytest.raises(NotFound):
        await backend.inspect(box.ref)


@pytest.mark.parametrize("name", ["spec.json", "status.json"])
async def test_what_still_runs_of_it_is_ended(make: Make, backend, name) -> None:
    box = await make("sleep", "1000")
    raw = box.raw
    (box.folder / name).write_text("{")
    await backend.remove(await box.permit("remove"), box.ref, True)
    assert not os.path.exists(f"/proc/{raw['init']}")
    assert not [one for one in raw["cgroups"].values() if os.path.exists(one)]


async def test_a_stray_folder_is_no_sandbox(make: Make, backend, state_dir) -> None:
    box = await make()
    (state_dir / "abc123").mkdir()
    assert [one.ref.id for one in await backend.list()] == [box.ref.id]
