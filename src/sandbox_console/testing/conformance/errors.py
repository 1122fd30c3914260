"""Checks that what cannot be done raises one of ``sandbox_console.errors``, with code and message, without traces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from sandbox_console.backends.common.permit import permitted
from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.model.action import Exec, OpenShell, Permit
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.rig import Checks, Rig, wait_s
from sandbox_console.testing.conformance.tars import chunks, tar_of

_VERBS: dict[str, Capability | None] = {
    "remove": Capability.REMOVE,
    "pause": Capability.PAUSE,
    "resume": Capability.PAUSE,
    "rename": Capability.RENAME,
    "exec": Capability.EXEC,
    "shell": Capability.SHELL,
    "logs": Capability.LOGS,
    "stats": Capability.STATS,
    "stat": Capability.COPY,
    "list_dir": Capability.COPY,
    "download": Capability.COPY,
    "upload": Capability.COPY,
    "processes": Capability.PROCESSES,
    "changes": Capability.DIFF,
    "raw": Capability.RAW,
    "guest_events": Capability.EVENTS,
    "attach": Capability.ATTACH,
    "commit": Capability.COMMIT,
    "take_snapshot": Capability.SNAPSHOT,
    "fork": Capability.FORK,
}


class Errors(Checks):
    @pytest.mark.parametrize("verb", [*_VERBS])
    async def test_an_unknown_sandbox_is_not_found_by(self, rig: Rig, verb: str) -> None:
        needed = _VERBS[verb]
        assert needed is not None
        rig.needs(needed)
        ref = SandboxRef(rig.backend.name, rig.backend.host, "0123456789abcdef")
        with pytest.raises(NotFound) as caught:
            async with asyncio.timeout(wait_s()):
                await _call(rig, verb, ref)()
        assert caught.value.message
        assert caught.value.code == "not_found"

    async def test_what_it_cannot_is_refused_with_its_reason(self, rig: Rig) -> None:
        """The verb of a missing capability raises, and so does a change without a permit, and nothing is changed."""
        capabilities = rig.backend.capabilities()
        ref = await rig.make(start=False)
        if not capabilities.has(Capability.EGRESS_ALLOWLIST):
            error = await rig.refusal(rig.make(start=False, egress=("example.com",)), "egress without egress.allowlist")
            assert error.code in ("unsupported", "invalid_spec")
        if not capabilities.has(Capability.PAUSE):
            await rig.refusal(rig.backend.pause(await rig.permit("pause"), ref), "pause without the capability")
        await _unpermitted(rig, ref)
        assert [one.ref for one in await rig.backend.list() if one.ref in rig.made] == [ref]

    @pytest.mark.parametrize("verb", ["pause", "exec", "shell"])
    async def test_one_that_does_not_run_is_a_conflict_by(self, rig: Rig, verb: str) -> None:
        needed = _VERBS[verb]
        assert needed is not None
        rig.needs(needed)
        ref = await rig.make(start=False)
        with pytest.raises(ConsoleError) as caught:
            await _call(rig, verb, ref)()
        assert caught.value.code == "conflict"

    async def test_a_signal_that_there_is_not_is_refused(self, rig: Rig) -> None:
        rig.needs(Capability.KILL)
        ref = await rig.idle()
        await rig.refusal(rig.backend.kill(await rig.permit("kill"), ref, "SIGNONSENSE"), "the signal SIGNONSENSE")


def _call(rig: Rig, verb: str, ref: SandboxRef) -> Callable[[], Awaitable[Any]]:
    backend = cast("Any", rig.backend)

    async def drained(found: Any) -> list[Any]:
        return [one async for one in found]

    async def call() -> Any:
        permit = await rig.permit(verb)
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "remove": lambda: backend.remove(permit, ref, True),
            "pause": lambda: backend.pause(permit, ref),
            "resume": lambda: backend.resume(permit, ref),
            "rename": lambda: backend.rename(permit, ref, rig.spec().name),
            "exec": lambda: backend.exec(permit, Exec(ref, ("true",)), ()),
            "shell": lambda: backend.shell(permit, OpenShell(ref), ()),
            "logs": lambda: drained(backend.logs(ref, LogQuery())),
            "stats": lambda: drained(backend.stats(ref, 0.1)),
            "stat": lambda: backend.stat(ref, "/"),
            "list_dir": lambda: backend.list_dir(ref, "/"),
            "download": lambda: drained(backend.download(permit, ref, "/etc")),
            "upload": lambda: backend.upload(permit, ref, "/tmp", chunks(tar_of(("x", b"x")))),  # noqa: S108
            "processes": lambda: backend.processes(ref),
            "changes": lambda: backend.changes(ref),
            "raw": lambda: backend.raw(ref),
            "guest_events": lambda: drained(backend.guest_events(ref, since=None, follow=False)),
            "attach": lambda: backend.attach(permit, ref),
            "commit": lambda: backend.commit(permit, ref, "sandbox-console-conformance:never"),
            "take_snapshot": lambda: backend.take_snapshot(permit, ref, "never", False),
            "fork": lambda: backend.fork(permit, ref, rig.spec().name, ()),
        }
        return await calls[verb]()

    return call


async def _unpermitted(rig: Rig, ref: SandboxRef) -> None:
    """Request changes without a permit, from the backend as the console holds it."""
    backend, nothing, before = permitted(rig.backend), cast(Permit, None), len(await rig.backend.list())
    for change in (
        lambda: backend.create(nothing, rig.spec(), (), lambda _: None),
        lambda: backend.start(nothing, ref, ()),
        lambda: backend.remove(nothing, ref, force=True),
    ):
        with pytest.raises(TypeError, match="Permit"):
            await change()
    assert len(await rig.backend.list()) == before
