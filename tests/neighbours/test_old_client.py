"""The real client of microsandbox 0.1.8 against ``serve --microsandbox`` as a process."""

from __future__ import annotations

import json
import shutil

import pytest
from tests.servers.serving import Home, serving
from tests.support import old_microsandbox
from tests.support.require import missing

CONFIG = """
[backends.docker]
enabled = false
[backends.podman]
enabled = false
[backends.microsandbox]
enabled = false
[templates.plain]
image = "host"
limits = "best-effort"
[microsandbox]
backend = "bubblewrap"
template = "plain"
"""
LIFE = """
import asyncio, json, sys
from microsandbox import NodeSandbox, PythonSandbox

async def life():
    kind = {"python": PythonSandbox, "node": NodeSandbox}[sys.argv[1]]
    async with kind.create(name="real", namespace="team") as box:
        told = {"running": await box.metrics.is_running(), "memory": await box.metrics.memory()}
        told["cpu"], told["disk"] = await box.metrics.cpu(), await box.metrics.disk()
        await box.run(sys.argv[2])
        done = await box.run(sys.argv[3])
        told |= {"output": await done.output(), "error": done.has_error(), "status": done.status, "language": done.language}
        failed = await box.run(sys.argv[4])
        told |= {"failed": failed.has_error(), "why": await failed.error()}
        ran = await box.command.run("sh", ["-c", "echo out; echo err >&2; exit 4"])
        told |= {"code": ran.exit_code, "success": ran.success, "out": await ran.output(), "err": await ran.error()}
    print(json.dumps(told))

asyncio.run(life())
"""
STRANGER = """
import asyncio
from microsandbox import PythonSandbox

async def stranger():
    async with PythonSandbox.create() as box:
        pass

try:
    asyncio.run(stranger())
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    for needed in ("bubblewrap", "old-microsandbox"):
        if reason := missing(needed):
            pytest.skip(f"{needed}: {reason}")
    home = Home(tmp_path_factory.mktemp("old") / "home")
    home.configure(CONFIG)
    key = home.token("old", "microsandbox")
    with serving(home, "--microsandbox", "--no-page", what="microsandbox") as server:
        yield home, server, key


@pytest.mark.parametrize(
    ("kind", "first", "second", "bad"),
    [
        ("python", "x = 40", "print(x + 2)", "1 / 0"),
        ("node", "let x = 40", "console.log(x + 2)", "throw new Error('division')"),
    ],
)
def test_a_life(served, kind, first, second, bad):
    if kind == "node" and not shutil.which("node"):
        pytest.skip("no node here")
    home, server, key = served
    done = old_microsandbox.run(LIFE, server.url.rstrip("/"), key, kind, first, second, bad)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("memory") >= 1
    assert isinstance(told.pop("cpu"), float)
    assert "division" in told.pop("why")
    assert told == {
        "running": True, "disk": None, "output": "42", "error": False, "status": "success",
        "language": {"python": "python", "node": "nodejs"}[kind], "failed": True,
        "code": 4, "success": False, "out": "out", "err": "err",
    }  # fmt: skip
    assert home.names() == []


def test_a_stranger_is_told_the_code(served):
    _, server, _ = served
    done = old_microsandbox.run(STRANGER, server.url.rstrip("/"), "msb_stranger")
    assert '"code":1004' in done.stdout.replace(" ", ""), done.stdout + done.stderr
