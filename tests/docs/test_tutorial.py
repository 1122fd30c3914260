"""Every command of docs/tutorial.md runs, from top to bottom, and does what the page says."""

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

PAGE = PAGES["tutorial.md"]
NEEDS_A_TERMINAL = " shell "


def _commands() -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [line for line in lines if NEEDS_A_TERMINAL not in line]


@pytest.fixture
def output(cli: Cli, tmp_path: Path) -> dict[str, str]:
    """What each command of the page printed, and its exit code where that is not 0."""
    [config] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "config.toml").write_text(config)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = "\n".join(
        f"printf '\\n=={number}\\n'; {line} || echo \"==exit $?\"" for number, line in enumerate(_commands())
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"PATH": path, "SANDBOX_CONSOLE_HOME": str(cli.home)},
    )  # fmt: skip
    assert "correct-horse-battery" not in done.stdout + done.stderr
    parts = re.split(r"^==\d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(parts) == len(_commands()), done.stdout + done.stderr
    return dict(zip(_commands(), parts, strict=True))


def _printed(output: dict[str, str], beginning: str) -> str:
    return next(text for command, text in output.items() if command.startswith("sandbox-console " + beginning))


def test_the_tutorial_holds(cli: Cli, output: dict[str, str]) -> None:
    failed = {command: text for command, text in output.items() if "==exit" in text}
    assert list(failed) == ["sandbox-console egress test agent tracker.example.net"], failed
    assert failed.popitem()[1].strip().endswith("==exit 1")
    assert "clock" in _printed(output, "ls")
    assert "uid=0" not in _printed(output, "exec clock -- id")
    assert "allowed" in _printed(output, "egress test agent example.com")
    assert "denied" in _printed(output, "egress test agent tracker.example.net")
    assert "no rule allows it" in _printed(output, "exec agent -- curl")
    assert "tracker.example.net" in _printed(output, "egress feed")
    assert "tracker.example.net" in _printed(output, "egress show agent")
    assert _printed(output, "--config config.toml exec worker").strip() == "[secret]"
    assert "egress" in _printed(output, "audit ls")
    assert "create" in _printed(output, "audit show 1")
    assert _printed(output, "audit verify").startswith("ok")
    assert cli.json("ls", "--all") == []
