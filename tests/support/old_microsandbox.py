"""The real client of microsandbox 0.1.8 in an environment of its own: it needs an aiohttp below 3.11."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

PACKAGES = ("microsandbox==0.1.8", "aiohttp<3.11")


def folder() -> Path:
    """Where it is kept: outside the repository, so that a second run is quick."""
    return Path(f"/var/tmp/sandbox-console-tests-msb018-{os.geteuid()}")


@functools.cache
def install() -> str:
    """Install it, unless it is there; why that is not possible, else an empty text."""
    python = folder() / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import microsandbox"], check=False).returncode == 0:
        return ""
    uv = [sys.executable, "-m", "uv"]
    for words in (["venv", "-q", "--clear", folder()], ["pip", "install", "-q", "--python", python, *PACKAGES]):
        done = subprocess.run([*uv, *words], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            return f"{PACKAGES[0]} cannot be installed: {done.stderr.strip()[-200:]}"
    return ""


def run(script: str, url: str, key: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the client, which finds the server as its users have it: in the environment."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "MSB_SERVER_URL": url, "MSB_API_KEY": key}
    return subprocess.run(
        [folder() / "bin" / "python", "-c", script, *words],
        env=env, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
