"""Checks deeper reads of a sandbox: processes, changes, the provider's description, events, the main process."""

from __future__ import annotations

import asyncio
import json

import pytest

from sandbox_console.backends import abilities
from sandbox_console.errors import Conflict
from sandbox_console.model.capability import Capability
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually, wait_s
from sandbox_console.testing.conformance.tars import put, tar_of


class Looks(Checks):
    async def test_processes_are_the_main_one_and_those_beside_it(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Processes, Capability.PROCESSES)
        ref = await rig.idle()
        process = await rig.exec(ref, "sleep", "7741")

        async def both() -> bool:
            commands = [one.command for one in await backend.processes(ref)]
            return any("sleep 7741" in one for one in commands) and any("sleep 1000" in one for one in commands)

        await eventually(both, "a process is not reported")
        await process.kill()

    async def test_they_have_their_own_pids_and_no_helper_among_them(self, rig: Rig) -> None:
        rig.needs_sh(Capability.PROCESSES)
        backend = rig.ability(abilities.Processes, Capability.PROCESSES)
        ref = await rig.script("sleep 7742; sleep 1000")
        script = "for f in /proc/[0-9]*; do echo ${f#/proc/} $(tr '\\0' ' ' <$f/cmdline); done 2>/dev/null"

        async def agree() -> bool:  # a shell's child has the shell's name until it becomes the command
            found = {one.pid: one.command.strip() for one in await backend.processes(ref)}
            lines = (await rig.sh(ref, script)).out.decode().splitlines()
            commands = {int(pid): command.strip() for pid, _, command in (line.partition(" ") for line in lines)}
            pids = [pid for pid, command in commands.items() if command == "sleep 7742"]
            ours = found.keys() - commands.keys()
            # The shell, its sleep, and the init if there is one, which the guest sees as well.
            return len(pids) == 1 and found.get(pids[0]) == "sleep 7742" and not ours and len(found) <= 3

        await eventually(agree, "what it reports is not what is seen inside")

    async def test_a_stopped_one_has_no_processes(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Processes, Capability.PROCESSES)
        with pytest.raises(Conflict):
            await backend.processes(await rig.make(start=False))

    async def test_changes_tell_what_was_added(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Changes, Capability.DIFF)
        files = rig.ability(abilities.Files, Capability.COPY)
        ref = await rig.idle()
        await put(rig, files, ref, "/etc", tar_of(("added-by-the-suite", b"x")))
        assert ("/etc/added-by-the-suite", "added") in {(one.path, one.how) for one in await backend.changes(ref)}

    async def test_its_own_account_holds_no_value(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Raw, Capability.RAW)
        secret = ResolvedSecret("TOKEN", "hunter2-of-the-account")
        secrets = (secret,) if rig.backend.capabilities().has(Capability.SECRET_ENV) else ()
        ref = await rig.make(env={"PASSWORD": "in-the-clear-of-the-suite"}, secrets=secrets)
        text = json.dumps(await backend.raw(ref), default=str)
        assert ref.id[:12] in text
        assert "in-the-clear-of-the-suite" not in text
        assert "hunter2" not in text

    async def test_a_life_is_told_in_order(self, rig: Rig) -> None:
        backend = rig.ability(abilities.GuestEvents, Capability.EVENTS)
        ref = await rig.make()
        await rig.stop(ref, grace_s=0.2)

        async def whole() -> bool:
            words = [one.what for one in await _told(backend, ref)]
            return "start" in words and "die" in words and words.index("start") < words.index("die")

        await eventually(whole, "its start and its end are not reported")
        times = [one.at for one in await _told(backend, ref)]
        assert times == sorted(times)
        last = await _told(backend, ref, since=times[-1] + 1)
        assert last == []

    async def test_following_tells_what_comes(self, rig: Rig) -> None:
        backend = rig.ability(abilities.GuestEvents, Capability.EVENTS)
        ref = await rig.make()
        seen: list[str] = []

        async def follow() -> None:
            async for one in backend.guest_events(ref, since=None, follow=True):
                seen.append(one.what)  # noqa: PERF401 - each as it comes

        following = asyncio.create_task(follow())

        async def started() -> bool:
            return "start" in seen

        async def died() -> bool:
            return "die" in seen

        await eventually(started, "earlier events are not reported")
        await rig.stop(ref, grace_s=0.2)
        await eventually(died, "its end is not reported")
        following.cancel()
        assert isinstance((await asyncio.gather(following, return_exceptions=True))[0], asyncio.CancelledError)

    async def test_attaching_gives_what_comes_and_letting_go_leaves_it(self, rig: Rig) -> None:
        rig.needs_sh(Capability.ATTACH)
        backend = rig.ability(abilities.Attachable, Capability.ATTACH)
        ref = await rig.script("i=0; while :; do i=$((i+1)); echo tick-$i; sleep 0.1; done")
        process = await backend.attach(await rig.permit("attach"), ref)
        output = b""
        async with asyncio.timeout(wait_s()):
            async for _, data in process.output():
                output += data
                if output.count(b"tick-") >= 3:
                    break
            await process.kill()
        assert (await rig.look(ref)).status is Status.RUNNING

    async def test_attaching_tells_how_it_ended(self, rig: Rig) -> None:
        rig.needs_sh(Capability.ATTACH)
        backend = rig.ability(abilities.Attachable, Capability.ATTACH)
        ref = await rig.script("sleep 1; echo bye; exit 5")
        process = await backend.attach(await rig.permit("attach"), ref)
        async with asyncio.timeout(wait_s()):
            output = b"".join([data async for _, data in process.output()])
            assert (output, (await process.wait()).code) == (b"bye\n", 5)

    async def test_a_stopped_one_cannot_be_attached_to(self, rig: Rig) -> None:
        backend = rig.ability(abilities.Attachable, Capability.ATTACH)
        ref = await rig.make(start=False)
        with pytest.raises(Conflict):
            await backend.attach(await rig.permit("attach"), ref)


async def _told(backend: abilities.GuestEvents, ref: SandboxRef, since: float | None = None) -> list[GuestEvent]:
    async with asyncio.timeout(wait_s()):
        return [one async for one in backend.guest_events(ref, since=since, follow=False)]
