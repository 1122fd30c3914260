"""The HTTP API over a console in this process: a bucket's files, and a network that cannot be set up."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.support.require import missing

from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.servers.api.server import application
from sandbox_console.service import open_console
from sandbox_console.service.tokens import Tokens
from sandbox_console.testing.fake_backend import FakeBackend

BASE = """
[templates.plain]
image = "host"
limits = "best-effort"
{more}
[api]
grants = "optional"
template = "plain"
images = ["*"]
"""


@asynccontextmanager
async def api(home: Path, text: str, **how) -> AsyncIterator[TestClient]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(text)
    tokens = Tokens(home / "tokens.json")
    given = {"Authorization": f"Bearer {tokens.add('agents', ['api'])[1]}"}
    given["Host"] = "served.test"
    async with (
        open_console(config_file=home / "config.toml", **how) as console,
        application(console, tokens, ("served.test",), home, print) as app,
        TestClient(TestServer(app), headers=given) as client,
    ):
        yield client


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("A2A_GRANT_VERIFYING_KEY", raising=False)
    return tmp_path / "home"


async def test_a_network_that_cannot_be_set_up_is_126(home):
    able = Capabilities(frozenset(Capability) - {Capability.EGRESS_ALLOWLIST}, {})
    fake = FakeBackend(capabilities=able)
    text = BASE.format(more='egress = ["acme.example"]') + 'backend = "fake"\n'
    body = {"script": "true", "bucket": "agent-one"}
    async with api(home, text, backends=[fake]) as client, client.post("/v1/run_shell", json=body) as answer:
        told = await answer.json()
    assert (answer.status, told["exit_code"]) == (200, 126), told
    assert "egress" in told["stderr"]
    assert not fake.sandboxes


async def test_a_buckets_files_are_its_sandboxes_alone(home):
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="buckets-") as name:  # pytest's own are closed to a sandbox's user
        for bucket in ("agent-one", "agent-two"):
            (Path(name) / bucket).mkdir()
            (Path(name) / bucket).chmod(0o777)
        Path(name).chmod(0o755)
        text = BASE.format(more="") + f'backend = "bubblewrap"\nworkspaces = "{name}"\n'
        async with api(home, text, only_backend="bubblewrap") as client:

            async def ran(bucket: str, script: str) -> tuple[int, str]:
                async with client.post("/v1/run_shell", json={"script": script, "bucket": bucket}) as answer:
                    told = await answer.json()
                    return answer.status, told.get("stdout", told.get("detail"))

            assert await ran("agent-one", "echo kept > /workspace/file; pwd") == (200, "/workspace\n")
            assert await ran("agent-one", "cat /workspace/file") == (200, "kept\n")
            assert await ran("agent-two", "ls -A /workspace; ls -A /workspace/..  | grep -c agent") == (200, "0\n")
            status, why = await ran("agent-none", "true")
        assert status == 400
        assert "agent-none has no folder" in why
        assert (Path(name) / "agent-one" / "file").read_text() == "kept\n"
        assert not (Path(name) / "agent-none").exists()
