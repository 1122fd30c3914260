from __future__ import annotations

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.podman.backend import PodmanBackend
from sandbox_console.errors import Conflict, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.drift import drifted
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec

pytestmark = [requires("podman"), pytest.mark.slow]


async def test_a_whole_life_on_a_real_service(podman_engine, permit, monkeypatch, tmp_path):
    monkeypatch.setenv("CONTAINER_HOST", podman_engine.url)
    backend = PodmanBackend("default", tmp_path / "state")
    await backend.open()
    try:
        assert (await backend.health()).ok
        spec = SandboxSpec("life", image=IMAGE, command=("sh", "-c", "echo begun; sleep 1000"), memory_mib=64)
        ref = await backend.create(await permit("create"), spec, (), lambda _: None)
        assert (ref.backend, ref.host) == ("podman", "default")
        await backend.start(await permit("start"), ref, ())
        [row] = [one for one in await backend.list() if one.ref == ref]
        facts = {one.field: one.value for one in row.effective}
        assert (row.status, row.managed, facts["capabilities"], facts["egress"]) == (
            Status.RUNNING,
            True,
            "none",
            "none",
        )
        assert drifted(await backend.inspect(ref)) == ()
        with pytest.raises(Conflict):
            await backend.create(await permit("create"), spec, (), lambda _: None)
        wide = SandboxSpec("wide", image=IMAGE, egress=("example.com",))
        with pytest.raises(Unsupported, match="bridge of an internal network"):
            await backend.create(await permit("create"), wide, (), lambda _: None)
        process = await backend.exec(
            await permit("exec"), Exec(ref, ("sh", "-c", "id -u; grep CapEff /proc/self/status")), ()
        )
        said = b"".join([data async for _, data in process.output()])
        assert (said, (await process.wait()).code) == (b"1000\nCapEff:\t0000000000000000\n", 0)
        lines = [item.data async for batch in backend.logs(ref, LogQuery()) for item in batch]
        assert lines == [b"begun\n"]
        await backend.remove(await permit("remove"), ref, True)
        with pytest.raises(NotFound):
            await backend.inspect(ref)
    finally:
        await backend.close()
