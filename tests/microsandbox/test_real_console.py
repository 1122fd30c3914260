"""Consoles on a real microVM: one is killed, and the next one finds everything again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.support.microimage import IMAGE
from tests.support.microvms import PATIENCE_S, folder, microsandbox_home
from tests.support.require import requires

__all__ = ["folder", "microsandbox_home"]

pytestmark = requires("microsandbox")

TICKS = "i=0; while :; do i=$((i+1)); echo tick-$i; sleep 0.2; done"
# A console that makes a sandbox, says so, and holds on to it until it is killed.
HOLDER = """
import asyncio, sys
from sandbox_console.model.action import Create
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console

async def main():
    async with open_console(only_backend="microsandbox") as console:
        spec = SandboxSpec("web", image=sys.argv[1], memory_mib=128, labels={"team": "x"}, command=("sh", "-c", sys.argv[2]))
        await console.perform(Create(spec, "microsandbox", "local")).result()
        print("made", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""
# The one after it, in as few starts of Python as can be: emulated, each takes as long as a boot.
NEXT = """
import asyncio, contextlib, json
from msgspec import structs
from sandbox_console.model.action import Exec, Forward, Remove
from sandbox_console.model.log import LogQuery
from sandbox_console.service import Consent, open_console
from sandbox_console.service.sessions.forward import forward
from sandbox_console.service.reads import fleet

fleet.ANSWER_S = 100.0  # emulated on a loaded machine a list may take longer than a backend is given

async def greeting(console, ref):
    # What a server in the sandbox says by a forwarded port: the sandbox itself has no network.
    server = console.perform(Exec(ref, ("sh", "-c", "while :; do echo greeting | nc -l -p 7070; done")))
    held = await forward(console, Forward(ref, 7070), consent=Consent())
    address, _, port = held.forwarding.host_address.rpartition(":")
    said = b""
    async with asyncio.timeout(100):
        while not said:
            reader, writer = await asyncio.open_connection(address, int(port))
            with contextlib.suppress(ConnectionError):
                said = await reader.read()
            writer.close()
    await held.release()
    server.cancel()
    return said.decode()

async def main():
    async with open_console(only_backend="microsandbox") as console:
        web = await console.find("web")
        ran = await console.perform(Exec(web.ref, ("sh", "-c", "echo inside; exit 7"))).result()
        greeted = await greeting(console, web.ref)
        logs = b"".join([item.data async for batch in console.logs(web.ref, LogQuery()) for item in batch])
        plan = await console.plan(web, structs.replace(web.spec, egress=("example.com",)))
        verified = await console.verify()
        await console.perform(Remove(web.ref, force=True)).result()
        left, _ = await console.list()
    print(json.dumps({
        "row": [web.name, str(web.status), dict(web.labels)], "exec": [ran.exit_code, ran.stdout.decode()],
        "logs": logs.decode(), "plan": [plan.changes[0].field, str(plan.how)],
        "audit": verified.ok, "greeted": greeted, "left": [one.name for one in left],
    }))

asyncio.run(main())
"""


@pytest.fixture
def environment(folder):
    return {**os.environ, "SANDBOX_CONSOLE_HOME": str(folder / "state")}


def test_a_console_is_killed_and_the_next_one_finds_everything_again(environment):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, IMAGE, TICKS], env=environment, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"made\n"
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    next_one = [sys.executable, "-c", NEXT]
    done = subprocess.run(next_one, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["row"] == ["web", "running", {"team": "x"}]
    assert found["exec"] == [7, "inside\n"]
    assert found["greeted"] == "greeting\n"
    lines = found["logs"].splitlines()
    assert lines[:5] == [f"tick-{number}" for number in range(1, 6)]
    assert lines == [f"tick-{number}" for number in range(1, len(lines) + 1)]
    assert found["plan"] == ["egress", "recreate"]
    assert (found["audit"], found["left"]) == (True, [])
