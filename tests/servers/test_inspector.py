"""The official inspector of the Model Context Protocol, as its command line: over stdio and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.serving import Home, serving
from tests.servers.test_mcp import home
from tests.support import inspector
from tests.support.require import missing

__all__ = ["home"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # npm installs it once: 300 MB


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    if reason := missing("mcp-inspector"):
        pytest.skip(f"mcp-inspector: {reason}")


class Inspector:
    """Runs it on one server. ``inspect(method, *words)`` gives what it printed; a failure is its error's words."""

    def __init__(self, home: Home, *server: str) -> None:
        own = Path(home.path).parent / "inspector"
        own.mkdir(exist_ok=True)
        self._env = home.environment | {"HOME": str(own), "NO_COLOR": "1"}
        given = [
            word for name in ("SANDBOX_CONSOLE_HOME", "SERVED_KEY") for word in ("-e", f"{name}={self._env[name]}")
        ]
        self._words = [*inspector.command(), *server, *([] if server[0].startswith("http") else given)]

    def __call__(self, method: str, *words: str) -> Any:
        argv = [*self._words, "--method", method, "--connect-timeout", "80000", *words]  # in ms
        done = subprocess.run(argv, env=self._env, capture_output=True, text=True, check=False, timeout=100)
        return json.loads(done.stdout) if done.returncode == 0 else done.stdout + done.stderr

    def tool(self, name: str, /, **arguments: Any) -> Any:
        given = [word for key, value in arguments.items() for word in ("--tool-arg", f"{key}={value}")]
        said = self("tools/call", "--tool-name", name, *given)
        return said if isinstance(said, str) else json.loads(said["content"][0]["text"])["untrusted"]


def test_over_stdio_it_lists_makes_enters_reads_and_removes(home):
    inspect = Inspector(home, sys.executable, "-m", "sandbox_console", "mcp")
    tools = {one["name"]: one for one in inspect("tools/list", "--strict")["tools"]}
    assert {"list", "create", "exec", "ask_host", "remove"} < set(tools)
    assert [one for one in tools if tools[one]["annotations"]["readOnlyHint"]] == [
        "list",
        "inspect",
        "logs",
        "why",
        "denied",
    ]
    assert inspect.tool("create", template="job", name="one")["name"] == "one"
    done = inspect.tool("exec", name="one", command='["sh", "-c", "echo out; exit 3"]')
    assert (done["exit_code"], done["stdout"]) == (3, "out\n")
    found = inspect("resources/read", "--uri", "sandbox://one/logs")
    assert "hello" in found["contents"][0]["text"]
    assert "no sandbox that you may see" in json.dumps(inspect("resources/read", "--uri", "sandbox://other/logs"))
    assert "not found" in inspect.tool("egress_allow", name="one", host="pypi.org")
    assert inspect.tool("remove", name="one") == {"removed": "one"}


def test_over_http_it_needs_a_token(home):
    token = home.token("inspector", "mcp")
    with serving(home, "--mcp", "--no-page", what="mcp") as server:
        inspect = Inspector(home, server.url, "--transport", "http", "--header", f"Authorization: Bearer {token}")
        assert "exec" in {one["name"] for one in inspect("tools/list")["tools"]}
        assert inspect.tool("create", template="job", name="two")["name"] == "two"
        assert [one["name"] for one in inspect.tool("list")["sandboxes"]] == ["two"]
        assert inspect.tool("remove", name="two") == {"removed": "two"}
        stranger = Inspector(home, server.url, "--transport", "http", "--header", "Authorization: Bearer sct_0")
        assert "auth_required" in stranger("tools/list")
    rows = [json.loads(line) for line in home.run("audit", "ls", "--json", "--limit", "2").stdout.splitlines()]
    assert {row["actor"] for row in rows} == {"mcp:inspector"}
