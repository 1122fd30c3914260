"""A secret's value that a program sends as a command, by HTTP or by MCP: no file of ours has it raw."""

from __future__ import annotations

import json

import pytest
from tests.servers.serving import SECRET, Home
from tests.servers.test_mcp import ALL, inside
from tests.servers.test_mcp import call as tool
from tests.support.require import missing

SENT = ([SECRET], ["sh", "-c", f"exit 3 # {SECRET}"], ["true", f"--token={SECRET}", SECRET])


def files_with_it(home) -> list[str]:
    found = (path for path in home.path.rglob("*") if path.is_file())
    return [str(path) for path in found if SECRET.encode() in path.read_bytes()]


def commands(home) -> str:
    rows = home.run("audit", "ls", "--json", "--limit", "20", "--action", "exec").stdout.splitlines()
    assert len(rows) >= len(SENT)
    return "\n".join(home.run("audit", "show", str(json.loads(row)["id"])).stdout for row in rows)


async def test_by_http(call, tidy, home):
    body = {"bucket": "agent-one"}
    async with call("POST", "/v1/sandboxes", body) as answer:
        name = (await answer.json())["name"]
    for program, *args in SENT:
        async with call("POST", f"/v1/sandboxes/{name}/exec", {"cmd": program, "args": args}) as answer:
            assert answer.status == 200
    script = {"script": f"exit 3 # {SECRET}"}
    for path, sent in (("/v1/run_shell", {**body, **script}), (f"/v1/sandboxes/{name}/exec", script)):
        async with call("POST", path, sent) as answer:
            found = await answer.json()
            assert found.get("exit_code") == 3, found
    assert SECRET not in commands(home)
    assert "[secret]" in commands(home)
    assert files_with_it(home) == []


async def test_by_mcp(tmp_path):
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    home = Home(tmp_path / "home")
    home.configure(ALL)
    async with inside(home) as client:
        await tool(client, "create", template="job", name="one")
        for argv in SENT:
            await tool(client, "exec", name="one", command=argv)
        await tool(client, "remove", name="one")
    assert SECRET not in commands(home)
    assert files_with_it(home) == []
