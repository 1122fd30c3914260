"""Runs one of our own commands as a child process that never outlives the code that waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_ASKED_TO_END = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_END_S = 15.0
"""How long a command may take to undo unfinished work after it has been signalled to end."""


@contextlib.contextmanager
def running(words: Sequence[str], **pipes: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``sandbox-console WORDS``. Whatever ends the block, the command is signalled to end, and awaited."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with _blocked_signals():  # a signal between the fork and the assignment would lose sight of the child
            # -P: the current folder may belong to a sandbox, and its modules must not be imported.
            command = [sys.executable, "-P", "-m", "sandbox_console", *words]
            env = os.environ | {"SANDBOX_CONSOLE_SERVER": "off"}  # a command that we run leaves no server behind
            process = subprocess.Popen(command, env=env, preexec_fn=_release, **pipes)  # noqa: PLW1509 - no other thread
        yield process
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Hold signals that end the process until the block is over."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKED_TO_END)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKED_TO_END)
