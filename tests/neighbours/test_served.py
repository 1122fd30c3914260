"""``serve --microsandbox`` in this process: whose sandbox it is, what is refused, and the codes of errors."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.require import missing

from sandbox_console.model.access import Access
from sandbox_console.model.action import Create, Remove
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.servers import refusal_delay
from sandbox_console.servers.microsandbox.server import served
from sandbox_console.service import Consent, open_console
from sandbox_console.service.people.users import Users
from sandbox_console.service.server_options import maker
from sandbox_console.service.tokens import Tokens
from sandbox_console.testing.fake_backend import FakeBackend

TEXT = """
[templates.plain]
image = "host"
limits = "best-effort"
[microsandbox]
backend = "{backend}"
template = "plain"
max_sandboxes = 3
max_memory_mib = 1024
max_timeout_s = 20
{more}
"""
CONFIG = {"image": "microsandbox/python", "memory": 64, "cpus": 1}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(refusal_delay, "REFUSAL_S", 0.0)
    monkeypatch.setattr(refusal_delay, "APART_S", 0.0)
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


class Client:
    """``await client("sandbox.start", sandbox=...)`` returns the status and the body; ``as_`` is another token."""

    def __init__(self, http: TestClient, tokens: Tokens) -> None:
        self.http = http
        self._texts = {name: tokens.add(name, ["microsandbox"])[1] for name in ("one", "two")}
        self._texts |= {"api": tokens.add("api", ["api"])[1], "wrong": f"sct_{'0' * 12}_{'x' * 43}", "": ""}

    async def __call__(self, method: str, as_: str = "one", header: str = "Authorization", **params):
        body = {"jsonrpc": "2.0", "method": method, "params": params, "id": 7}
        headers = {header: f"Bearer {self._texts[as_]}"} if as_ else {}
        async with self.http.post("/api/v1/rpc", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def ok(self, method: str, **params):
        status, body = await self(method, **params)
        assert (status, body.get("id")) == (200, 7), body
        return body["result"]


@asynccontextmanager
async def client_of(home, backend: str = "fake", more: str = "", **how):
    (home / "config.toml").write_text(TEXT.format(backend=backend, more=more))
    tokens = Tokens(home / "tokens.json")
    async with (
        open_console(config_file=home / "config.toml", **how) as console,
        served(console, tokens, ("served.test",)) as app,
        TestClient(TestServer(app), headers={"Host": "served.test"}) as http,
    ):
        client = Client(http, tokens)
        client.console = console  # type: ignore[attr-defined]
        yield client


@pytest.fixture
async def fake(home):
    backend = FakeBackend()
    async with client_of(home, backends=[backend]) as client:
        client.backend = backend  # type: ignore[attr-defined]
        yield client


async def test_a_token_has_its_own_sandboxes_and_namespaces(fake):
    for namespace in ("default", "team"):
        await fake.ok("sandbox.start", sandbox="web", namespace=namespace, config=CONFIG)
    listed = (await fake.ok("sandbox.metrics.get", namespace="*"))["sandboxes"]
    assert sorted((one["namespace"], one["name"], one["running"]) for one in listed) == [
        ("default", "web", True), ("team", "web", True),
    ]  # fmt: skip
    assert len((await fake.ok("sandbox.metrics.get", namespace="team"))["sandboxes"]) == 1
    assert await fake("sandbox.metrics.get", as_="two", namespace="*") == (
        200, {"jsonrpc": "2.0", "result": {"sandboxes": []}, "id": 7},
    )  # fmt: skip
    status, body = await fake("sandbox.stop", as_="two", sandbox="web", namespace="team")
    assert (status, body["code"]) == (404, 4001)
    await fake.ok("sandbox.start", sandbox="bare", config=CONFIG)
    assert [one["name"] for one in (await fake.ok("sandbox.metrics.get", sandbox="bare"))["sandboxes"]] == ["bare"]
    for place in ({"namespace": "default"}, {"namespace": "team"}):
        await fake.ok("sandbox.stop", sandbox="web", **place)
    await fake.ok("sandbox.stop", sandbox="bare")
    assert not fake.backend.sandboxes


async def test_what_is_asked_for_is_what_is_made_and_audited_for_its_token(fake):
    config = CONFIG | {"envs": ["A=1=2"], "workdir": "/tmp", "exec": "echo hi", "shell": "/bin/bash"}
    assert "started" in await fake.ok("sandbox.start", sandbox="web", namespace="default", config=config)
    [found] = await fake.backend.list()
    spec = found.spec
    assert (dict(spec.env), spec.workdir, spec.memory_mib, spec.cpus) == ({"A": "1=2"}, "/tmp", 64, 1.0)
    assert (spec.command, spec.image, spec.egress) == (("/bin/bash", "-c", "echo hi"), "host", ())
    assert spec.labels["msb.token"] == "one"
    first = found.ref
    await fake.ok("sandbox.start", sandbox="web", namespace="default", config=CONFIG)
    [found] = await fake.backend.list()
    assert found.ref != first, "one that runs is replaced, as the old server does"
    await fake.ok("sandbox.start", sandbox="web", namespace="default")
    rows = await fake.console.history(AuditQuery(action="create"))
    assert {row.attempt.actor for row in rows} == {"token:one"}


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"image": "evil/image"}, 403, 3001),
        ({"memory": 4096}, 403, 3001),
        ({"cpus": 64}, 403, 3001),
        ({"volumes": ["/:/host"]}, 400, 2001),
        ({"ports": ["80:80"]}, 400, 2001),
        ({"scripts": {"start": "x"}}, 400, 2001),
        ({"envs": ["no equals"]}, 400, 2001),
        ({"memory": "much"}, 400, 2001),
    ],
)
async def test_what_is_not_allowed_is_refused_with_its_code(fake, change, status, code):
    told, body = await fake("sandbox.start", sandbox="web", namespace="default", config=CONFIG | change)
    assert (told, body["code"]) == (status, code), body
    assert body["error"]
    assert not fake.backend.sandboxes


async def test_a_users_token_has_that_users_role_and_labels(fake, home):
    users = Users(home / "tokens.json")
    users.add("vera", Access("viewer"))
    users.add("otto", Access("operator", {"team": "x"}))
    tokens = Tokens(home / "tokens.json")
    fake._texts |= {name: tokens.add(f"{name}.1", ["microsandbox"], user=name)[1] for name in ("vera", "otto")}
    place = {"sandbox": "web", "namespace": "default"}
    status, body = await fake("sandbox.start", as_="vera", **place, config=CONFIG)
    assert (status, body["code"]) == (403, 3001), body
    assert (await fake("sandbox.start", as_="otto", **place, config=CONFIG))[0] == 200
    [made] = await fake.backend.list()
    assert made.labels["team"] == "x"
    [row, *_] = await fake.console.history(AuditQuery(action="create"))
    assert row.attempt.actor == "microsandbox:otto"
    users.remove("otto")
    assert (await fake("sandbox.metrics.get", as_="otto"))[0] == 401


async def test_a_sandbox_whose_labels_a_caller_of_the_api_chose_is_nobody_elses(fake):
    """Its maker would else be sent the code that the owner of the name runs."""
    forged = {"msb.token": "one", "msb.namespace": "default", "msb.name": "web"}
    for name, labels in (("own", forged), ("forged", {"a2a.token": "agents", **forged})):
        spec = SandboxSpec(name, image="host", labels=labels, limits="best-effort")
        made = await fake.console.perform(Create(spec, "fake", "local")).result()
        listed = (await fake.ok("sandbox.metrics.get", namespace="*"))["sandboxes"]
        assert [one["name"] for one in listed] == (["web"] if name == "own" else [])
        await fake.console.perform(Remove(made.ref, force=True), consent=Consent(yes=True)).result()
    assert maker({"mcp.caller": "mcp:ada"}, "mcp.caller") == "mcp:ada"
    assert maker({"mcp.caller": "mcp:ada", "a2a.token": "x"}, "mcp.caller") == ""


async def test_an_operators_token_names_no_folder_of_the_machine_as_an_image(home):
    async with client_of(home, more='images = ["*"]', backends=[FakeBackend()]) as client:
        Users(home / "tokens.json").add("otto", Access("operator"))
        client._texts["otto"] = Tokens(home / "tokens.json").add("otto.1", ["microsandbox"], user="otto")[1]
        place, folder = {"sandbox": "web", "namespace": "default"}, {**CONFIG, "image": "dir:/srv/root"}
        status, body = await client("sandbox.start", as_="otto", **place, config=folder)
        assert (status, body["code"]) == (403, 3001), body
        assert (await client("sandbox.start", as_="otto", **place, config=CONFIG))[0] == 200
        assert (await client("sandbox.start", **place, config=folder))[0] == 200, "nobody's token may do everything"


@pytest.mark.parametrize("name", ["", "-x", "a/b", "x" * 64, "../x", "web\n"])
async def test_a_bad_name_is_invalid_input(fake, name):
    for place in ({"sandbox": name, "namespace": "default"}, {"sandbox": "web", "namespace": name or "a b"}):
        status, body = await fake("sandbox.start", **place, config=CONFIG)
        assert (status, body["code"]) == (400, 2001), body


async def test_a_sandbox_with_half_of_the_labels_is_nobodys(fake):
    spec = SandboxSpec("theirs", image="host", labels={"msb.token": "one"})
    await fake.console.perform(Create(spec, "fake", "local")).result()
    assert await fake.ok("sandbox.metrics.get") == {"sandboxes": []}


async def test_errors_have_the_codes_of_the_old_server(fake):
    for as_, code in (("", 1001), ("wrong", 1004), ("api", 1004)):
        status, body = await fake("sandbox.metrics.get", as_=as_)
        assert (status, body["code"]) == (401, code), as_
    assert (await fake("sandbox.metrics.get", header="Proxy-Authorization"))[0] == 200
    status, body = await fake("sandbox.nonsense")
    assert (status, body["error"]["code"]) == (404, -32601)
    for method in ("sandbox.command.run", "sandbox.repl.run", "sandbox.stop"):
        asked = {"sandbox": "no", "namespace": "default", "command": "ls", "code": "1", "language": "python"}
        status, body = await fake(method, **asked)
        assert (status, body["code"]) == (404, 4001), method
    await fake.backend.die("the fake engine was stopped")
    status, body = await fake("sandbox.metrics.get")
    assert (status, body["code"]) == (503, 5002)
    assert "the fake engine was stopped" in body["error"]


async def test_what_is_no_json_rpc_is_told(fake):
    headers = {"Authorization": f"Bearer {fake._texts['one']}"}
    for data, code in ((b"{", -32700), (b"[]", -32700), (b"[" * 100_000, -32700), (b'{"method": "x"}', -32600)):
        async with fake.http.post("/api/v1/rpc", data=data, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, code)
    async with fake.http.post("/api/v1/rpc", data=io.BytesIO(b"x" * (5 << 20)), headers=headers) as answer:
        assert answer.status == 413
    async with fake.http.get("/api/v1/health") as answer:
        assert answer.status == 200
    for more in ({"Host": "evil.test"}, {"Origin": "https://evil.test"}):
        async with fake.http.post("/api/v1/rpc", json={}, headers=headers | more) as answer:
            assert answer.status in (403, 421), more


async def test_there_is_a_most_of_sandboxes_also_when_all_start_at_once(fake):
    starts = (fake("sandbox.start", sandbox=f"s{n}", namespace="default", config=CONFIG) for n in range(6))
    told = [status for status, _ in await asyncio.gather(*starts)]
    assert sorted(told) == [200, 200, 200, 403, 403, 403]
    assert len(fake.backend.sandboxes) == 3


# -- with real sandboxes


@pytest.fixture
async def real(home):
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    async with client_of(home, backend="bubblewrap", only_backend="bubblewrap") as client:
        await client.ok("sandbox.start", sandbox="web", namespace="default", config=CONFIG)
        yield client
        await client("sandbox.stop", sandbox="web", namespace="default")


FLOOD = """
import os
for fd in range(3, 20):
    try:
        while os.write(fd, b"x" * 65536):
            pass
    except OSError:
        pass
