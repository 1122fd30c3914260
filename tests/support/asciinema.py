"""asciinema-player out of npm, in a folder that later runs find again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "3.18.0"


def bundle() -> Path:
    """Where its script and its style are: outside the repository."""
    return _folder() / "node_modules/asciinema-player/dist/bundle"


def _folder() -> Path:
    return Path(f"/var/tmp/sandbox-console-tests-asciinema-{os.geteuid()}-{VERSION}")


def install() -> str:
    """See that it is there; why it cannot be had, or empty."""
    if bundle().is_dir():
        return ""
    npm = shutil.which("npm")
    if npm is None:
        return "no npm on PATH"
    made = Path(tempfile.mkdtemp(dir=_folder().parent, prefix="asciinema-"))
    words = [npm, "install", "--prefix", made, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    done = subprocess.run(
        [*words, f"asciinema-player@{VERSION}"], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        shutil.rmtree(made)
        return f"npm install failed: {done.stderr[-500:]}"
    try:
        made.rename(_folder())
    except OSError:  # another test process was first
        shutil.rmtree(made)
    return ""
