"""What whole commands cost beside docker's own: wall and CPU of the process and all its children, in turns.

Run: python -m benchmarks.command [runs] [containers] [MB] [lines]. "warm" is with the command server of docs/cli.md,
whose child's CPU counts; "alone" is without it. Goals: exec < 200 ms and < 150 ms of CPU, ls of 1,000 < 2 x docker's,
cp of 300 MB < 1.5 x, a million lines of log < 1.2 x.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.engine import IMAGE, DockerEngine, private_engine
from tests.support.require import missing

from sandbox_console.background_process import ProcessFolder

NULL = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
TICKS = os.sysconf("SC_CLK_TCK")


def server_cpu() -> float:
    """CPU seconds of the command server's ended children, and of itself."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if b"command-server\0" + os.fsencode(os.environ["SANDBOX_CONSOLE_HOME"]) in words:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                return sum(map(int, fields[11:15])) / TICKS
    return 0.0


def once(words: Sequence[str], server: str) -> tuple[float, float]:
    """Milliseconds of wall and of CPU."""
    env = os.environ | {"SANDBOX_CONSOLE_SERVER": server}
    spent, before = server_cpu() if server == "on" else 0.0, resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(words, env=env, check=True, **NULL)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if server == "on":
        time.sleep(0.02)  # it waits for its child a moment later
        cpu += server_cpu() - spent
    return wall * 1000, cpu * 1000


def compare(what: str, docker: Sequence[str], ours: Sequence[str], runs: int, undo: Callable[[], None]) -> None:
    command = [str(Path(sys.executable).with_name("sandbox-console")), *ours]
    ways = {"docker": (docker, "off"), "alone": (command, "off"), "warm": (command, "on")}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(runs + 1):
        for name, (words, server) in ways.items():
            figure = once(words, server)
            undo()
            if turn:  # the first is for caches
                found[name].append(figure)
    told(what, found)


def told(what: str, found: dict[str, list[tuple[float, float]]]) -> None:
    """Medians, then the least of each: on a busy machine those tell more."""
    peers = [wall for wall, _ in found["docker"]]
    for name, figures in found.items():
        walls, cpus = zip(*figures, strict=True)
        for of, least in ((statistics.median, ""), (min, " least")):
            wall, cpu = of(walls), of(cpus)
            print(
                f"{what:24}{name + least:16}{wall:8.0f} ms wall{cpu:8.0f} ms CPU{wall / of(peers):8.2f} x", flush=True
            )


def fill(count: int) -> None:
    for start in range(0, count, 50):
        made = [
            subprocess.Popen(["docker", "create", "--name", f"b{n:05}", "--network", "none", IMAGE, "true"], **NULL)
            for n in range(start, min(start + 50, count))
        ]
        for process in made:
            assert process.wait() == 0


def run(engine: DockerEngine, folder: Path, runs: int, count: int, size: int, lines: int) -> None:
    ours = [str(Path(sys.executable).with_name("sandbox-console"))]
    once([*ours, "create", "box", "--image", IMAGE, "--backend", "docker", "--", "sleep", "100000"], "off")
    talk = f'i=0; while [ $i -lt {lines // 100} ]; do echo "$block"; i=$((i+1)); done; sleep 100000'
    block = "\n".join(["a line of a log that is neither very short nor long"] * 100)
    engine.docker("run", "-d", "--network", "none", "--name", "talker", "-e", f"block={block}", IMAGE, "sh", "-c", talk)
    nothing = lambda: None  # noqa: E731
    once([*ours, "ls"], "on")
    time.sleep(3)  # the server starts
    compare("exec true", ["docker", "exec", "box", "true"], ["exec", "box", "--", "true"], runs, nothing)
    compare("ls of 2", ["docker", "ps", "-a"], ["ls", "--all"], runs, nothing)
    big, few = folder / "big", max(3, runs // 4)
    with big.open("wb") as file:
        for _ in range(size):
            file.write(os.urandom(1_000_000))
    target = folder / "out"
    gone = lambda: target.unlink(missing_ok=True)  # noqa: E731
    compare(f"cp of {size} MB in", ["docker", "cp", str(big), "box:/big"], ["cp", str(big), "box:/big"], few, nothing)
    compare(
        f"cp of {size} MB out", ["docker", "cp", "box:/big", str(target)], ["cp", "box:/big", str(target)], few, gone
    )
    compare(f"logs of {lines:,}", ["docker", "logs", "talker"], ["logs", "talker"], few, nothing)
    cycle = "sandbox-console create cc --image $0 --backend docker -- sleep 9 && sandbox-console rm cc --force --yes"
    peer = "docker create --network none --name cc $0 sleep 9 && docker start cc && docker rm -f cc"
    compare_shell("create to rm", peer, cycle, few)
    fill(count)
    compare(f"ls of {count:,}", ["docker", "ps", "-a"], ["ls", "--all"], few, nothing)


def compare_shell(what: str, docker: str, ours: str, runs: int) -> None:
    """Two commands as one; both ways of ours in turns with docker's."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found: dict[str, list[tuple[float, float]]] = {"docker": [], "alone": [], "warm": []}
    for _ in range(runs):
        found["docker"].append(once(["sh", "-c", docker, IMAGE], "off"))
        found["alone"].append(once(["sh", "-c", ours, IMAGE], "off"))
        found["warm"].append(once(["sh", "-c", ours, IMAGE], "on"))
    told(what, found)


def main() -> None:
    if reason := missing("docker"):
        print(f"docker: {reason}")
        return
    runs, count, size, lines = (
        int(word) for word in (*sys.argv[1:], *("20", "1000", "300", "1000000")[len(sys.argv) - 1 :])
    )
    folder = Path(tempfile.mkdtemp(prefix="sc-bench-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"] = str(folder / "home")
    try:
        with private_engine() as engine:
            os.environ["DOCKER_HOST"] = engine.url
            run(engine, folder, runs, count, size, lines)
    finally:
        with contextlib.suppress(OSError):
            place = ProcessFolder(str(folder / "home/state/run"))
            for found in (folder / "home/state/run").glob("*.sock"):
                place.end(found.stem, signal.SIGTERM)
            place.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
