"""Runs a program in its own process group, and leaves nothing of it when the block ends."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from sandbox_console.model.cancellation import run_to_completion

GRACE_S = 5.0
"""The times between SIGINT, SIGTERM and SIGKILL. textual-web gives its apps 3 s after SIGINT."""
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05


@contextlib.asynccontextmanager
async def process_group(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
) -> AsyncIterator[Process]:
    """Run a program without a shell and without standard input while inside; end its whole group on the way out.

    The program gets SIGTERM when this process is killed (Linux). Raises OSError if it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # needs no lock of another thread
    )
    try:
        yield process
    finally:
        await run_to_completion(_end(process))


async def _end(process: Process) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signum)
            await _gone(process)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await _gone(process)
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - a stray may hold the pipe; no public way


async def _gone(process: Process) -> None:
    # Process.wait() also waits for the pipes, which a stray descendant can hold open.
    until = asyncio.get_running_loop().time() + GRACE_S
    while process.returncode is None and asyncio.get_running_loop().time() < until:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)


_libc = ctypes.CDLL(None)  # loaded before the fork: loading allocates


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
