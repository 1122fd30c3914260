"""The HTTP API as a process: its contract, whose sandbox is whose, and what is on record."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from tests.servers.serving import SECRET, grant

BUCKET = {"bucket": "agent-one"}


async def made(call, bucket: str = "agent-one", **fields) -> str:
    async with call("POST", "/v1/sandboxes", {"bucket": bucket, **fields}, grant=grant(bucket)) as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["name"]


async def run(call, name: str, **body) -> dict:
    async with call("POST", f"/v1/sandboxes/{name}/exec", body) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_a_life_of_a_sandbox(call, tidy, home):
    body = {"name": "mine", "bucket": "agent-one", "image": "python:3.11-slim", "memory_mib": 512, "cpus": 1}
    async with call("POST", "/v1/sandboxes", body) as answer:
        found = await answer.json()
    assert answer.status == 200, found
    name = found["name"]
    assert found == {"name": name, "image": "python:3.11-slim", "bucket": "agent-one"}
    assert name.startswith("sb-")
    async with call("GET", "/v1/sandboxes", grant="") as answer:
        assert await answer.json() == [name]
    done = await run(call, name, cmd="sh", args=["-c", 'echo "$0 $1"; echo e >&2; exit 3', "a b", "*"])
    assert done == {"stdout": "a b *\n", "stderr": "e\n", "exit_code": 3, "truncated": False, "files": []}
    assert (await run(call, name, script="echo $((6*7)) | cat"))["stdout"] == "42\n"
    for _ in range(2):
        async with call("DELETE", f"/v1/sandboxes/{name}") as answer:
            assert answer.status == 204
    assert home.names() == []
    async with call("POST", f"/v1/sandboxes/{name}/exec", {"script": "true"}) as answer:
        assert answer.status == 404


async def test_each_call_is_on_record_as_the_grants_subject(call, tidy, home):
    name = await made(call)
    await run(call, name, script="true")
    async with call("POST", f"/v1/sandboxes/{name}/exec", {"script": "true"}, grant=grant(audience="other")) as answer:
        assert answer.status == 403
        refused = await answer.json()
    async with call("DELETE", f"/v1/sandboxes/{name}") as answer:
        assert answer.status == 204
    rows = [json.loads(line) for line in home.run("audit", "ls", "--json", "--limit", "4").stdout.splitlines()]
    told = [(row["action"], row["actor"], row["outcome"]) for row in rows]
    assert told == [
        ("remove", "a2a:tester", "ok"),
        ("exec", "a2a:other", "denied"),
        ("exec", "a2a:tester", "ok"),
        ("create", "a2a:tester", "ok"),
    ]
    assert refused["audit_id"] in [row.get("id", row.get("seq")) for row in rows]


async def test_who_is_let_in(call, home, tidy):
    name = await made(call)
    page = home.token(f"page-{time.monotonic_ns()}", "page", "mcp")
    forged = grant()[:-4] + "AAAA"
    tries = [
        ("POST", "/v1/run_shell", {"token": ""}, 401),
        ("POST", "/v1/run_shell", {"token": "sct_0"}, 401),
        ("POST", "/v1/run_shell", {"token": page}, 401),
        ("GET", "/v1/sandboxes", {"token": ""}, 401),
        ("POST", "/v1/run_shell", {"grant": ""}, 401),
        ("POST", "/v1/run_shell", {"grant": forged}, 403),
        ("POST", "/v1/run_shell", {"grant": grant(ttl_seconds=-10)}, 403),
        ("POST", "/v1/run_shell", {"grant": "x.y"}, 403),
        ("POST", "/v1/run_shell", {"grant": grant("agent-two")}, 403),
        ("POST", f"/v1/sandboxes/{name}/exec", {"grant": grant("agent-two")}, 403),
        ("DELETE", f"/v1/sandboxes/{name}", {"grant": grant(audience="x")}, 403),
        ("POST", "/v1/run_shell", {"Origin": "http://evil.example"}, 403),
        ("POST", "/v1/run_shell", {"Host": "evil.example"}, 421),
    ]
    for method, path, how, status in tries:
        body = None if method != "POST" else {**BUCKET, "script": "true"} if "run" in path else {"script": "true"}
        async with call(method, path, body, **how) as answer:
            assert answer.status == status, (method, path, how, await answer.text())
            assert set(await answer.json()) == {"detail", "code", "hint", "audit_id"}
    async with call("GET", "/healthz", token="", grant="") as answer:
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
    async with call("GET", "/v1/sandboxes", grant=grant("agent-two")) as answer:
        assert await answer.json() == []


async def test_what_callers_may_not_ask_for(call, tidy):
    for more, status in (
        ({"image": "evil:1"}, 400),
        ({"memory_mib": 2048}, 400),
        ({"cpus": 3}, 400),
        ({"labels": {"template": "nobody"}}, 400),
        ({"labels": {"a2a.token": "x"}}, 400),
        ({"labels": {"sandbox-console.x": "x"}}, 400),
        ({"labels": {"msb.token": "somebody", "msb.name": "dev"}}, 400),
        ({"labels": {"mcp.caller": "somebody"}}, 400),
        ({"secrets": ["KEY"]}, 400),
        ({"bucket": "../etc"}, 400),
        ({"bucket": "user-1-files"}, 403),
    ):
        async with call("POST", "/v1/run_shell", BUCKET | {"script": "true"} | more) as answer:
            assert answer.status == status, (more, await answer.text())
    name = await made(call)
    for body in ({}, {"script": "x", "cmd": "x"}, {"script": "x", "args": ["y"]}, {"cmd": ""}, [], "x", {"cmd": "a\0"}):
        async with call("POST", f"/v1/sandboxes/{name}/exec", body) as answer:
            assert answer.status == 400, (body, await answer.text())


async def test_caps_are_of_all_and_of_a_bucket(call, tidy):
    answers = await asyncio.gather(*(call("POST", "/v1/sandboxes", BUCKET) for _ in range(4)))
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 429]
    for bucket in ("agent-b", "agent-c"):
        for _ in range(2 if bucket == "agent-b" else 1):
            await made(call, bucket)
    async with call("POST", "/v1/sandboxes", {"bucket": "agent-d"}, grant=grant("agent-d")) as answer:
        assert answer.status == 429
        assert answer.headers["Retry-After"]


async def test_a_template_gives_what_callers_cannot_ask_for(call, tidy):
    body = {**BUCKET, "script": 'echo "${KEY:-none}" | rev', "labels": {"template": "keyed"}}
    async with call("POST", "/v1/run_shell", body) as answer:
        assert (await answer.json())["stdout"] == SECRET[::-1] + "\n"
    body["script"] = "echo $KEY"
    async with call("POST", "/v1/run_shell", body) as answer:
        assert SECRET not in await answer.text()
    async with call("POST", "/v1/run_shell", body | {"script": 'echo "${KEY:-none}"', "labels": {}}) as answer:
        assert (await answer.json())["stdout"] == "none\n"


async def test_a_time_that_runs_out_is_124_and_the_end_of_the_sandbox(call, tidy, home):
    name = await made(call)
    done = await run(call, name, cmd="sleep", args=["100"], timeout_seconds=0.3)
    assert done["exit_code"] == 124
    assert home.names() == []
    async with call("POST", "/v1/run_python", {**BUCKET, "code": "print(2**10)"}) as answer:
        assert (await answer.json())["stdout"] == "1024\n"
    async with call("POST", "/v1/run_shell", {**BUCKET, "script": "sleep 9", "timeout_seconds": 0.3}) as answer:
        assert (await answer.json())["exit_code"] == 124
    assert home.names() == []
    done = await run(call, await made(call), cmd="/no/such/thing")
    assert done["exit_code"] == 127


@pytest.mark.parametrize("path", ["/v1/run_shell", "exec"])
async def test_a_client_that_goes_away_ends_its_command(call, tidy, home, path):
    name = "" if path != "exec" else await made(call)
    path = f"/v1/sandboxes/{name}/exec" if name else path
    mark = f"4{time.monotonic_ns() % 10**8}"
    asking = asyncio.ensure_future(call("POST", path, ({} if name else BUCKET) | {"script": f"sleep {mark}"}))
    while mark not in await commands():
        await asyncio.sleep(0.05)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    for _ in range(200):
        if mark not in await commands() and home.names() == ([name] if name else []):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(home.names())


async def commands() -> str:
    """The command lines of every process of this machine."""

    def read() -> str:
        from pathlib import Path

        found = []
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found.append(one.read_text())
            except OSError:
                continue
        return "\n".join(found)

    return await asyncio.to_thread(read)
