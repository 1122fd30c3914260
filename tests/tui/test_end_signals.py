"""SIGTERM and SIGHUP while a shell is open: the terminal is as it was, the shell has ended, and its end is on record."""

from __future__ import annotations

import errno
import io
import signal
import threading
import time

import pytest
from tests.cli.conftest import Cli, cli
from tests.cli.terminal import Terminal
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing
from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

from sandbox_console.tui.base.textual_fixes import mend

__all__ = ["cli", "docker_engine"]

BACK = b"\x1b[?1049l"


@pytest.fixture(params=["bubblewrap", "docker"])
def backend(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    if reason := missing(request.param):
        pytest.skip(reason)
    if request.param == "docker":
        monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine").url)
        (cli.home / "config.toml").write_text("[backends.microsandbox]\nenabled = false\n")
    return request.param


@pytest.fixture
def box(cli: Cli, backend: str):
    image = IMAGE if backend == "docker" else "host"
    cli.ok("create", "box", "--image", image, "--backend", backend, "--", "sleep", "600")
    yield "box"
    cli.ok("rm", "box", "--force")


def _with_a_shell(cli: Cli, terminal: Terminal) -> None:
    terminal.until(b"running")
    terminal.type(b"s")
    terminal.until(b"$ ")
    terminal.type(b"exec sleep 4242\r")
    _until(lambda: b"sleep 4242" in cli.ok("top", "box"))


def _until(check) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.1)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_quits_in_good_order(cli: Cli, box: str, backend: str, signum: signal.Signals) -> None:
    with Terminal(cli, "--backend", backend) as terminal:
        _with_a_shell(cli, terminal)
        terminal.process.send_signal(signum)
        said = terminal.read_to_end()
        assert terminal.process.returncode == 128 + signum
        assert BACK in said
        assert b"\x1b[?25h" in said.split(BACK)[-1]
        assert signum.name.encode() in said.split(BACK)[-1]
        assert terminal.attributes() == terminal.before
    assert b"sleep 4242" not in cli.ok("top", "box")
    [shell] = [row for row in cli.json("audit", "ls") if row["action"] == "shell"]
    assert shell["outcome"] == "ok"
    assert b"unknown 0" in cli.ok("audit", "verify")


def test_a_second_signal_ends_at_once_and_gives_the_terminal_back(cli: Cli, box: str, backend: str) -> None:
    with Terminal(cli, "--backend", backend) as terminal:
        _with_a_shell(cli, terminal)
        terminal.process.send_signal(signal.SIGTERM)
        terminal.process.send_signal(signal.SIGHUP)
        said = terminal.read_to_end()
        assert terminal.process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGHUP)
        assert BACK in said
        assert terminal.attributes() == terminal.before


class _Gone(io.StringIO):
    """A terminal whose window was closed."""

    def write(self, _: str, /) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_what_is_written_to_a_terminal_that_is_gone_holds_nothing_up():
    mend()
    writer = WriterThread(_Gone())
    writer.start()
    app = threading.Thread(target=lambda: [writer.write("a line") for _ in range(10 * MAX_QUEUED_WRITES)], daemon=True)
    app.start()
    app.join(20)
    assert not app.is_alive(), "it waits for room in the queue, and never hears of SIGHUP"
    writer.stop()
