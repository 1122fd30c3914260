"""1,000 created containers on a real engine: how soon they are seen, and what watching them costs, beside docker ps.

Run: python benchmarks/docker_list.py [containers] [seconds of idling]. The console is the real app in a pty. Goals:
painted < 1 s after it asked, idle < 1 % of a core, < 2 % of a core of the engine's.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aiohttp
from tests.support.engine import IMAGE, DockerEngine, private_engine
from tests.support.require import missing

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.event import Listed
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.permits import permit_maker

SIZE = (40, 140)
SETTLE_S = 5
OLD_S = 60
"""The age of a younger container is told anew every second, which is work and not idling."""


def line(what: str, figure: str, goal: str = "") -> None:
    print(f"{what:58} {figure:>14}   {goal}", flush=True)


async def fill(engine: DockerEngine, count: int, folder: Path) -> None:
    """Nine of ten are others', one of ten is ours."""
    connector = aiohttp.UnixConnector(str(engine.socket), limit=8)
    body = {"Image": IMAGE, "Cmd": ["true"], "HostConfig": {"NetworkMode": "none"}}
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(number: int) -> None:
            async with session.post("http://x/containers/create", params={"name": f"b{number:05}"}, json=body) as made:
                assert made.status == 201, await made.text()

        await asyncio.gather(*(one(number) for number in range(count * 9 // 10)))
    backend = DockerBackend("default")
    async with permit_maker(folder) as permit:
        for number in range(count - count * 9 // 10):
            spec = SandboxSpec(f"ours{number:05}", IMAGE, ("true",))
            await backend.create(await permit("create"), spec, (), lambda _: None)
    await backend.close()


async def adapter() -> None:
    for what in ("first", "second"):
        backend = DockerBackend("default")
        began = time.perf_counter()
        first = 0.0
        async for event in backend.watch():
            if isinstance(event, Listed):
                first = first or time.perf_counter() - began
                if any(row.effective for row in event.sandboxes):
                    break
        line(f"adapter, {what}: list", f"{first * 1e3:.0f} ms")
        line(f"adapter, {what}: with details of ours", f"{(time.perf_counter() - began) * 1e3:.0f} ms")
        await backend.close()


def peer(engine: DockerEngine) -> None:
    began = time.perf_counter()
    engine.docker("ps", "-a")
    line("peer: docker ps -a", f"{(time.perf_counter() - began) * 1e3:.0f} ms")


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def console(engine: DockerEngine, seconds: float) -> None:
    began = time.monotonic()
    pid, master = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "TEXTUAL_ANIMATIONS": "none"}
        os.execv(sys.executable, [sys.executable, "-m", "sandbox_console", "--backend", "docker"])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    seen, empty = b"", 0.0
    try:
        while not re.search(rb"(b|ours)\d{5}", seen):
            assert select.select([master], [], [], 30)[0], seen[-300:]
            seen += os.read(master, 65536)
            empty = empty or time.monotonic()
        painted = time.monotonic()
        line("console: first row painted, from exec on", f"{painted - began:.2f} s")
        line("console: first row painted, from its first byte on", f"{painted - empty:.2f} s", "goal < 1 s")
        threading.Thread(target=drain, args=(master,), daemon=True).start()
        time.sleep(SETTLE_S)
        idle(engine, pid, seconds)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def drain(master: int) -> None:
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        return


def idle(engine: DockerEngine, pid: int, seconds: float) -> None:
    ours, theirs = cpu_of(pid), engine.cpu_s()
    time.sleep(seconds)
    line(f"console: idle CPU over {seconds:g} s", f"{(cpu_of(pid) - ours) / seconds * 100:.2f} %", "goal < 1 %")
    line("engine: CPU meanwhile", f"{(engine.cpu_s() - theirs) / seconds * 100:.2f} %")


def alone(engine: DockerEngine, seconds: float) -> None:
    time.sleep(SETTLE_S)
    before = engine.cpu_s()
    time.sleep(seconds)
    line(f"engine: CPU with nobody watching, over {seconds:g} s", f"{(engine.cpu_s() - before) / seconds * 100:.2f} %")


def main() -> None:
    if reason := missing("docker"):
        print(f"docker: {reason}")
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    folder = Path(tempfile.mkdtemp(prefix="sc-bench-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"] = str(folder)
    try:
        with private_engine() as engine:
            os.environ["DOCKER_HOST"] = engine.url
            asyncio.run(fill(engine, count, folder))
            made = time.monotonic()
            print(f"{count} containers, {os.cpu_count()} CPUs")

            asyncio.run(adapter())
            peer(engine)
            alone(engine, seconds)
            time.sleep(max(0.0, made + OLD_S - time.monotonic()))
            console(engine, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
