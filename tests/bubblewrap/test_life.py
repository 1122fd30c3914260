from __future__ import annotations

import asyncio
import os
import signal

import pytest
from tests.bubblewrap.conftest import Make, until

from sandbox_console.errors import BackendError, Conflict, NotFound, Unsupported
from sandbox_console.model.sandbox import Exit, SandboxRef, Status


async def test_a_sandbox_is_created_started_stopped_and_removed(make: Make, state_dir) -> None:
    box = await make(start=False)
    assert (await box.show()).status is Status.CREATED
    await box.start()
    shown = await box.show()
    assert shown.status is Status.RUNNING
    assert shown.pid
    assert shown.started_at
    assert shown.exit is None
    await box.start()  # a no-op
    await box.stop()
    shown = await box.show()
    assert shown.status is Status.EXITED
    assert shown.exit == Exit(143, 15, shown.exit.oom, "")
    assert shown.pid is None
    await box.remove(force=False)
    assert os.listdir(state_dir) == [".lock"]
    with pytest.raises(NotFound):
        await box.show()


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 0", 0, None), ("exit 7", 7, None), ("kill -11 $$", 139, 11), ("kill -9 $$", 137, 9)],
)
async def test_the_main_commands_end_is_kept(make: Make, script: str, code: int, number: int | None) -> None:
    box = await make("sh", "-c", f"echo last words; {script}")
    await until(lambda: box.raw.get("status") != "running")
    shown = await box.show()
    assert shown.status is Status.EXITED
    assert (shown.exit.code, shown.exit.signal) == (code, number)
    assert await box.text() == b"last words\n"


async def test_a_code_above_128_is_not_taken_for_a_signal(make: Make) -> None:
    box = await make("sh", "-c", "sleep 0.2; exit 137")
    await until(lambda: box.raw.get("status") == "exited")
    if os.uname().release.split(".")[0] < "6":
        pytest.skip("this kernel cannot tell")
    assert (await box.show()).exit.code == 137
    assert (await box.show()).exit.signal is None


@pytest.mark.parametrize(
    ("command", "says"), [(("nosuch-command",), "No such file"), (("/etc/passwd",), "Permission denied")]
)
async def test_a_command_that_cannot_run_fails_the_start_with_its_reason(make: Make, command, says: str) -> None:
    box = await make(*command, start=False)
    with pytest.raises(BackendError, match=says):
        await box.start()
    shown = await box.show()
    assert shown.status is Status.FAILED
    assert says in shown.detail
    assert shown.exit.code == (127 if "No such" in says else 126)
    assert says.encode() in await box.text()


