"""What a signal does to a verb."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys

import pytest

from sandbox_console.cli import parser, signals
from sandbox_console.cli import run as running
from sandbox_console.cli.context import Context, Sink, Streams


def test_the_same_signal_twice_leaves_it_the_time_to_end_what_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    async def verb(_: Context) -> int:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.5)
            ended.append("all of it")
        return 0

    monkeypatch.setattr(running, "find", lambda _: verb)
    monkeypatch.setattr(signals, "PATIENCE_S", 60.0)
    sink = Sink(io.BytesIO(), tty=False)
    assert running.run(parser.parse(["ls"]), streams=Streams(sink, sink)) == 128 + signal.SIGINT
    assert ended == ["all of it"]


IMPORTING = """
import importlib.abc, os, signal, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "sandbox_console.cli.parser":
            os.kill(os.getpid(), signal.SIGINT)
        return None

sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["ls"]
from sandbox_console.__main__ import main
code = main()
whole = "sandbox_console.cli.parser" in sys.modules
print(code, "whole" if whole else "broken off")
"""

HANGING = """
import os, signal, sys, threading, time
from sandbox_console.cli import run as running, signals

signals.PATIENCE_S, signals.END_S = PATIENCE, 0.3
async def verb(context):
    print("runs", flush=True)
    while True:
        time.sleep(0.1)

running.find = lambda name: verb
sys.argv[1:] = ["ls"]
from sandbox_console.__main__ import main
main()
"""


def run_python(text: str, tmp_path: os.PathLike[str]) -> subprocess.Popen[str]:
    env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-c", text], env=env, text=True, **pipes)  # type: ignore[call-overload]


def test_a_signal_breaks_no_import_off(tmp_path: os.PathLike[str]) -> None:
    out, err = run_python(IMPORTING, tmp_path).communicate(timeout=60)
    assert (out, err) == ("130 whole\n", "")


@pytest.mark.parametrize("patience", ["60.0", "0.0"])
def test_a_second_signal_ends_what_hangs(tmp_path: os.PathLike[str], patience: str) -> None:
    process = run_python(HANGING.replace("PATIENCE,", f"{patience},"), tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    process.communicate()


def test_a_signal_before_the_verb_begins_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    async def verb(_: Context) -> int:
        begun.append(1)
        return 0

    monkeypatch.setattr(running, "find", lambda _: verb)
    sink = Sink(io.BytesIO(), tty=False)
    held = signals.hold()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert running.run(parser.parse(["ls"]), streams=Streams(sink, sink)) == 128 + signal.SIGTERM
    finally:
        held.caught = 0  # told
        signals.release()
    assert not begun


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.Taken() as taken:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == taken._come
    finally:
        signal.signal(signal.SIGHUP, before)


BEGUN = """
import sys
import sandbox_console.cli.signals
from sandbox_console.__main__ import main
sys.argv[1:] = ["ls", "--watch"]
print("begun", flush=True)
sys.exit(main())
"""


@pytest.mark.slow
def test_a_signal_at_any_moment_ends_the_command_in_order(tmp_path: os.PathLike[str]) -> None:
    codes = []
    for number in range(40):
        process = run_python(BEGUN, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.005 + number * 0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        codes.append((process.returncode, err if "Traceback" in err else ""))
    assert set(codes) == {(130, "")}, codes


@pytest.mark.slow
def test_a_signal_while_the_interpreter_starts_neither_crashes_nor_hangs_it(tmp_path: os.PathLike[str]) -> None:
    """Python takes the first 50 ms and more for itself, and may lose a signal then; a second one always ends it."""
    codes = []
    env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(tmp_path)}
    for number in range(150):
        words = [sys.executable, "-m", "sandbox_console", "ls", "--watch"]
        process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05 + number % 81 / 1000)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        codes.append((process.returncode, "" if process.returncode == 130 else err.splitlines()[-1:]))
    python_own = (1, ["KeyboardInterrupt"]), (-signal.SIGINT, ["KeyboardInterrupt"]), (-signal.SIGINT, [])
    assert [one for one in codes if one != (130, "") and one not in python_own] == []
    assert (130, "") in codes
