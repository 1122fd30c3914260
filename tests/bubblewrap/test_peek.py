"""Processes, what is kept, its events, and the main process's output."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.bubblewrap.conftest import until

from sandbox_console.backends.bubblewrap.supervise import events
from sandbox_console.errors import Conflict
from sandbox_console.model.secret import ResolvedSecret


async def told(box, **query):
    return [one async for one in box.backend.guest_events(box.ref, since=None, follow=False, **query)]


async def test_processes_are_the_guests_by_their_own_pids(make):
    box = await make("sleep", "7001")
    process = await box.exec("sh", "-c", "sleep 7002 & wait")

    async def both():
        found = {one.command: one for one in await box.backend.processes(box.ref)}
        return found if {"sleep 7001", "sleep 7002"} <= found.keys() else None

    found = await until(both, 30)
    assert found["sleep 7001"].user.startswith("sandbox")
    assert found["sleep 7002"].parent == found["sh -c sleep 7002 & wait"].pid
    inside = await box.sh("grep -l 7001 /proc/[0-9]*/cmdline")
    assert f"/proc/{found['sleep 7001'].pid}/cmdline" in inside
    assert all(one.memory_bytes and one.cpu_s is not None and one.state for one in found.values())
    await process.kill()
    await box.stop(0.1)
    with pytest.raises(Conflict):
        await box.backend.processes(box.ref)


async def test_raw_masks_variables_and_holds_no_secret(make):
    secret = ResolvedSecret("TOKEN", "hunter2-of-raw")
    box = await make("sleep", "1000", env={"PASSWORD": "in-the-clear"}, secrets=(secret,))
    found = json.dumps(await box.backend.raw(box.ref))
    assert "PASSWORD" in found
    assert "in-the-clear" not in found
    assert "hunter2" not in found


async def test_a_life_is_told_in_order(make):
    box = await make("sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.05; done", start=False)
    await box.start()
    await box.backend.pause(await box.permit("pause"), box.ref)
    await box.backend.resume(await box.permit("resume"), box.ref)
    await box.run("true", "a-secret-argument")
    await box.backend.rename(await box.permit("rename"), box.ref, "other")
    await box.stop(10)
    found = await told(box)
    words = [one.what for one in found]
    assert words == ["create", "start", "pause", "unpause", "exec_start", "rename", "stop", "die"]
    assert found[-1].attributes["exitCode"] == "3"
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert "a-secret-argument" not in (box.folder / "events.jsonl").read_text()
    assert [one.what async for one in box.backend.guest_events(box.ref, since=found[-2].at, follow=False)] == [
        "stop",
        "die",
    ]


async def test_following_tells_what_comes_and_ends_with_the_sandbox(make):
    box = await make("sleep", "1000")
    seen = []

    async def follow():
        async for one in box.backend.guest_events(box.ref, since=None, follow=True):
            seen.append(one.what)  # noqa: PERF401 - each as it comes

    following = asyncio.create_task(follow())
    await until(lambda: seen == ["create", "start"], 30)
    await box.kill()
    await until(lambda: seen[-1] == "die", 30)
    await box.remove()
    async with asyncio.timeout(30):
        await following
    assert seen == ["create", "start", "kill", "die"]


async def test_they_are_bounded(tmp_path):
    for _ in range(8000):
        events.note(str(tmp_path), "exec_start", "sh")
    sizes = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
    assert sizes.keys() == {events.NEW, events.OLD}
    assert sum(sizes.values()) < 600_000


async def test_attaching_gives_what_comes_and_letting_go_leaves_it(make):
    box = await make("sh", "-c", "echo before; sleep 1; i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done")
    await until(box.text, 30)
    process = await box.backend.attach(await box.permit("attach"), box.ref)
    said = b""
    async with asyncio.timeout(30):
        async for _, data in process.output():
            said += data
            if said.count(b"\n") >= 3:
                await process.kill()
    assert b"before" not in said
    assert (await process.wait()).code is None
    assert (await box.show()).status == "running"


async def test_attaching_tells_how_it_ended(make):
    box = await make("sh", "-c", "sleep 1; echo bye; exit 5")
    process = await box.backend.attach(await box.permit("attach"), box.ref)
    async with asyncio.timeout(30):
        said = b"".join([data async for _, data in process.output()])
        assert (said, (await process.wait()).code) == (b"bye\n", 5)
    with pytest.raises(Conflict):
        await box.backend.attach(await box.permit("attach"), box.ref)


async def test_a_secret_file_that_was_removed_is_back_at_the_next_command(make):
    secret = ResolvedSecret("TOKEN", "hunter2-of-file", inject="file")
    box = await make("sleep", "1000", secrets=(secret,))
    assert await box.sh("cat /run/secrets/TOKEN; rm -rf /run/secrets", secrets=(secret,)) == "hunter2-of-file"
    assert (
        await box.sh("cat /run/secrets/TOKEN; stat -c ' %a' /run/secrets/TOKEN", secrets=(secret,))
        == "hunter2-of-file 400\n"
    )
    changed = ResolvedSecret("TOKEN", "hunter3", inject="file")
    assert await box.sh("cat /run/secrets/TOKEN; ls -A /run/secrets", secrets=(changed,)) == "hunter3TOKEN\n"
