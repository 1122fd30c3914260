"""The API without asyncio: from any thread, inside a running loop, at the interpreter's end, after a fork."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading

import pytest
from tests.support.require import requires

import sandbox_console
from sandbox_console import (
    AuditQuery,
    Conflict,
    ConsoleError,
    LogQuery,
    NotFound,
    SandboxSpec,
    Stop,
    TimedOut,
    UsageError,
    sync,
)

pytestmark = requires("bubblewrap")


@pytest.fixture
def console(home):
    with sync.open_console(backend="bubblewrap") as made:
        yield made


@pytest.fixture
def box(console):
    with console.create(SandboxSpec("box", image="host", command=("sh", "-c", "echo hello; sleep 1000"))) as made:
        yield made


def test_three_lines(home):
    with sync.open_console(backend="bubblewrap") as console:
        with console.create(SandboxSpec("job", image="host", command=("sleep", "60"))) as box:
            assert box.exec("echo $((6*7))").text == "42\n"
        assert console.list()[0] == []


def test_a_console_that_was_left_is_closed(home):
    """It would be opened again, and nobody would close it: what runs at the interpreter's end would have no end on record."""
    with sync.open_console(backend="bubblewrap") as console:
        box = console.create(SandboxSpec("left", image="host", command=("sleep", "60"))).get()
    for use in (
        lambda: box.exec(["true"]),
        box.inspect,
        lambda: console.sandbox("left"),
        lambda: box.remove(force=True),
    ):
        with pytest.raises(ConsoleError, match="the console is closed"):
            use()
    assert not console.list()[1][0].ok
    with sync.open_console(backend="bubblewrap") as console:
        console.sandbox("left").remove(force=True)


def test_all_that_a_sandbox_can(console, box):
    box.write_file("/tmp/a/b", "text")
    assert (box.read_file("/tmp/a/b"), box.exists("/tmp/a/c")) == (b"text", False)
    box.mkdir("/tmp/a/c")
    assert box.exists("/tmp/a/c")
    assert box.exec(["cat"], stdin=iter(["a", "b"])).text == "ab"
    with box.stream("echo one; sleep 86395") as running:
        assert next(iter(running))[1] == b"one\n"
    with box.stream("echo one; exit 3") as running:
        assert [data for _, data in running] == [b"one\n"]
        assert running.result().exit_code == 3
    with box.shell(shell="/bin/sh") as session:
        session.write(b"exit 7\n")
        assert session.wait().code == 7
    assert next(iter(box.logs(follow=True))).data == b"hello\n"
    assert [item.data for batch in console.logs(box.ref, LogQuery()) for item in batch] == [b"hello\n"]
    box.pause()
    box.resume()
    with pytest.raises(TimedOut):
        box.wait(timeout_s=0.05)
    console.perform(Stop(box.ref, 0))
    assert box.wait().signal
    box.start()
    assert box.inspect().status.live
    assert list(box.ports()) == []
    assert console.history(AuditQuery())[0].attempt.action == "start"
    with pytest.raises(Conflict):
        console.create(SandboxSpec("box", image="host")).get()
    kept = console.create(SandboxSpec("kept", image="host", command=("true",))).get()
    kept.wait()
    assert console.sandbox("kept").ref == kept.ref
    kept.remove()
    with pytest.raises(NotFound):
        kept.inspect()


def test_an_error_of_the_input_is_the_callers_own(box):
    def fails():
        yield "a"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        box.exec(["cat"], stdin=fails())


def test_from_many_threads_at_once(console, box):
    told: list[str] = []

    def one(number: int) -> None:
        told.append(box.exec(["echo", str(number)]).text)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == sorted(f"{number}\n" for number in range(8))


async def test_inside_a_running_loop(home):
    def work() -> str:
        job = SandboxSpec("job", image="host", command=("sleep", "60"))
        with sync.open_console(backend="bubblewrap") as console, console.create(job) as box:
            return box.exec(["echo", "within"]).text

    assert work() == "within\n"  # it holds this loop up, and does not need it
    assert await asyncio.to_thread(work) == "within\n"


def test_on_its_own_thread_it_says_so_and_does_not_wait_for_ever(box):
    async def from_within():
        yield box.exec(["true"]).text

    with pytest.raises(UsageError, match="its own thread"):
        box.exec(["cat"], stdin=from_within())


def test_after_a_fork_the_parents_console_is_an_error_and_an_own_one_works(home, box):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                box.exec(["true"])
                said = "it worked"
            except UsageError as error:
                said = error.message
            with sync.open_console(backend="bubblewrap") as own:
                said += "; " + own.sandbox("box").exec(["echo", "own"]).text
            os.write(write, said.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    os.waitpid(child, 0)
    assert "forked" in said
    assert said.endswith("; own\n")
    assert box.exec(["true"]).ok


ENDS = """
import atexit, sys
from sandbox_console import SandboxSpec, UsageError, sync

def late():
    try:
        box.exec(["true"])
    except UsageError as error:
        print("late:", error.message)

atexit.register(late)
opening = sync.open_console(backend="bubblewrap")
console = opening.__enter__()
box = console.create(SandboxSpec("left", image="host", command=("sleep", "60"))).get()
print(box.exec(["echo", "alive"]).text, end="")
running = box.stream("echo begun; sleep 86394")
running.__enter__()
next(iter(running))
"""


def test_at_the_interpreters_end_what_is_open_is_closed(home):
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["alive", "late: the interpreter is ending: every console is closed"]
    assert done.stderr == ""
    with sync.open_console(backend="bubblewrap") as console:
        rows = {(row.attempt.action, str(row.outcome)) for row in console.history(AuditQuery())}
        assert ("exec", "cancelled") in rows  # not unknown: it was told
        console.sandbox("left").remove(force=True)


def test_an_interrupt_ends_the_command(home):
    code = """
import os, signal, threading
from sandbox_console import AuditQuery, SandboxSpec, sync
with sync.open_console(backend="bubblewrap") as console:
    with console.create(SandboxSpec("job", image="host", command=("sleep", "60"))) as box:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            box.exec(["sleep", "1000"])
        except KeyboardInterrupt:
            print(console.history(AuditQuery())[0].outcome)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert (done.stdout, done.stderr) == ("cancelled\n", "")


@pytest.mark.parametrize("name", ["Console", "SandboxHandle", "RunningCommand"])
def test_it_has_what_the_asynchronous_api_has(name):
    def methods(of: type) -> dict[str, list[str]]:
        return {
            key: [one for one in inspect.signature(value).parameters if one != "io"]
            for key, value in vars(of).items()
            if callable(value) and not key.startswith("_")
        }

    there, here = methods(getattr(sandbox_console, name)), methods(getattr(sync, name))
    there.pop("watch", None)  # events are for loops
    assert here == there


def test_open_console_takes_the_same():
    there, here = (inspect.signature(one.open_console).parameters for one in (sandbox_console, sync))
    assert list(here) == list(there)
