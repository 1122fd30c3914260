"""What a command costs, from the call to its exit code: the adapter, the whole console, the docker CLI, in turns.

Run: python benchmarks/docker_exec.py [runs]. Goal: within 10 % of the CLI's wall time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine import IMAGE, private_engine
from tests.support.require import missing

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.action import Create, Exec, Remove
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Console, open_console
from sandbox_console.testing.permits import permit_maker


async def run(runs: int, folder: Path) -> None:
    backend = DockerBackend("default")
    async with open_console(backends=[DockerBackend("default")]) as console, permit_maker(folder) as permit:
        made = await create(console)
        granted = await permit("exec")

        async def adapter() -> None:
            process = await backend.exec(granted, Exec(made, ("true",)), ())
            async for _ in process.output():
                pass
            assert (await process.wait()).code == 0

        async def whole() -> None:
            assert (await console.perform(Exec(made, ("true",))).result()).exit_code == 0

        async def cli() -> None:
            process = await asyncio.create_subprocess_exec("docker", "exec", made.id, "true", stdout=subprocess.DEVNULL)
            assert await process.wait() == 0

        await compare({"docker exec true": cli, "adapter": adapter, "console, with policy and audit": whole}, runs)
        await console.perform(Remove(made, force=True)).result()
    await backend.close()


async def create(console: Console) -> SandboxRef:
    spec = SandboxSpec("bench-exec", IMAGE, ("sleep", "1000"))
    made = (await console.perform(Create(spec, "docker", "default")).result()).ref
    assert made is not None
    return made


async def compare(ways: dict[str, Callable[[], Awaitable[None]]], runs: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        await way()
    for _ in range(runs):  # in turns: the machine's load falls on all alike
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            times[name].append(time.perf_counter() - began)
    peer = statistics.median(times["docker exec true"])
    for name, found in times.items():
        median, worst = statistics.median(found), max(found)
        print(
            f"{name:34} median {median * 1e3:7.1f} ms   worst {worst * 1e3:7.1f} ms   {median / peer:5.0%} of the CLI"
        )


def main() -> None:
    if reason := missing("docker"):
        print(f"docker: {reason}")
        return
    folder = Path(tempfile.mkdtemp(prefix="sc-bench-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"] = str(folder / "home")
    try:
        with private_engine() as engine:
            os.environ["DOCKER_HOST"] = engine.url
            asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 40, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