"""


def repl(client, code, language="python", **more):
    return client("sandbox.repl.run", sandbox="web", namespace="default", language=language, code=code, **more)


@pytest.mark.parametrize("language", ["python", "nodejs"])
async def test_an_interpreter_keeps_its_variables_and_tells_errors(real, language):
    python = language == "python"
    for code in (
        "x = 41" if python else "const x = 41",
        "def f(): return x + 1" if python else "function f() { return x + 1 }",
    ):
        assert (await repl(real, code, language))[1]["result"]["status"] == "success"
    done = (await repl(real, "f()", language))[1]["result"]
    assert (done["status"], done["language"], done["output"]) == (
        "success",
        language,
        [{"stream": "stdout", "text": "42"}],
    )
    done = (await repl(real, "1/0" if python else "throw new Error('bad')", language))[1]["result"]
    assert done["status"] == "error"
    assert done["output"][-1]["stream"] == "stderr"
    printing = (
        "print('a\\nb'); import sys; print('e', file=sys.stderr)"
        if python
        else "console.log('a\\nb'); console.error('e')"
    )
    done = (await repl(real, printing, language))[1]["result"]
    assert [(one["stream"], one["text"]) for one in done["output"]] == [
        ("stdout", "a"),
        ("stdout", "b"),
        ("stderr", "e"),
    ]


async def test_an_interpreter_that_hangs_dies_or_floods_is_replaced(real):
    await repl(real, "x = 1")
    status, body = await repl(real, "while True: pass", timeout=0.5)
    assert (status, "longer than 0.5 s" in body["error"]) == (500, True), body
    assert (await repl(real, "x"))[1]["result"]["status"] == "error", "its variables are gone"
    status, body = await repl(real, "import os; os._exit(3)")
    assert (status, body["code"]) == (400, 2001)
    done = (await repl(real, "print('y' * (8 << 20))"))[1]["result"]
    assert sum(len(line["text"]) for line in done["output"]) <= 1 << 20
    done = (await repl(real, "import subprocess; subprocess.run(['echo', 'from a child'])"))[1]["result"]
    assert {"stream": "stdout", "text": "from a child"} in done["output"]
    status, body = await repl(real, "1", "cobol")
    assert (status, body["code"]) == (400, 2001)
    status, body = await repl(real, FLOOD)
    assert (status, "without an end" in body["error"]) == (500, True), body


async def test_a_command_has_its_streams_and_code(real):
    place = {"sandbox": "web", "namespace": "default"}
    done = await real.ok(
        "sandbox.command.run", **place, command="sh", args=["-c", "echo one; echo; echo two >&2; exit 3"]
    )
    assert done == {
        "command": "sh", "args": ["-c", "echo one; echo; echo two >&2; exit 3"], "exit_code": 3, "success": False,
        "output": [{"stream": "stdout", "text": "one"}, {"stream": "stdout", "text": ""}, {"stream": "stderr", "text": "two"}],
    }  # fmt: skip
    assert (await real.ok("sandbox.command.run", **place, command="no-such-command"))["exit_code"] == 127
    assert (await real.ok("sandbox.command.run", **place, command="sleep", args=["60"], timeout=0.3))[
        "exit_code"
    ] == 124
    [row] = (await real.ok("sandbox.metrics.get", **place))["sandboxes"]
    assert row["running"]
    assert row["memory_usage"] >= 1
    assert row["cpu_usage"] is not None
