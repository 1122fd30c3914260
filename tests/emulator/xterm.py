"""xterm.js without a screen, out of npm, as the reference."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from msgspec import convert, to_builtins
from tests.emulator.capture import Capture, Screen
from tests.support import npm

PACKAGES = ("@xterm/headless@6.0.0", "@xterm/addon-unicode11@0.9.0")
_FOLDER = npm.folder("xterm", PACKAGES[0].rpartition("@")[2])


def install() -> str:
    """See that it is there; why it cannot be had, or empty."""
    return npm.install(_FOLDER, "--ignore-scripts", *PACKAGES)


def screens(captures: list[Capture]) -> list[list[Screen]]:
    """What it shows at the checkpoints of each capture."""
    done = subprocess.run(
        ["node", Path(__file__).with_name("xterm.js")],
        input=json.dumps(to_builtins(captures)), env={**os.environ, "NODE_PATH": str(_FOLDER / "node_modules")},
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    return convert(json.loads(done.stdout), list[list[Screen]])
