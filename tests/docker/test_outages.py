"""Real engines frozen, killed and started again under the command line; benchmarks/outages.py has the whole table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import BackendUnreachable, Conflict
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend

pytestmark = requires("docker")

CONFIG = "[backends.bubblewrap]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
TICK = "while :; do echo tick; sleep 0.2; done"
WAIT_S = 90


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


@pytest.mark.parametrize("away", ["frozen", "killed"])
async def test_a_name_that_an_engine_away_held_is_not_acted_on_elsewhere(engine, home, unique, away):
    name = unique()
    engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sleep", "1000")
    near = FakeBackend([Sandbox(SandboxRef("near", "local", "aaaaaa11"), name, Status.RUNNING)], name="near")
    config = Config(backends={"docker": {"timeout_s": 1}})
    async with open_console(config, backends=[near, DockerBackend("default")]) as console:
        await console.list()
    engine.freeze() if away == "frozen" else engine.crash()
    try:
        async with open_console(config, backends=[near, DockerBackend("default")]) as console:
            with pytest.raises(BackendUnreachable, match=f"docker/default does not answer and held '{name}' too"):
                await console.find(name, changing=True)
            assert (await console.find(f"near:{name}", changing=True)).ref.backend == "near"
            with pytest.raises(Conflict, match="docker/default does not answer and held"):
                await console.refuse_held(name)
    finally:
        engine.thaw() if away == "frozen" else engine.start()
        engine.docker("rm", "-f", name)


class Followed:
    """A command that goes on, its lines as they come."""

    def __init__(self, *words):
        argv = [sys.executable, "-m", "sandbox_console", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(argv, text=True, errors="replace", env=os.environ.copy(), **pipes)
        self.lines = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line)
                self._news.notify_all()

    def until(self, text):
        """Wait for a line, and forget it and those before it."""
        with self._news:
            assert self._news.wait_for(lambda: any(text in line for line in self.lines), WAIT_S), (text, self.lines)
            at = next(at for at, line in enumerate(self.lines) if text in line)
            del self.lines[: at + 1]

    def end(self, signum=None):
        if signum:
            self.process.send_signal(signum)
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        self.process.stdout.close()
        return code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"), [(("logs", "-f", "--tail", "1"), "tick"), (("stats", "--watch"), "%"), (("events", "-f"), "exec_start")]
)  # fmt: skip
def test_what_is_followed_goes_on_when_its_engine_is_back(engine, home, unique, words, line):
    name = unique()
    engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sh", "-c", TICK)
    followed = Followed(words[0], name, *words[1:])

    def stir():
        if words[0] == "events":
            subprocess.run(["docker", "-H", engine.url, "exec", name, "true"], capture_output=True, check=False)

    try:
        if words[0] == "events":
            followed.until("start")
        stir()
        followed.until(line)
        engine.crash()
        if words[0] != "logs":
            followed.until("waiting for it")
        engine.start()
        if words[0] == "logs":
            followed.until("lines may be missing")
        if words[0] == "events":
            engine.docker("start", name)  # the crash may have ended it
            for _ in range(10):  # one of them comes after it is followed again
                stir()
                time.sleep(1)
        followed.until(line)
        assert followed.end(signal.SIGINT) == 130
    finally:
        if followed.process.poll() is None:
            followed.process.kill()
            followed.end()
        subprocess.run(["docker", "-H", engine.url, "rm", "-f", name], capture_output=True, check=False)


@pytest.mark.slow
def test_a_command_whose_engine_freezes_is_given_up(engine, home, unique):
    name = unique()
    engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sleep", "1000")
    asked = ("sh", "-c", "echo up; sleep 1000")
    followed = Followed("exec", name, "--confirm", engine.inspect(name)["Id"], "--", *asked)
    try:
        followed.until("up")
        engine.freeze()
        assert followed.end() == 125
        assert any("did not answer in time; the command may still run" in one for one in followed.lines)
    finally:
        engine.thaw()
        engine.docker("rm", "-f", name)


@pytest.mark.slow
def test_an_attachment_whose_engine_died_is_a_failure(engine, home, unique):
    name = unique()
    engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sh", "-c", TICK)
    followed = Followed("attach", name, "--confirm", engine.inspect(name)["Id"])
    try:
        followed.until("tick")
        engine.crash()
        assert followed.end() == 125
        assert any("the attachment ended" in one for one in followed.lines)
    finally:
        engine.start()
        engine.docker("rm", "-f", name)


def test_logs_are_followed_over_a_restart_as_those_of_bubblewrap_are(engine, home, unique):
    name = unique()
    engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sh", "-c", f"echo begun; {TICK}")
    followed = Followed("logs", name, "-f")
    try:
        followed.until("begun")
        engine.docker("restart", "-t", "0", name)
        followed.until("begun")
        engine.docker("rm", "-f", name)
        assert followed.end() == 0
        assert any("there will be no more output" in one for one in followed.lines)
    finally:
        if followed.process.poll() is None:
            followed.process.kill()
            followed.end()
        subprocess.run(["docker", "-H", engine.url, "rm", "-f", name], capture_output=True, check=False)


@pytest.mark.parametrize(("command", "code", "word"), [("/etc/passwd", 126, "cannot be run"), ("/none", 127, "not found")])  # fmt: skip
def test_exec_says_why_a_command_could_not_be_run(engine, home, unique, command, code, word):
    name = unique()
    engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sleep", "1000")
    argv = [
        sys.executable,
        "-m",
        "sandbox_console",
        "exec",
        name,
        "--confirm",
        engine.inspect(name)["Id"],
        "--",
        command,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    engine.docker("rm", "-f", name)
    assert done.returncode == code
    assert done.stderr.strip()
    assert word in done.stderr or command in done.stderr
