"""The first commands that a reader copies run, from top to bottom, on a real sandbox."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli
from tests.docs.test_readme import PAGES
from tests.support.require import requires

__all__ = ["cli"]

pytestmark = requires("bubblewrap")


@pytest.mark.parametrize("page", ["README.md", "cli.md"])
def test_a_pages_first_commands_run(cli: Cli, tmp_path: Path, page: str) -> None:
    block = next(text for text in re.findall(r"```\n(.*?)```", PAGES[page], re.DOTALL) if " create web " in text)
    commands = [line for line in block.splitlines() if " shell " not in line]  # which needs a terminal
    assert len(commands) > 5
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "README.md").write_text("something to copy\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", "set -o pipefail\n" + "\n".join(commands)], cwd=folder, capture_output=True, text=True,
        check=False, timeout=120, env=os.environ | {"PATH": path, "SANDBOX_CONSOLE_HOME": str(cli.home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert cli.json("ls", "--all") == []
