"""Packages out of npm, in a folder that later runs find again: outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path


def folder(name: str, version: str) -> Path:
    """Where the packages of a test are kept."""
    return Path(f"/var/tmp/sandbox-console-tests-{name}-{os.geteuid()}-{version}")


def install(target: Path, *words: str) -> str:
    """See that packages are there; why they cannot be had, or empty."""
    if (target / "node_modules").is_dir():
        return ""
    npm = shutil.which("npm")
    if npm is None:
        return "no npm on PATH"
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix="npm-"))
    options = ["--prefix", made, "--no-audit", "--no-fund", "--loglevel", "error"]
    done = subprocess.run([npm, "install", *options, *words], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        shutil.rmtree(made)
        return f"npm install failed: {done.stderr[-500:]}"
    try:
        made.rename(target)
    except OSError:  # another test process was first
        shutil.rmtree(made)
    return ""