async def test_stop_kills_a_command_that_ignores_sigterm_after_the_grace(make: Make) -> None:
    box = await make("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    await until(box.text)
    began = asyncio.get_running_loop().time()
    await box.stop(0.3)
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert (await box.show()).exit.signal == 9


async def test_a_signal_goes_to_the_main_command(make: Make) -> None:
    box = await make("sh", "-c", "trap 'echo got usr1' USR1; echo ready; while :; do sleep 0.05; done")
    await until(box.text)
    await box.kill("SIGUSR1")

    async def got() -> bool:
        return b"got usr1" in await box.text()

    await until(got)
    await box.kill("SIGKILL")
    assert (await box.show()).exit.signal == signal.SIGKILL


async def test_a_restart_keeps_id_and_logs(make: Make) -> None:
    box = await make("sh", "-c", "echo run; sleep 1000")
    await until(box.text)
    await box.stop()
    await box.start()
    shown = await box.show()
    assert shown.status is Status.RUNNING
    assert shown.restarts == 1
    await until(lambda: box.raw)

    async def twice() -> bool:
        return await box.text() == b"run\nrun\n"

    await until(twice)


async def test_a_name_is_unique_also_for_a_rename(make: Make, backend, permit) -> None:
    one, two = await make(name="one", start=False), await make(name="two", start=False)
    with pytest.raises(Conflict, match="one"):
        await make(name="one")
    with pytest.raises(Conflict, match="one"):
        await backend.rename(await permit("update"), two.ref, "one")
    await backend.rename(await permit("update"), one.ref, "uno")
    assert (await one.show()).name == "uno"
    assert sorted(os.listdir(backend._store.folder)) == sorted([".lock", one.ref.id, two.ref.id])


async def test_two_consoles_that_take_one_name_at_once_give_one_sandbox(make: Make) -> None:
    made = await asyncio.gather(*(make(name="same", start=False) for _ in range(8)), return_exceptions=True)
    assert sum(isinstance(one, Conflict) for one in made) == 7


async def test_two_starts_at_once_give_one_supervisor(make: Make) -> None:
    box = await make(start=False)
    await asyncio.gather(box.start(), box.start(), box.start())
    assert (await box.show()).status is Status.RUNNING
    assert box.raw["starts"] == 1


async def test_removing_a_running_one_needs_force(make: Make) -> None:
    box = await make()
    with pytest.raises(Conflict, match="running"):
        await box.remove(force=False)
    assert (await box.show()).status is Status.RUNNING


async def test_nothing_is_left_on_the_host_after_a_removal(make: Make, state_dir) -> None:
    box = await make("sh", "-c", "sleep 98765 & setsid sleep 98765 & echo; sleep 98765")
    await until(box.text)
    raw = box.raw
    pids = [raw["supervisor"], raw["init"], raw["pid"]]
    folders = list(raw["cgroups"].values())
    await box.remove()
    await until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    assert not [one for one in folders if os.path.exists(one)]
    assert box.ref.id not in open("/proc/self/mountinfo").read()
    assert os.listdir(state_dir) == [".lock"]


async def test_time_limits_end_it_with_their_reason(make: Make) -> None:
    long, idle = await asyncio.gather(
        make("sh", "-c", "while :; do echo busy; sleep 0.05; done", name="long", max_duration_s=0.5),
        make(name="idle", idle_timeout_s=0.5),
    )
    await until(lambda: long.raw["status"] == idle.raw["status"] == "exited")
    assert "max_duration_s" in (await long.show()).exit.reason
    assert "idle_timeout_s" in (await idle.show()).exit.reason


async def test_output_and_commands_hold_off_the_idle_timeout(make: Make) -> None:
    box = await make(idle_timeout_s=3.0)
    assert (await box.run("sleep", "5"))[0].code == 0
    await until(lambda: box.raw["status"] == "exited")


async def test_pause_freezes_every_process_and_resume_thaws(make: Make, backend, permit) -> None:
    box = await make("sh", "-c", "while :; do echo tick; sleep 0.02; done")
    await until(box.text)
    await backend.pause(await permit("pause"), box.ref)
    assert (await box.show()).status is Status.PAUSED
    before = -1

    async def still() -> bool:  # what was written before is still being read
        nonlocal before
        last, before = before, len(await box.text())
        await asyncio.sleep(0.3)
        return last == before

    await until(still)
    with pytest.raises(Conflict, match="paused"):
        await box.run("true")
    await backend.resume(await permit("resume"), box.ref)

    async def more() -> bool:
        return len(await box.text()) > before

    await until(more)
    await backend.pause(await permit("pause"), box.ref)
    await box.stop(1.0)
    assert (await box.show()).status is Status.EXITED


async def test_what_cannot_be_had_is_refused_by_name(make: Make) -> None:
    with pytest.raises(Unsupported, match="runtime"):
        await make(runtime="runsc")
    box = await make()
    with pytest.raises(Unsupported, match=r"exec\.user"):
        await box.run("true", user="daemon")
    assert (await box.run("true", user="1000"))[0].code == 0


async def test_an_unknown_id_is_not_found(backend) -> None:
    for identity in ("0" * 12, "..", "../../etc", ".lock", ""):
        with pytest.raises(NotFound):
            await backend.inspect(SandboxRef("bubblewrap", "local", identity))
