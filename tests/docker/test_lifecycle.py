from __future__ import annotations

import asyncio
import time

import pytest
from tests.docker.conftest import collect
from tests.support.require import requires

from sandbox_console.errors import Conflict, NotFound
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import Status

pytestmark = requires("docker")


async def ended(backend, ref, seconds=10):
    async with asyncio.timeout(seconds):
        while (found := await backend.inspect(ref)).status.live:
            await asyncio.sleep(0.03)
    return found


async def test_a_sandbox_is_made_started_listed_stopped_and_removed(backend, make, permit):
    ref = await make(start=False, labels={"team": "x"})
    found = await backend.inspect(ref)
    assert found.status is Status.CREATED
    assert found.managed
    assert found.labels == {"team": "x"}
    await backend.start(await permit("start"), ref, ())
    await backend.start(await permit("start"), ref, ())
    listed = {row.ref: row for row in await backend.list()}
    assert listed[ref].status is Status.RUNNING
    assert listed[ref].started_at is not None
    assert abs(listed[ref].started_at - time.time()) < 60
    assert listed[ref].pid
    with pytest.raises(Conflict):
        await backend.remove(await permit("remove"), ref, force=False)
    await backend.stop(await permit("stop"), ref, 10)
    await backend.stop(await permit("stop"), ref, 10)
    found = await backend.inspect(ref)
    assert found.status is Status.EXITED
    assert found.exit.code == 143
    assert found.exit.signal == 15
    assert found.finished_at is not None
    await backend.remove(await permit("remove"), ref, force=False)
    with pytest.raises(NotFound):
        await backend.inspect(ref)
    with pytest.raises(NotFound):
        await backend.remove(await permit("remove"), ref, force=True)
    assert ref not in {row.ref for row in await backend.list()}


async def test_logs_are_the_bytes_that_were_written_on_each_stream(backend, make):
    ref = await make("sh", "-c", r"printf 'a\033[31m\001\377\n'; sleep 0.05; echo b >&2")
    await ended(backend, ref)
    records = [item async for batch in backend.logs(ref, LogQuery()) for item in batch]
    assert [(r.stream.value, r.data) for r in records] == [("stdout", b"a\x1b[31m\x01\xff\n"), ("stderr", b"b\n")]
    assert abs(records[0].at_ns / 1e9 - time.time()) < 60


async def test_exec_returns_streams_and_code(backend, make, permit):
    from sandbox_console.model.action import Exec

    ref = await make()
    process = await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", "echo o; echo e >&2; exit 3")), ())
    out, err, end = await collect(process)
    assert (out, err, end.code, end.signal) == (b"o\n", b"e\n", 3, None)
