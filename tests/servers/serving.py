"""``serve --api`` and ``serve --mcp`` as processes, with tokens, grants and a client for each."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.browser.serving import eventually

from sandbox_console.service.tokens import Tokens

CONFIG = """
[backends.docker]
enabled = false
[backends.microsandbox]
enabled = false
[secrets.KEY]
from = "env:SERVED_KEY"
[templates.plain]
image = "host"
limits = "best-effort"
[templates.keyed]
image = "host"
limits = "best-effort"
secrets = ["KEY"]
[api]
template = "plain"
allow = ["keyed"]
images = ["python:*", "host"]
max_sandboxes = 6
max_per_bucket = 3
max_calls = 4
max_memory_mib = 1024
max_cpus = 2
"""
SECRET = "canary-value-of-a-served-secret"
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SIGNING_KEY = base64.b64encode(PRIVATE.private_bytes_raw()).decode()
VERIFYING_KEY = base64.b64encode(PRIVATE.public_key().public_bytes_raw()).decode()


@dataclass
class Home:
    """A console's home with a configuration, and its tokens."""

    path: Path
    env: dict[str, str] = field(default_factory=dict)

    def configure(self, text: str) -> None:
        self.path.mkdir(exist_ok=True)
        (self.path / "config.toml").write_text(text)

    def token(self, name: str, *scopes: str) -> str:
        state = self.path / "state"
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Tokens(state / "tokens.json").add(name, scopes)[1]

    @property
    def environment(self) -> dict[str, str]:
        given = {"SANDBOX_CONSOLE_HOME": str(self.path), "A2A_GRANT_VERIFYING_KEY": VERIFYING_KEY, "SERVED_KEY": SECRET}
        return {**os.environ, **given, **self.env}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "sandbox_console", *words]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60, check=False)

    def names(self) -> list[str]:
        return self.run("ls", "--format", "{{.Name}}").stdout.split()


@dataclass
class Server:
    process: subprocess.Popen[str]
    url: str
    lines: list[str]

    @property
    def port(self) -> int:
        return int(re.search(r":(\d+)/", self.url + "/")[1])

    def stop(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(30)


@contextmanager
def serving(home: Home, *words: str, what: str = "api") -> Iterator[Server]:
    """``serve`` until the block ends; ``url`` is of the API, or of MCP."""
    log = home.path / f"{what}.log"
    argv = [sys.executable, "-m", "sandbox_console", "serve", *words]
    with log.open("w") as file:
        process = subprocess.Popen(argv, env=home.environment, stderr=file, text=True)
    server = Server(process, "", [])
    try:

        def told() -> bool:
            server.lines = log.read_text().splitlines()
            found = [line.split(" ", 1)[1] for line in server.lines if line.startswith(f"{what}: ")]
            server.url = found[0].rstrip("/") if found else ""
            return bool(found) or process.poll() is not None

        eventually(told, 60)
        assert server.url, server.lines
        yield server
    finally:
        if process.poll() is None:
            server.stop()
        server.lines = log.read_text().splitlines()


def grant(bucket: str = "agent-one", audience: str = "tester", **fields: Any) -> str:
    """A grant signed by the key that the servers here know."""
    from a2a_pack.grants import mint_grant

    before = os.environ.get("A2A_GRANT_SIGNING_KEY")
    os.environ["A2A_GRANT_SIGNING_KEY"] = SIGNING_KEY
    try:
        return mint_grant(issuer="caller", audience=audience, bucket=bucket, **fields)[1]
    finally:
        os.environ.pop("A2A_GRANT_SIGNING_KEY")
        if before is not None:
            os.environ["A2A_GRANT_SIGNING_KEY"] = before
