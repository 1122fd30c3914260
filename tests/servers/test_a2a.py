"""a2a_pack's own client and an agent of its own, against the API as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from a2a_pack import A2AAgent, skill
from a2a_pack.context import RunContext
from a2a_pack.sandbox import HttpSandboxClient, SandboxRuntimeError, SandboxSpec
from a2a_pack.serve.asgi import build_app
from tests.browser.serving import eventually
from tests.servers.serving import SIGNING_KEY, VERIFYING_KEY, Server, grant, serving


@pytest.fixture
def client(server: Server, token: str) -> HttpSandboxClient:
    return HttpSandboxClient(
        server.url, default_workspace="agent-one", timeout_seconds=30, auth_token=token, grant_token=grant()
    )


async def test_the_client_makes_enters_lists_and_removes(client, tidy, home):
    box = await client.create(SandboxSpec("mine", labels={"team": "x"}))
    done = await box.exec("sh", ["-c", "echo out; echo err >&2; exit 4"])
    assert (done.stdout, done.stderr, done.exit_code, done.ok) == ("out\n", "err\n", 4, False)
    assert (await box.shell("echo $((6*7))")).output == "42\n"
    assert await client.list() == [box.name]
    again = await client.get(box.name)
    assert (await again.exec("true")).ok
    assert await box.logs() == ""
    await box.stop()
    await client.remove(box.name)
    await client.remove("mine")
    assert home.names() == []
    with pytest.raises(SandboxRuntimeError) as caught:
        await again.exec("true")
    assert caught.value.status_code == 404


async def test_one_shots_leave_nothing(client, tidy, home):
    assert (await client.run_python("print(sum(range(10)))")).stdout == "45\n"
    assert (await client.run_shell("exit 7")).exit_code == 7
    assert (await client.run_shell("sleep 60", timeout_seconds=0.3)).exit_code == 124
    assert (await client.run_shell("id -u; cat /proc/net/dev | wc -l", network_disabled=True)).ok
    assert home.names() == []
    with pytest.raises(SandboxRuntimeError) as caught:
        await client.run_shell("true", image="evil:1")
    assert caught.value.status_code == 400


async def test_the_base_classs_own_one_shot_is_torn_down_in_its_finally(client, tidy, home):
    done = await super(HttpSandboxClient, client).run_shell("echo base", workspace="agent-one")
    assert done.stdout == "base\n"
    assert home.names() == []


class Counter(A2AAgent):
    """An agent as its author writes one."""

    name = "tester"
    description = "counts in a sandbox"

    @skill(description="count")
    async def count(self, ctx: RunContext, to: int) -> str:
        return (await ctx.sandbox.run_shell(f"seq {to} | tail -n 1")).stdout


async def test_an_agent_app_of_a2a_packs_own_runs_on_it(server, token, tidy, monkeypatch, home):
    for name, value in {
        "A2A_SANDBOX_URL": server.url,
        "A2A_SANDBOX_TOKEN": token,
        "A2A_SANDBOX_TIMEOUT_S": "30",
        "A2A_GRANT_VERIFYING_KEY": VERIFYING_KEY,
    }.items():
        monkeypatch.setenv(name, value)
    transport = httpx.ASGITransport(build_app(Counter()))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as http:
        answer = await http.post("/invoke/count", json={"arguments": {"to": 12}, "grant": grant()})
    assert answer.status_code == 200, answer.text
    assert "12" in answer.text
    assert home.names() == []
    assert '"a2a:tester"' in home.run("audit", "ls", "--json", "--limit", "1").stdout


ONE_SHOT = """
import asyncio, os, sys
from a2a_pack.sandbox import HttpSandboxClient
client = HttpSandboxClient(sys.argv[1], default_workspace="agent-one", timeout_seconds=60, auth_token=sys.argv[2],
    grant_token=sys.argv[3])
asyncio.run(client.run_shell("sleep " + sys.argv[4]))
"""


def running(mark: str) -> bool:
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if one.read_bytes().rstrip(b"\0").split(b"\0")[-2:] == [b"sleep", mark.encode()]:
                return True
        except OSError:
            continue
    return False


def dying(server: Server, token: str) -> tuple[subprocess.Popen[bytes], str]:
    mark = f"5{time.monotonic_ns() % 10**8}"
    argv = [sys.executable, "-c", ONE_SHOT, server.url, token, grant(), mark]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, env=os.environ | {"A2A_GRANT_SIGNING_KEY": SIGNING_KEY})
    assert eventually(lambda: running(mark), 30)
    return process, mark


def test_a_client_that_is_killed_leaves_no_command_and_no_sandbox(server, token, tidy, home):
    process, mark = dying(server, token)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert eventually(lambda: not running(mark))
    assert eventually(lambda: home.names() == [])


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_ended_leaves_no_one_shot(home, token, tidy, signum):
    with serving(home, "--api", "--no-page") as server:
        process, mark = dying(server, token)
        server.stop(signum)
    process.wait()
    if signum == signal.SIGKILL:
        with serving(home, "--api", "--no-page") as server:
            assert eventually(lambda: home.names() == [])
        assert any("removed 1 sandboxes" in line for line in server.lines)
    assert home.names() == []
    assert eventually(lambda: not running(mark))
