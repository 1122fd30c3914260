"""Runs the rules of a state folder, in one process at a time; a second one waits and takes over."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandbox_console.errors import ConsoleError
from sandbox_console.service.alerts.channels.desktop import Write
from sandbox_console.service.alerts.engine import AlertEngine, Notice
from sandbox_console.service.alerts.outbox import Outbox
from sandbox_console.service.alerts.store import AlertStore
from sandbox_console.service.console import Console

LOCK = "watch.lock"
_AGAIN_S = 2.0


def alerts_folder(console: Console) -> Path:
    """Where the alerts of a console's state are."""
    return console.audit_log.path.parents[1] / "alerts"


async def watch(
    console: Console, *, notice: Notice = lambda _: None, problem: Callable[[str], object] = lambda _: None,
    write: Write | None = None, now: Callable[[], float] = time.time,
) -> None:  # fmt: skip
    """Run the rules and deliver messages until cancelled. Raises ConsoleError if the state folder cannot be used.

    ``notice`` is called with each alert that fires or is over, and ``problem`` with what keeps the rules from running,
    once each time that it changes.
    """
    folder = alerts_folder(console)
    lock = await _locked(folder, problem)
    store = AlertStore(folder)
    try:
        options = console.config.alerts
        outbox = Outbox(console, store, options, write=write, now=now)
        engine = await AlertEngine.open(console, store, options, notice=notice, sent=outbox.wake, now=now)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(engine.run())
                group.create_task(outbox.run())
                group.create_task(_report(engine, problem))
        except* ConsoleError as several:
            raise several.exceptions[0] from None
    finally:
        store.close()
        os.close(lock)


async def _report(engine: AlertEngine, problem: Callable[[str], object]) -> None:
    last_problem = ""
    while True:
        if engine.problem != last_problem:
            last_problem = engine.problem
            problem(last_problem)
        await asyncio.sleep(1.0)


async def _locked(folder: Path, problem: Callable[[str], object]) -> int:
    """The lock's descriptor, once no other process has it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConsoleError(f"the alerts cannot be kept in {folder}: {error.strerror}") from error
    try:
        last_problem = ""
        while not _taken(fd):
            if last_problem != (last_problem := f"process {_holder(fd)} runs the rules; waiting for its end"):
                problem(last_problem)
            await asyncio.sleep(_AGAIN_S)
        if last_problem:
            problem("")
        os.ftruncate(fd, 0)
        with suppress(OSError):  # only for people: the lock matters
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(fd: int) -> str:
    return os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "another"


def runs(folder: Path) -> str:
    """The id of the process that runs the rules; empty if none does."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return "" if _taken(fd) else _holder(fd)
    finally:
        os.close(fd)
