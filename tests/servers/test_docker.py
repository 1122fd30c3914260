"""The HTTP API and MCP over a real Docker engine: the same life, rules and statuses as on bubblewrap."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from a2a_pack.sandbox import HttpSandboxClient, SandboxRuntimeError, SandboxSpec
from tests.browser.serving import eventually
from tests.egress import image
from tests.servers.serving import SECRET, Home, Server, grant, serving
from tests.servers.test_a2a import dying, running
from tests.servers.test_mcp import call as tool
from tests.servers.test_mcp import refused
from tests.servers.test_mcp_http import client as mcp_client
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

__all__ = ["docker_engine"]

DEFAULT = "python:3.11-slim"
CONFIG = f"""
[backends.bubblewrap]
enabled = false
[backends.microsandbox]
enabled = false
[secrets.KEY]
from = "env:SERVED_KEY"
[templates.plain]
memory_mib = 128
[templates.keyed]
memory_mib = 128
secrets = ["KEY"]
[templates.out]
memory_mib = 128
egress = ["acme.example"]
[templates.job]
image = "{IMAGE}"
command = ["sh", "-c", "echo hello; exec sleep 1000"]
memory_mib = 64
[api]
backend = "docker"
template = "plain"
allow = ["keyed", "out"]
images = ["python:3.11-*", "sandbox-console-test:[bl]*"]
max_sandboxes = 4
max_per_bucket = 2
max_memory_mib = 256
max_cpus = 2
[mcp]
backend = "docker"
allow = ["list","inspect","logs","why","denied","create","exec","read_file","write_file","ask_host","remove"]
templates = ["job"]
labels = ["team=mcp"]
"""
BUCKET = {"bucket": "agent-one"}
THEIRS = ("a2a.token=agents", "a2a.subject=tester", "a2a.bucket=agent-one", "a2a.run=0000", "team=mcp")


@pytest.fixture(scope="module")
def home(tmp_path_factory, request) -> Iterator[Home]:
    if reason := missing("docker"):
        pytest.skip(reason)
    engine = request.getfixturevalue("docker_engine")
    engine.docker("import", "-c", 'CMD ["/bin/sh"]', "-", DEFAULT, stdin=image.tree())
    engine.docker(
        "import", *(f"-c=LABEL {one}" for one in THEIRS), "-", "sandbox-console-test:labels", stdin=image.tree()
    )
    made = Home(tmp_path_factory.mktemp("served") / "home", {"DOCKER_HOST": engine.url})
    made.configure(CONFIG)
    yield made
    if names := made.names():
        made.run("rm", "--force", *names)


@pytest.fixture(scope="module")
def token(home: Home) -> str:
    return home.token("agents", "api")


@pytest.fixture(scope="module")
def server(home: Home, token: str) -> Iterator[Server]:
    with serving(home, "--api", "--mcp", "--no-page") as running:
        yield running


@pytest.fixture(scope="module")
def mcp_url(server: Server, home: Home) -> str:
    """Where MCP is served beside the API."""
    log = home.path / "api.log"
    assert eventually(lambda: "\nmcp: " in log.read_text())
    return next(line.split(" ", 1)[1] for line in log.read_text().splitlines() if line.startswith("mcp: "))


@pytest.fixture
def tidy(home: Home) -> Iterator[None]:
    yield
    if names := home.names():
        home.run("rm", "--force", *names)


@pytest.fixture
def client(server: Server, token: str, tidy: None) -> HttpSandboxClient:
    return HttpSandboxClient(
        server.url, default_workspace="agent-one", timeout_seconds=60, auth_token=token, grant_token=grant()
    )


@pytest.fixture
async def call(server: Server, token: str, tidy: None) -> AsyncIterator:
    """``await call("POST", path, body, token=..., grant=...)``: the status and the answer."""
    async with aiohttp.ClientSession() as session:

        async def one(method: str, path: str, body=None, token: str = token, grant: str = grant()):
            given = {"Authorization": f"Bearer {token}", "X-A2A-Grant": grant}
            given = {key: value for key, value in given.items() if value not in ("", "Bearer ")}
            async with session.request(method, server.url + path, json=body, headers=given) as answer:
                return answer.status, await answer.json() if answer.status != 204 else None

        yield one


async def test_a2a_packs_own_client_has_a_whole_life(client, home, docker_engine):
    box = await client.create(SandboxSpec("mine", image=DEFAULT, memory_mib=64, labels={"team": "x"}))
    assert docker_engine.inspect(box.name)["HostConfig"]["Memory"] == 64 << 20
    done = await box.exec("sh", ["-c", "echo out; echo err >&2; exit 4"])
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 4)
    assert (await box.shell("echo $((6*7)) > /tmp/kept; cat /tmp/kept")).output == "42\n"
    assert await client.list() == [box.name]
    assert (await (await client.get(box.name)).exec("cat", ["/tmp/kept"])).stdout == "42\n"
    assert (await box.exec("no-such-program")).exit_code == 127
    await box.stop()
    await client.remove(box.name)
    assert (await client.run_python("print(sum(range(10)))")).stdout == "45\n"
    assert (await client.run_shell("exit 7", image=IMAGE)).exit_code == 7
    assert (await client.run_shell("sleep 60", timeout_seconds=1)).exit_code == 124
    assert home.names() == []
    for picture in ("evil:1", "sandbox-console-test:python"):
        with pytest.raises(SandboxRuntimeError) as caught:
            await client.run_shell("true", image=picture)
        assert caught.value.status_code == 400
    rows = [json.loads(line) for line in home.run("audit", "ls", "--json", "--limit", "50").stdout.splitlines()]
    assert {row["actor"] for row in rows} == {"a2a:tester"}


async def test_each_refusal_has_its_status(call, home):
    status, made = await call("POST", "/v1/sandboxes", BUCKET)
    assert status == 200, made
    path = f"/v1/sandboxes/{made['name']}"
    run = {**BUCKET, "script": "true"}
    tries = [
        ("POST", "/v1/run_shell", run, {"token": ""}, 401),
        ("POST", "/v1/run_shell", run, {"grant": ""}, 401),
        ("POST", "/v1/run_shell", run, {"grant": grant()[:-4] + "AAAA"}, 403),
        ("POST", "/v1/run_shell", run, {"grant": grant("agent-two")}, 403),
        ("POST", f"{path}/exec", {"script": "true"}, {"grant": grant("agent-two")}, 403),
        ("POST", f"{path}/exec", {"script": "true"}, {"grant": grant(audience="other")}, 403),
        ("POST", f"{path}/exec", {"script": "true"}, {"token": home.token("second", "api")}, 403),
        ("DELETE", path, None, {"grant": grant(audience="other")}, 403),
        ("POST", "/v1/sandboxes/sb-000000000000/exec", {"script": "true"}, {}, 404),
        ("POST", "/v1/run_shell", run | {"memory_mib": 257}, {}, 400),
        ("POST", "/v1/run_shell", run | {"cpus": 3}, {}, 400),
        ("POST", "/v1/run_shell", run | {"bucket": "../etc"}, {}, 400),
        ("DELETE", "/v1/sandboxes/nobody", None, {}, 204),
    ]
    for method, where, body, how, expected in tries:
        status, told = await call(method, where, body, **how)
        assert status == expected, (method, where, how, told)
    assert (await call("POST", "/v1/sandboxes", BUCKET))[0] == 200
    status, told = await call("POST", "/v1/sandboxes", BUCKET)
    assert (status, "the bucket has 2" in told["detail"]) == (429, True), told
    status, told = await call("POST", f"{path}/exec", {"cmd": "sleep", "args": ["100"], "timeout_seconds": 1})
    assert (status, told["exit_code"]) == (200, 124)
    assert made["name"] not in home.names(), "its sandbox went with it"


async def test_secrets_and_egress_are_the_templates(call):
    """Its engine has no image for gateways: with egress a network cannot be set up, which is 126."""
    told = {**BUCKET, "script": 'echo "${KEY:-none}" | rev', "labels": {"template": "keyed"}}
    assert (await call("POST", "/v1/run_shell", told))[1]["stdout"] == SECRET[::-1] + "\n"
    assert SECRET not in json.dumps(await call("POST", "/v1/run_shell", told | {"script": "echo $KEY"}))
    told = {**BUCKET, "script": "true", "labels": {"template": "out"}}
    status, done = await call("POST", "/v1/run_shell", told)
    assert (status, done["exit_code"]) == (200, 126), done
    status, done = await call("POST", "/v1/run_shell", told | {"network_disabled": True})
    assert (status, done["exit_code"]) == (200, 0), done


async def test_an_image_cannot_give_itself_to_a_caller_or_an_assistant(call, home, mcp_url, docker_engine):
    """The engine adds an image's labels to its containers; what says whose a sandbox is stands in its spec."""
    made = home.run("create", "hers", "--image", "sandbox-console-test:labels", "--", "sleep", "1000")
    assert made.returncode == 0, made
    assert docker_engine.inspect("hers")["Config"]["Labels"]["a2a.token"] == "agents"
    assert (await call("GET", "/v1/sandboxes"))[1] == []
    assert (await call("POST", "/v1/sandboxes/hers/exec", {"script": "true"}))[0] == 404
    async with mcp_client(mcp_url, home.token("carol", "mcp")) as assistant:
        assert await tool(assistant, "list") == {"sandboxes": []}
        await refused(assistant, "exec", name="hers", command=["true"])
    with serving(home, "--api", "--no-page") as another:
        assert not [line for line in another.lines if "removed" in line]
    assert home.names() == ["hers"], "it was taken for the one-shot sandbox of a server that was killed"


