"""Checks the lifecycle, idempotence, names, identity and cleanup."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from sandbox_console.errors import Conflict, NotFound
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually


class Lifecycle(Checks):
    async def test_a_created_sandbox_is_listed_and_not_started(self, rig: Rig) -> None:
        rig.needs(Capability.CREATE)
        ref = await rig.make(start=False)
        [found] = [one for one in await rig.backend.list() if one.ref == ref]
        assert found.status is Status.CREATED
        assert found.managed
        assert (ref.backend, ref.host) == (rig.backend.name, rig.backend.host)

    async def test_its_spec_comes_back_as_asked(self, rig: Rig) -> None:
        rig.needs(Capability.CREATE)
        ref = await rig.make(start=False, env={"A": "b c"}, labels={"team": "α β"})
        found = await rig.look(ref)
        assert found.spec is not None
        assert (dict(found.spec.env), dict(found.labels)) == ({"A": "b c"}, {"team": "α β"})

    async def test_start_runs_it_and_tells_when(self, rig: Rig) -> None:
        rig.needs(Capability.START)
        found = await rig.look(await rig.idle())
        assert found.status is Status.RUNNING
        assert found.started_at is not None
        assert found.created_at is not None
        assert found.started_at >= found.created_at - 1

    async def test_starting_a_running_one_changes_nothing(self, rig: Rig) -> None:
        rig.needs(Capability.START)
        ref = await rig.idle()
        before = await rig.look(ref)
        await rig.start(ref)
        assert (await rig.look(ref)).started_at == before.started_at

    async def test_stop_ends_it_and_stopping_again_is_no_error(self, rig: Rig) -> None:
        rig.needs(Capability.STOP)
        ref = await rig.make()
        await rig.stop(ref, grace_s=0.5)
        found = await rig.look(ref)
        assert found.status is Status.EXITED
        assert found.finished_at is not None
        await rig.stop(ref)

    async def test_stop_lets_it_end_by_itself(self, rig: Rig) -> None:
        rig.needs_sh(Capability.STOP, Capability.LOGS)
        ref = await rig.script("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done")
        await _said(rig, ref, b"up")
        await rig.stop(ref, grace_s=10)
        found = await rig.look(ref)
        assert found.exit is not None
        assert found.exit.code == 3
        assert b"bye" in await rig.text(ref)

    async def test_stop_kills_after_the_grace(self, rig: Rig) -> None:
        rig.needs_sh(Capability.STOP, Capability.LOGS)
        ref = await rig.script("trap '' TERM; echo up; while :; do sleep 0.05; done")
        await _said(rig, ref, b"up")
        await rig.stop(ref, grace_s=0.3)
        found = await rig.look(ref)
        assert found.exit is not None
        assert found.exit.code == 137

    async def test_kill_tells_the_signal(self, rig: Rig) -> None:
        rig.needs(Capability.KILL)
        ref = await rig.make()
        await rig.backend.kill(await rig.permit("kill"), ref, "SIGKILL")
        found = await rig.look(ref)
        assert found.exit is not None
        assert found.exit.code == 137

    async def test_it_can_be_started_again(self, rig: Rig) -> None:
        rig.needs(Capability.STOP, Capability.START)
        ref = await rig.make()
        await rig.stop(ref, grace_s=0.2)
        await rig.start(ref)
        found = await rig.look(ref)
        assert found.status is Status.RUNNING
        assert found.exit is None or found.finished_at is None

    async def test_pause_freezes_and_resume_goes_on(self, rig: Rig) -> None:
        rig.needs(Capability.PAUSE)
        ref = await rig.idle()
        await rig.backend.pause(await rig.permit("pause"), ref)
        assert (await rig.look(ref)).status is Status.PAUSED
        await rig.backend.resume(await rig.permit("resume"), ref)
        assert (await rig.look(ref)).status is Status.RUNNING

    async def test_pausing_twice_and_resuming_what_runs_are_conflicts(self, rig: Rig) -> None:
        rig.needs(Capability.PAUSE)
        ref = await rig.idle()
        error = await rig.refusal(rig.backend.resume(await rig.permit("resume"), ref), "resume of one that runs")
        assert error.code == "conflict", error
        await rig.backend.pause(await rig.permit("pause"), ref)
        error = await rig.refusal(rig.backend.pause(await rig.permit("pause"), ref), "pause of one that is paused")
        assert error.code == "conflict", error
        assert (await rig.look(ref)).status is Status.PAUSED
        await rig.backend.resume(await rig.permit("resume"), ref)
        assert (await rig.look(ref)).status is Status.RUNNING

    @pytest.mark.parametrize("code", [0, 1, 255])
    async def test_the_main_process_ends_with_its_code(self, rig: Rig, code: int) -> None:
        rig.needs_sh(Capability.START)
        found = await rig.ended(await rig.script(f"exit {code}"))
        assert found.exit is not None
        assert found.exit.code == code

    async def test_a_taken_name_is_a_conflict(self, rig: Rig) -> None:
        rig.needs(Capability.CREATE)
        ref = await rig.make(start=False)
        name = (await rig.look(ref)).name
        with pytest.raises(Conflict):
            await rig.make(start=False, name=name)
        assert [one.ref for one in await rig.backend.list() if one.name == name] == [ref]

    @pytest.mark.parametrize("name", ["a-b_c.d", "9lives", "x" * 63, "UPPER"])
    async def test_odd_names_are_kept(self, rig: Rig, name: str) -> None:
        rig.needs(Capability.CREATE)
        assert (await rig.look(await rig.make(start=False, name=name))).name == name

    async def test_rename_keeps_the_id(self, rig: Rig) -> None:
        rig.needs(Capability.RENAME)
        ref = await rig.make(start=False)
        other = rig.spec().name
        await rig.backend.rename(await rig.permit("rename"), ref, other)
        found = await rig.look(ref)
        assert (found.name, found.ref) == (other, ref)
        assert found.spec is not None
        assert found.spec.name == other

    async def test_renaming_to_a_taken_name_is_a_conflict(self, rig: Rig) -> None:
        rig.needs(Capability.RENAME)
        first, second = await rig.make(start=False), await rig.make(start=False)
        taken = (await rig.look(first)).name
        with pytest.raises(Conflict):
            await rig.backend.rename(await rig.permit("rename"), second, taken)

    async def test_labels_are_changed_live(self, rig: Rig) -> None:
        rig.needs(Capability.UPDATE_LABELS)
        ref = await rig.idle()
        spec = (await rig.look(ref)).spec
        assert spec is not None
        await rig.backend.update(await rig.permit("update"), ref, structs.replace(spec, labels={"k": "v"}))
        found = await rig.look(ref)
        assert (dict(found.labels), found.status) == ({"k": "v"}, Status.RUNNING)
        await rig.backend.update(await rig.permit("update"), ref, spec)

    async def test_removing_a_running_one_needs_force(self, rig: Rig) -> None:
        rig.needs(Capability.REMOVE)
        ref = await rig.idle()
        with pytest.raises(Conflict):
            await rig.remove(ref, force=False)
        assert (await rig.look(ref)).status is Status.RUNNING

    async def test_a_removed_one_is_gone(self, rig: Rig) -> None:
        rig.needs(Capability.REMOVE)
        ref = await rig.make()
        await rig.remove(ref, force=True)
        assert ref not in [one.ref for one in await rig.backend.list()]
        with pytest.raises(NotFound):
            await rig.look(ref)
        with pytest.raises(NotFound):
            await rig.remove(ref)

    async def test_its_name_is_free_again(self, rig: Rig) -> None:
        rig.needs(Capability.REMOVE)
        ref = await rig.make(start=False)
        name = (await rig.look(ref)).name
        await rig.remove(ref)
        assert await rig.make(start=False, name=name) != ref

    async def test_the_next_console_finds_it_running(self, rig: Rig) -> None:
        rig.needs(Capability.START)
        if rig.profile.another is None:
            pytest.skip("the profile has no second backend on the same state")
        ref = await rig.make()
        before = await rig.look(ref)
        other = await rig.profile.another()
        try:
            after = await other.inspect(ref)
            assert (after.ref, after.name, after.spec) == (ref, before.name, before.spec)
            assert (after.status, after.started_at) == (Status.RUNNING, before.started_at)
            await other.stop(await rig.permit("stop"), ref, 0.2)
            assert (await other.inspect(ref)).status is Status.EXITED
        finally:
            await other.close()

    @pytest.mark.parametrize("verb", ["start", "stop", "kill", "inspect"])
    async def test_an_unknown_id_is_not_found(self, rig: Rig, verb: str) -> None:
        ref = SandboxRef(rig.backend.name, rig.backend.host, "no-such-sandbox")
        permit = await rig.permit(verb)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "start": lambda: rig.backend.start(permit, ref, ()),
            "stop": lambda: rig.backend.stop(permit, ref, 1),
            "kill": lambda: rig.backend.kill(permit, ref, "SIGKILL"),
            "inspect": lambda: rig.look(ref),
        }
        with pytest.raises(NotFound):
            await calls[verb]()


async def _said(rig: Rig, ref: SandboxRef, words: bytes) -> None:
    async def look() -> bool:
        return words in await rig.text(ref)

    await eventually(look, f"it did not say {words!r}")
