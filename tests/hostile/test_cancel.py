"""An action that is cancelled at any moment leaves what its row says: all of it or nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.bubblewrap.conftest import host_pids, until

from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec


async def test_a_create_that_is_cancelled_at_any_moment_leaves_nothing(backend, permit) -> None:
    chance, made = random.Random(1), 0
    for number in range(40):
        spec = SandboxSpec(f"box-{number}", image="host")
        task = asyncio.create_task(backend.create(await permit("create"), spec, (), lambda _: None))
        await asyncio.sleep(chance.random() * 0.008)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
            made += 1
        assert len(await backend.list()) == made
    assert made < 40


async def test_a_start_that_is_cancelled_can_be_ended(backend, permit) -> None:
    chance = random.Random(2)
    for number in range(10):
        spec = SandboxSpec(f"box-{number}", image="host", command=("sleep", "86399"))
        ref = await backend.create(await permit("create"), spec, (), lambda _: None)
        task = asyncio.create_task(backend.start(await permit("start"), ref, ()))
        await asyncio.sleep(chance.random() * 0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        status = (await backend.inspect(ref)).status
        await backend.remove(await permit("remove"), ref, force=True)
        assert status in (Status.CREATED, Status.RUNNING)
    assert await backend.list() == []
    assert await until(lambda: not host_pids("sleep\x0086399"))
