"""The command line as a user runs it: a process, on a home of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox_console.__main__ import main

CONFIG = "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"


@dataclass
class Cli:
    """Runs ``sandbox-console`` on one home."""

    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def start(self, *words: str, **how: Any) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(self.home), **self.env}
        return subprocess.Popen([sys.executable, "-m", "sandbox_console", *words], env=env, **pipes | how)

    def __call__(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run it to its end: as a process where stdin or the process matters, else here, which saves 0.2 s each."""
        if not stdin and not {"exec", "shell", "demo"} & set(words):
            return self._here(*words)
        process = self.start(*words, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=60)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def _here(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"SANDBOX_CONSOLE_HOME": str(self.home), **self.env}.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(words)
            out.flush()
            err.flush()
        return subprocess.CompletedProcess(words, code, out.buffer.getvalue(), err.buffer.getvalue())  # type: ignore[attr-defined]

    def ok(self, *words: str, stdin: bytes = b"") -> bytes:
        done = self(*words, stdin=stdin)
        assert done.returncode == 0, (words, done)
        return done.stdout

    def json(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok(*words, "--json").splitlines()]

    def until(self, ready: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + 60
        while not ready():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.05)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command on bubblewrap alone; what a test leaves behind is removed."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    run = Cli(home)
    yield run
    names = [box["ref"] for box in run.json("ls", "--all")]
    if names:
        run.ok("rm", "--force", *names)


@pytest.fixture
def box(cli: Cli) -> str:
    """The name of a running sandbox that waits."""
    cli.ok("create", "box", "--image", "host", "--", "sh", "-c", "echo ready; exec sleep 1000")
    return "box"
