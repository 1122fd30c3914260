"""What an action costs, whole: policy, audit rows and backend, beside the engines' own programs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine import IMAGE, DockerEngine
from tests.support.require import missing

from sandbox_console.model.action import Create, Exec, Remove
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Console, open_console

RUNS = 30
BWRAP = ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/lib", "/lib",
         "--unshare-all", "/usr/bin/true"]  # fmt: skip


async def each(name: str, run: Callable[[], Awaitable[object]], runs: int = RUNS) -> None:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        await run()
        times.append(time.perf_counter() - start)
    times.sort()
    print(f"{name:50} median {times[runs // 2] * 1e3:7.1f} ms   worst {times[-1] * 1e3:7.1f} ms")


async def program(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0


async def backend(console: Console, name: str, host: str, image: str) -> SandboxRef:
    spec = SandboxSpec(f"bench-{name}", image, ("sleep", "1000"))

    async def cycle() -> None:
        made = (await console.perform(Create(spec, name, host)).result()).ref
        assert made is not None
        await console.perform(Remove(made, force=True)).result()

    await each(f"{name}: create, start, remove", cycle, 10)
    made = (await console.perform(Create(spec, name, host)).result()).ref
    assert made is not None
    await each(f"{name}: exec true", lambda: console.perform(Exec(made, ("true",))).result())
    return made


async def run(docker: bool) -> None:
    async with open_console() as console:
        made = [await backend(console, "bubblewrap", "local", "host")]
        if shutil.which("bwrap"):
            await each("  peer: bwrap true (a new sandbox)", lambda: program(*BWRAP))
        if docker:
            made.append(await backend(console, "docker", "default", IMAGE))
            await each("  peer: docker exec true", lambda: program("docker", "exec", made[1].id, "true"))
        for ref in made:
            await console.perform(Remove(ref, force=True)).result()


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="sc-bench-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"] = str(folder / "home")
    engine = None if missing("docker") else DockerEngine(folder / "docker")
    try:
        if engine:
            engine.start()
            engine.build_images()
            os.environ["DOCKER_HOST"] = engine.url
        asyncio.run(run(engine is not None))
    finally:
        if engine:
            engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