async def test_a_life_of_a_sandbox_over_mcp(mcp_url, home, tidy):
    async with mcp_client(mcp_url, home.token("alice", "mcp")) as alice:
        made = await tool(alice, "create", template="job", name="one")
        done = await tool(alice, "exec", name="one", command=["sh", "-c", "echo out; echo err >&2; exit 3"])
        assert done == {"exit_code": 3, "timed_out": False, "stdout": "out\n", "stderr": "err\n"}
        late = await tool(alice, "exec", name="one", command=["sleep", "9"], timeout_s=1)
        assert (late["timed_out"], late["exit_code"]) == (True, 124)
        await tool(alice, "write_file", name="one", path="/tmp/a/b", content="text")
        assert (await tool(alice, "read_file", name="one", path="/tmp/a/b"))["text"] == "text"
        assert "hello" in (await tool(alice, "logs", name=made["ref"]))["log"]
        assert (await tool(alice, "why", name="one"))["why"] == "it has not ended"
        assert (await tool(alice, "inspect", name="one"))["image"] == IMAGE
        assert "without egress" in await refused(alice, "ask_host", name="one", host="pypi.org")
        async with mcp_client(mcp_url, home.token("bob", "mcp")) as bob:
            assert "somebody else made it" in await refused(bob, "remove", name="one")
        await tool(alice, "remove", name="one")
        assert await tool(alice, "list") == {"sandboxes": []}
    rows = [json.loads(line) for line in home.run("audit", "ls", "--json", "--limit", "2").stdout.splitlines()]
    assert [(row["action"], row["actor"], row["outcome"]) for row in rows] == [
        ("remove", "mcp:alice", "ok"),
        ("remove", "mcp:bob", "denied"),
    ]


