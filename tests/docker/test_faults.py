"""What goes wrong on a real engine: it ends, dies, restarts, fills its disk; containers vanish while they are used.

Times are printed, not asserted: the goal is unreachable within 2 s and back within 5 s of the engine's return.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pytest
from tests.docker.test_watch import Watcher
from tests.support.engine import IMAGE, DockerEngine, busybox_tree
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import BackendUnreachable, ConsoleError, NotFound
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.event import HealthChanged, Listed
from sandbox_console.model.log import LogGap, LogQuery
from sandbox_console.model.sandbox import HealthState, Status
from sandbox_console.model.spec import SandboxSpec

pytestmark = requires("docker")

WAIT_S = 60


class Follower:
    """A log followed in a task: numbers and gaps, in the order told."""

    def __init__(self, backend, ref):
        self.items = []
        self.task = asyncio.ensure_future(self._run(backend, ref))

    async def _run(self, backend, ref):
        async for batch in backend.logs(ref, LogQuery(follow=True)):
            self.items += [None if isinstance(item, LogGap) else int(item.data) for item in batch]

    async def more(self, lines=5):
        wanted = len(self.items) + lines
        async with asyncio.timeout(WAIT_S):
            while len(self.items) < wanted:
                assert not self.task.done()
                await asyncio.sleep(0.02)

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def check(self):
        """No line twice, and none missing without a gap before it."""
        numbers = [item for item in self.items if item is not None]
        assert numbers == sorted(set(numbers)), "told twice or out of order"
        for before, after in itertools.pairwise(self.items):
            if before is not None and after is not None:
                assert after == before + 1, f"{after} after {before} without a gap"


def say(figure):
    """To the report of a failed or `-s` run."""
    sys.stdout.write(f"{figure}\n")


def unhealthy(event):
    return isinstance(event, HealthChanged) and not event.health.ok


def healthy(event):
    return isinstance(event, HealthChanged) and event.health.ok


async def one_outage(engine, end, watcher, follower):
    """End the engine, start it again; (seconds until it was told dead, until it was told alive)."""
    watcher.forget()
    began = time.monotonic()
    await asyncio.to_thread(getattr(engine, end))
    seen, event = await watcher.until(unhealthy, WAIT_S)
    assert event.health.state is HealthState.UNREACHABLE
    assert event.health.reason
    watcher.forget()
    await asyncio.to_thread(engine.start)
    answered = time.monotonic()
    back, _ = await watcher.until(healthy, WAIT_S)
    await watcher.until(lambda event: isinstance(event, Listed), WAIT_S)
    await follower.more()
    return seen - began, back - answered


async def outages(backend, make, permit, engine, ends):
    ref = await make("sh", "-c", "i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done")
    watcher, follower = Watcher(backend), Follower(backend, ref)
    times = []
    try:
        await watcher.until(lambda event: isinstance(event, Listed), WAIT_S)
        await follower.more()
        for end in ends:
            dead, alive = await one_outage(engine, end, watcher, follower)
            times.append((end, dead, alive))
        assert (await backend.inspect(ref)).status is Status.RUNNING
    finally:
        await follower.close()
        await watcher.close()
        for end, dead, alive in times:
            say(f"{end}: told dead after {dead:.2f} s, told alive {max(alive, 0):.2f} s after its return")
    follower.check()
    assert follower.items.count(None) <= len(times)
    return times


async def test_outages_are_told_and_no_log_line_twice(backend, make, permit, docker_engine):
    await outages(backend, make, permit, docker_engine, ["halt", "crash", "halt", "crash"])


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_fifty_restarts(backend, make, permit, docker_engine):
    times = await outages(backend, make, permit, docker_engine, ["halt", "crash"] * 25)
    for name, figures in (("dead", [one[1] for one in times]), ("alive", [max(one[2], 0) for one in times])):
        say(f"told {name}: median {sorted(figures)[len(figures) // 2]:.2f} s, worst {max(figures):.2f} s")


async def test_an_engine_that_dies_ends_what_was_in_use_with_its_reason(backend, make, permit, docker_engine):
    ref = await make()
    process = await backend.exec(await permit("exec"), Exec(ref, ("sleep", "1000")), ())
    terminal = await backend.shell(await permit("shell"), OpenShell(ref), ())
    attached = await backend.attach(await permit("attach"), ref)
    stats = backend.stats(ref, 1)
    await anext(stats)
    docker_engine.crash()
    try:
        async with asyncio.timeout(WAIT_S):
            assert [chunk async for chunk in process.output()] == []
            with contextlib.suppress(
                BackendUnreachable
            ):  # where its first output comes when nobody can be asked any more
                while await terminal.read():
                    pass
            [chunk async for chunk in attached.output()]
            assert (await attached.wait()).code is None
            for call in (process.wait, terminal.wait, lambda: anext(stats)):
                with pytest.raises((BackendUnreachable, StopAsyncIteration)):
                    await call()
            for close in (process.kill, terminal.close, attached.kill):
                with contextlib.suppress(BackendUnreachable):
                    await close()
    finally:
        await asyncio.to_thread(docker_engine.start)


@pytest.mark.parametrize("use", ["exec", "shell", "attach"])
async def test_a_container_removed_while_it_is_used_ends_the_use(backend, make, permit, use):
    ref = await make()
    match use:
        case "exec":
            used = await backend.exec(await permit(use), Exec(ref, ("sleep", "1000")), ())
        case "shell":
            used = await backend.shell(await permit(use), OpenShell(ref), ())
            await used.read()
        case _:
            used = await backend.attach(await permit(use), ref)
    await backend.remove(await permit("remove"), ref, force=True)
    async with asyncio.timeout(WAIT_S):
        if use == "shell":
            while await used.read():
                pass
        else:
            [chunk async for chunk in used.output()]
        end = await used.wait()
        await (used.close() if use == "shell" else used.kill())
    assert end.code == 137 or "removed" in end.reason
    with pytest.raises(NotFound):
        await backend.inspect(ref)


async def test_one_dead_engine_does_not_hold_up_another(backend, make, docker_engine, tmp_path, monkeypatch):
    from sandbox_console.service import open_console
    from sandbox_console.service.config import Config

    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    subprocess.run(
        ["docker", "context", "create", "dead", "--docker", f"host=unix://{tmp_path}/none"],
        check=True,
        capture_output=True,
    )
    ref = await make(start=False)
    async with open_console(Config(), backends=[DockerBackend("dead"), DockerBackend("default")]) as console:
        rows, healths = await console.fleet.listing()
    assert ref in {row.ref for row in rows}
    assert {health.host: health.ok for health in healths} == {"dead": False, "default": True}


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """A filesystem of its own for an engine's data; skips where there is no loop device."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    (folder / "data").mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    done = subprocess.run(["mount", "-o", "loop", image, folder / "data"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop mount here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder / "data"], capture_output=True, check=False)


