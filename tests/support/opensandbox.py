"""The real opensandbox-server from PyPI in an environment of its own."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = "opensandbox-server==1.1.1"
PYTHON = Path("/usr/bin/python3.11")
"""What its sandboxes get, for the stand-in of execd."""


def folder() -> Path:
    """Where it is kept: outside the repository, so that a second run is quick."""
    return Path(f"/var/tmp/sandbox-console-tests-opensandbox-{os.geteuid()}")


@functools.cache
def install() -> str:
    """Install it, unless it is there; why that is not possible, else an empty text."""
    if not PYTHON.exists():
        return f"no {PYTHON}, which its sandboxes get"
    if (folder() / "bin" / "opensandbox-server").exists():
        return ""
    uv, python = [sys.executable, "-m", "uv"], folder() / "bin" / "python"
    for words in (
        ["venv", "-q", "--clear", folder()],
        ["pip", "install", "-q", "--compile-bytecode", "--python", python, PACKAGE],
    ):
        done = subprocess.run([*uv, *words], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            return f"{PACKAGE} cannot be installed: {done.stderr.strip()[-200:]}"
    return ""
