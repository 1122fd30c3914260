"""The app on 10,000 Sandboxes of a real API server: goals are first paint < 1.5 s and RSS < 300 MiB.

Run: tests/kubernetes/cluster/run python benchmarks/kubernetes.py [sandboxes] [runs]. It makes suspended Sandboxes in a
namespace of their own, which it leaves for the next run. First paint is when a row is on the terminal, whole is when
the header counts all of them, both from the start of the process. A change is one label, until its row is told.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec

from sandbox_console.backends.kubernetes.backend import KubernetesBackend
from sandbox_console.backends.kubernetes.cluster import MERGE, Cluster
from sandbox_console.backends.kubernetes.scope import Scope
from sandbox_console.errors import Conflict
from sandbox_console.model.event import Changed, Listed

FIRST_S, RSS_MIB = 1.5, 300
SPACE = "bench"
SIZE = (40, 120)
DEADLINE_S = 60
CHANGES = 20
AT_ONCE = 32


def scope() -> Scope:
    return Scope("test", SPACE, kubeconfig=Path(os.environ["KUBECONFIG"]))


def box(at: int) -> dict[str, object]:
    container = {"name": "main", "image": "k8s-node.test/busybox:1", "args": ["sleep", "1000"]}
    return {
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": f"box-{at:05}", "labels": {"team": f"team-{at % 20}", "tier": "agents"}},
        "spec": {"operatingMode": "Suspended", "podTemplate": {"spec": {"containers": [container]}}},
    }


async def fill(sandboxes: int) -> None:
    """Make those of the Sandboxes that are not there."""
    cluster, limit = Cluster(scope()), asyncio.Semaphore(AT_ONCE)
    path = await cluster.boxes(namespace=SPACE)

    async def make(at: int) -> None:
        async with limit:
            try:
                await cluster.send("POST", path, f"create sandbox {at}", box(at))
            except Conflict:
                return

    with suppress(Conflict):
        await cluster.send("POST", "/api/v1/namespaces", "create namespace", {"metadata": {"name": SPACE}})
    await asyncio.gather(*(make(at) for at in range(sandboxes)))
    await cluster.close()


async def changes(folder: Path) -> list[float]:
    """How long it takes from the request of a change until the watch has told it."""
    backend, found = KubernetesBackend(scope(), folder), []
    await backend.open()
    cluster = Cluster(scope())
    path = await cluster.boxes("box-00007", namespace=SPACE)
    async with aclosing(backend.watch()) as events:
        async for event in events:
            if isinstance(event, Listed):
                break
        for at in range(CHANGES):
            began = time.monotonic()
            value = str(time.time_ns())
            body = {"metadata": {"labels": {"seen": value}}}
            sent = asyncio.create_task(cluster.send("PATCH", path, f"change {at}", body, MERGE))
            async for event in events:
                if isinstance(event, Changed) and event.sandbox.labels.get("seen") == value:
                    found.append(time.monotonic() - began)
                    break
            await sent
    await cluster.close()
    await backend.close()
    return found


def measure(sandboxes: int, config: Path) -> dict[str, float]:
    began = time.monotonic()
    pid, master = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "TEXTUAL_ANIMATIONS": "none", "SANDBOX_CONSOLE_CONFIG": str(config)}
        os.execv(sys.executable, [sys.executable, "-m", "sandbox_console"])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    whole, seen, first = str(sandboxes).encode(), b"", 0.0
    counted = re.compile(
        rb"(?<![0-9])" + b",?".join(whole[at : at + 1] for at in range(len(whole))) + rb" (created|exited)"
    )
    try:
        while not counted.search(seen):
            if time.monotonic() - began > DEADLINE_S or not select.select([master], [], [], DEADLINE_S)[0]:
                raise TimeoutError(f"{sandboxes} were not counted within {DEADLINE_S} s: {seen[-300:]!r}")
            seen += os.read(master, 1 << 20)
            first = first or (time.monotonic() - began if b"box-0" in seen else 0.0)
        every = time.monotonic() - began
        time.sleep(2)
        status = Path(f"/proc/{pid}/status").read_text()
        rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(master)
    return {"first_s": first, "whole_s": every, "rss_mib": rss}


def main() -> int:
    sandboxes, runs = (int(word) for word in (sys.argv[1:] + ["10000", "3"][len(sys.argv) - 1 :])[:2])
    asyncio.run(fill(sandboxes))
    with tempfile.TemporaryDirectory(prefix="bench-k8s-") as home:
        os.environ["SANDBOX_CONSOLE_HOME"] = home
        config = Path(home) / "config.toml"
        table = {"contexts": ["test"], "namespaces": [SPACE], "kubeconfig": os.environ["KUBECONFIG"]}
        config.write_bytes(msgspec.toml.encode({"backends": {"kubernetes": table}}))
        found = [measure(sandboxes, config) for _ in range(runs)]
        told = asyncio.run(changes(Path(home) / "state"))
    middle = {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}
    ok = middle["first_s"] < FIRST_S and middle["rss_mib"] < RSS_MIB
    told_ms = round(statistics.median(told) * 1000, 1)
    print(
        json.dumps(
            {
                "sandboxes": sandboxes,
                **middle,
                "change_ms": told_ms,
                "goal_first_s": FIRST_S,
                "goal_rss_mib": RSS_MIB,
                "ok": ok,
            }
        )
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