async def tar_of_zeros(size):
    info = tarfile.TarInfo("big")
    info.size = size
    yield info.tobuf()
    for _ in range(size >> 20):
        yield b"\1" * (1 << 20)
    yield b"\0" * 1024


async def test_a_full_disk_is_told_as_such(permit, monkeypatch):
    folder = Path(tempfile.mkdtemp(prefix="sc-full-", dir="/tmp"))
    engine = DockerEngine(folder)
    try:
        with small_disk(folder, 48):
            await asyncio.to_thread(engine.start)
            try:
                await asyncio.to_thread(
                    engine.docker, "import", "-c", 'CMD ["/bin/sh"]', "-", IMAGE, stdin=busybox_tree()
                )
                monkeypatch.setenv("DOCKER_HOST", engine.url)
                await on_a_full_disk(permit)
            finally:
                await asyncio.to_thread(engine.stop)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def on_a_full_disk(permit):
    backend = DockerBackend("default")
    await backend.open()
    try:
        spec = SandboxSpec(name="full", image=IMAGE, command=("sleep", "1000"))
        ref = await backend.create(await permit("create"), spec, (), lambda _: None)
        with pytest.raises(ConsoleError, match="disk is full") as caught:
            await backend.upload(await permit("upload"), ref, "/home/user", tar_of_zeros(64 << 20))
        assert "images prune" in caught.value.hint
        assert len(await backend.list()) == 1
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            layer = b"".join([chunk async for chunk in tar_of_zeros(60 << 20)])
            info = tarfile.TarInfo("layer.tar")
            info.size = len(layer)
            tar.addfile(info, io.BytesIO(layer))
        with pytest.raises(ConsoleError, match="no space left"):
            await backend.load_image(await permit("load-image"), whole(data.getvalue()))
        assert (await backend.health()).ok
        await backend.remove(await permit("remove"), ref, force=True)
    finally:
        await backend.close()


async def whole(data):
    for at in range(0, len(data), 1 << 20):
        yield data[at : at + (1 << 20)]


@requires("user")
def test_no_permission_as_an_ordinary_user_names_the_group():
    """The messages themselves are in user_permission.py, which runs as uid 12345."""
    import socket

    from tests.support.as_user import run

    folder = Path(tempfile.mkdtemp(prefix="sc-perm-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as held:
            held.bind(str(folder / "docker.sock"))
            (folder / "docker.sock").chmod(0o660)
            held.listen()
            done = run("tests/docker/user_permission.py", DOCKER_HOST=f"unix://{folder}/docker.sock")
        assert done.returncode == 0, f"{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
        assert "1 passed" in done.stdout
    finally:
        shutil.rmtree(folder)
