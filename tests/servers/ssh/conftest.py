"""A sandbox reached by the real OpenSSH client, with the block that ``ssh-config`` writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli import conftest
from tests.cli.conftest import Cli
from tests.support.require import missing

cli = conftest.cli


class Ssh:
    """OpenSSH's programs with a configuration file."""

    def __init__(self, cli: Cli, config: Path) -> None:
        self.cli, self.config = cli, config

    def command(self, *words: str, program: str = "ssh") -> list[str]:
        return [program, "-F", str(self.config), *words]

    def run(
        self, *words: str, stdin: bytes = b"", program: str = "ssh", **how: Any
    ) -> subprocess.CompletedProcess[bytes]:
        given = {"input": stdin, "capture_output": True, "timeout": 90}
        return subprocess.run(self.command(*words, program=program), check=False, **given | how)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.command(*words), **pipes)

    def rows(self, *actions: str) -> list[dict[str, Any]]:
        return [row for row in self.cli.json("audit", "ls") if row["action"] in actions]

    def note(self) -> dict[str, Any]:
        """The note about the end of the newest shell."""
        [shown] = self.cli.json("audit", "show", str(self.rows("shell")[0]["id"]))
        [note] = shown["notes"]
        return note["body"]

    def proxies(self) -> Sequence[int]:
        """The pids of the proxies of this home."""
        found = []
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                mine = os.fsencode(self.cli.home) in (folder / "environ").read_bytes()
            except (OSError, NotADirectoryError):
                continue
            if mine and b"proxy" in words and b"sandbox_console" in words:
                found.append(int(folder.name))
        return found


@pytest.fixture(autouse=True)
def needs() -> None:
    if reason := missing("bubblewrap"):
        pytest.skip(reason)
    if shutil.which("ssh") is None:
        pytest.skip("OpenSSH's client is not installed")


@pytest.fixture
def box(cli: Cli) -> str:
    cli.ok("create", "box", "--image", "host", "--", "sleep", "1000")
    return "box"


@pytest.fixture
def ssh(cli: Cli, tmp_path: Path) -> Ssh:
    config = tmp_path / "ssh_config"
    config.write_bytes(cli.ok("ssh-config"))
    return Ssh(cli, config)
