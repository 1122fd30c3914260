"""``shell``: opens a shell in a sandbox on this terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

from sandbox_console.cli.context import Context
from sandbox_console.cli.exec import say_without
from sandbox_console.cli.lookup import find
from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.crash_guard import guard
from sandbox_console.errors import BackendError, ConsoleError, UsageError
from sandbox_console.model.action import OpenShell
from sandbox_console.service import ShellSession, open_console

_CHUNK = 64 * 1024


async def shell(context: Context) -> int:
    """Open a shell and return its exit code when it ends, for example by ``exit`` or Ctrl+D.

    Keys go to the guest unchanged. Its output passes a filter that allows drawing and drops everything else (titles,
    clipboard, queries; see cli/terminal_filter.py). The terminal is restored whatever happens.
    """
    fd = context.streams.stdin
    if fd is None or not os.isatty(fd) or not context.streams.out.tty:
        raise UsageError("a shell needs a terminal on stdin and stdout", hint="to run one command: exec NAME -- CMD")
    async with context.open() as console:
        found = await find(context, console, context.args.name, changing=True)
        cols, rows = _size(fd)
        term = os.environ.get("TERM") or "xterm-256color"
        request = OpenShell(
            found.ref, context.args.shell, context.args.user, cols, rows, term, record=context.args.record
        )
        session = await console.shell(request, consent=context.consent(found.ref.id))
        say_without(context, session.without)
        try:
            await _attached(context, session, fd)
            if _hung_up(fd):
                return 128 + signal.SIGHUP
            ended = await session.wait()
        except (ConsoleError, OSError):
            if not _hung_up(fd):
                raise
            return 128 + signal.SIGHUP
        finally:
            await session.close()
    if ended.code is None:
        raise BackendError("the shell ended, but its exit code is not known")
    return ended.code


async def _attached(context: Context, session: ShellSession, fd: int) -> None:
    """Pass keys in and output out until the shell ends."""
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    sizes = asyncio.Event()
    screen = ScreenFilter()
    with _raw(fd):
        loop.add_reader(fd, lambda: keys.put_nowait(_read(fd)))
        loop.add_signal_handler(signal.SIGWINCH, sizes.set)
        tasks = [asyncio.ensure_future(_type(session, keys)), asyncio.ensure_future(_resize(session, sizes, fd))]
        try:
            while data := await session.read():
                await context.streams.out.stream(screen.feed(data))
        finally:
            loop.remove_reader(fd)
            loop.remove_signal_handler(signal.SIGWINCH)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            context.streams.out.write(screen.restore())


async def _type(session: ShellSession, keys: asyncio.Queue[bytes]) -> None:
    while data := await keys.get():
        await session.write(data)
    await session.close()  # the terminal hung up


async def _resize(session: ShellSession, sizes: asyncio.Event, fd: int) -> None:
    while True:
        await sizes.wait()
        sizes.clear()
        await session.resize(*_size(fd))


def _read(fd: int) -> bytes:
    """Read what was typed; nothing if the terminal is gone, as at the end of a file."""
    try:
        return os.read(fd, _CHUNK)
    except OSError:
        return b""


def _hung_up(fd: int) -> bool:
    """Whether the terminal is gone, for example because its window was closed."""
    try:
        termios.tcgetattr(fd)
    except termios.error:
        return True
    return False


def _size(fd: int) -> tuple[int, int]:
    with contextlib.suppress(OSError):
        cols, rows = os.get_terminal_size(fd)
        if cols and rows:
            return cols, rows
    return 80, 24


@contextlib.contextmanager
def _raw(fd: int) -> Iterator[None]:
    before = termios.tcgetattr(fd)
    guard.hold_terminal()
    try:
        tty.setraw(fd, termios.TCSADRAIN)  # the default would discard text typed ahead
        yield
    finally:
        with contextlib.suppress(termios.error):  # it hung up
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
        guard.terminal_restored()


def end_lost(config: str | None) -> int:
    """End the shells of consoles that were killed. Run by a console's guard, so nobody reads what it says."""

    async def run() -> None:
        async with open_console(config_file=Path(config) if config else None) as console:
            await console.end_lost_shells()

    with contextlib.suppress(ConsoleError):  # the next console tries again, and says what is wrong
        asyncio.run(run())
    return 0
