"""Starts the holder of one shell. Run by the console that opened it, with what it needs as standard input."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress

sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio does without, which saves 7 MB
import asyncio  # noqa: E402
import ctypes  # noqa: E402

from sandbox_console.background_process import ProcessFolder  # noqa: E402
from sandbox_console.crash_guard import guard  # noqa: E402
from sandbox_console.shell_holder.holder import Holder  # noqa: E402

_PR_SET_DUMPABLE = 4  # linux/prctl.h


def main(folder: str) -> int:
    """Hold a shell until its end. The guard started here records it, however this process ends."""
    for signum in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(signum, signal.SIG_IGN)
    os.umask(0o077)
    _keep_to_itself()
    with open(0, "rb", closefd=False) as file:
        facts = json.loads(file.read())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for fd in (*facts["files"], facts["lock"]):
        os.set_inheritable(fd, False)
    guard.hold_shell(facts["options"])
    process_folder = ProcessFolder(folder)

    async def hold() -> None:
        await Holder(process_folder, facts).run()

    with suppress(KeyboardInterrupt):
        asyncio.run(hold())
    return 0


def _keep_to_itself() -> None:
    """Forbid other processes of this user to read this process's memory, and disable core dumps.

    The screen may show what the guest knows, and the redactor knows the secrets.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