@pytest.mark.parametrize("who", ["client", "server"])
def test_one_that_is_killed_leaves_no_one_shot(home, token, tidy, who):
    with serving(home, "--api", "--no-page") as server:
        process, mark = dying(server, token)
        if who == "client":
            process.send_signal(signal.SIGKILL)
            assert eventually(lambda: not running(mark))
            assert eventually(lambda: home.names() == [], 60)
        else:
            server.stop(signal.SIGKILL)
    process.wait()
    if who == "server":
        with serving(home, "--api", "--no-page") as server:
            assert any("removed 1 sandboxes" in line for line in server.lines)
    assert home.names() == []
    assert eventually(lambda: not running(mark))


@pytest.mark.parametrize("what", ["api", "mcp"])
async def test_a_command_of_a_kept_sandbox_ends_with_its_server(home, token, tidy, what):
    """The sandbox stays, and so would the command, as the engine runs it."""
    mark = f"7{time.monotonic_ns() % 10**8}"
    with serving(home, "--api", "--mcp", "--no-page", what=what) as server:
        if what == "api":
            client = HttpSandboxClient(
                server.url, default_workspace="agent-one", timeout_seconds=60, auth_token=token, grant_token=grant()
            )
            box = await client.create(SandboxSpec("kept", image=DEFAULT, memory_mib=64))
            begun = asyncio.create_task(box.exec("sleep", [mark]))
            assert await asyncio.to_thread(eventually, lambda: running(mark), 60)
            server.stop(signal.SIGKILL)
            assert isinstance((await asyncio.gather(begun, return_exceptions=True))[0], Exception)
        else:
            argv = [sys.executable, "-c", CALLER, server.url, home.token("keeper", "mcp"), mark]
            caller = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
            assert await asyncio.to_thread(eventually, lambda: running(mark), 60)
            server.stop(signal.SIGKILL)
            caller.kill()
            caller.wait()
    assert await asyncio.to_thread(eventually, lambda: not running(mark), 60)
    assert len(home.names()) == 1, "only the command has ended"


CALLER = """
import asyncio, sys
from tests.servers.test_mcp_http import client
async def main(url, token, mark):
    async with client(url, token) as one:
        await one.call_tool("create", {"template": "job", "name": "kept"})
        await one.call_tool("exec", {"name": "kept", "command": ["sleep", mark]})
asyncio.run(main(*sys.argv[1:]))
"""
