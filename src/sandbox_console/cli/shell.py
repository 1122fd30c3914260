"""``shell``: opens a shell in a sandbox on this terminal."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sandbox_console.cli.context import Context
from sandbox_console.cli.exec import say_without
from sandbox_console.cli.lookup import find
from sandbox_console.cli.spec_options import pairs
from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.crash_guard import guard
from sandbox_console.errors import BackendError, ConsoleError, UsageError
from sandbox_console.model.action import OpenShell
from sandbox_console.model.kept_shell import shell_name_problem
from sandbox_console.service import DETACHED, Console, ShellSession, open_console
from sandbox_console.service.sessions.brought_shell import with_busybox

_CHUNK = 64 * 1024
_READS_MOST = 64
"""How many reads of keys may wait for a shell that takes none."""

_LEAVE = b"\x1d"
"""Ctrl+], as in telnet and in the app."""


async def shell(context: Context) -> int:
    """Open a shell and return its exit code when it ends, for example by ``exit`` or Ctrl+D.

    Keys go to the guest unchanged. Its output passes a filter that allows drawing and drops everything else (titles,
    clipboard, queries; see cli/terminal_filter.py). The terminal is restored whatever happens. A kept shell goes on
    when Ctrl+] leaves it, or when the terminal is closed.
    """
    fd, args = terminal_of(context), context.args
    async with context.open() as console:
        if args.attach:
            _refuse_beside_attach(args)
            return await attach_to(context, console, args.attach, fd)
        if args.name is None:
            raise UsageError("a NAME is needed, or --attach with that of a kept shell")
        if args.busybox and args.shell:
            raise UsageError("--busybox brings the shell, so there is no --shell to name")
        if args.as_ and (problem := shell_name_problem(args.as_)):
            raise UsageError(f"--as: {args.as_!r} cannot be a shell's name: {problem}")
        found = await find(context, console, args.name, changing=True)
        cols, rows = size_of(fd)
        term = os.environ.get("TERM") or "xterm-256color"
        keep = True if args.as_ else args.keep
        request = OpenShell(
            found.ref, args.shell, args.user, cols, rows, term, record=args.record, keep=keep, name=args.as_ or "",
            workdir=args.workdir, env=pairs(args.env, "env"),
        )  # fmt: skip
        consent = context.consent(found.ref.id)
        if args.busybox:
            request = await with_busybox(console, request, consent)
        session = await console.shell(request, consent=consent)
        say_without(context, session.without)
        return await enter(context, session, fd)


def terminal_of(context: Context) -> int:
    """The terminal's descriptor. Raises UsageError if there is none."""
    fd = context.streams.stdin
    if fd is None or not os.isatty(fd) or not context.streams.out.tty:
        raise UsageError("a shell needs a terminal on stdin and stdout", hint="to run one command: exec NAME -- CMD")
    return fd


def _refuse_beside_attach(args: argparse.Namespace) -> None:
    for name in ("name", "shell", "busybox", "user", "workdir", "env", "record", "keep", "as_"):
        if getattr(args, name) not in (None, False, []):
            option = "NAME" if name == "name" else f"--{name.strip('_')}"
            raise UsageError(f"--attach cannot be used with {option}", hint="the shell is open already")


async def attach_to(context: Context, console: Console, name: str, fd: int) -> int:
    """Attach to a kept shell on this terminal. Returns its exit code, or 0 once it is left."""
    found = await console.kept_shells.find(name)
    cols, rows = size_of(fd)
    request = OpenShell(found.ref, cols=cols, rows=rows, attach=found.id, read_only=context.args.read_only)
    if found.answers and (cols < found.cols or rows < found.rows) and (context.args.read_only or found.viewers):
        context.say(f"note: {found.name} is {found.cols}x{found.rows}, which this terminal does not show whole")
    return await enter(context, await console.shell(request, consent=context.consent(found.ref.id)), fd)


async def enter(context: Context, session: ShellSession, fd: int) -> int:
    """Show a session on this terminal. Returns the shell's exit code; 0 if a kept one was left, which goes on."""
    try:
        await _attached(context, session, fd)
        if _hung_up(fd):
            return 128 + signal.SIGHUP
        ended = await session.wait()
        if ended.reason == DETACHED:
            context.say(f"\nleft {session.kept}; to come back: sandbox-console shells attach {session.kept}")
            return 0
    except (ConsoleError, OSError):
        if not _hung_up(fd):
            raise
        return 128 + signal.SIGHUP
    finally:
        await session.close()
    if ended.code is None:
        raise BackendError(f"the shell ended, but its exit code is not known{ended.reason and f': {ended.reason}'}")
    return ended.code


async def _attached(context: Context, session: ShellSession, fd: int) -> None:
    """Pass keys in and output out until the shell ends, or a kept one is left."""
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    sizes = asyncio.Event()
    screen = ScreenFilter()
    with _raw(fd):
        read = partial(_read, fd, keys)
        loop.add_reader(fd, read)
        loop.add_signal_handler(signal.SIGWINCH, sizes.set)
        tasks = [
            asyncio.ensure_future(_type(session, keys, lambda: loop.add_reader(fd, read))),
            asyncio.ensure_future(_resize(session, sizes, fd)),
        ]
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


async def _type(session: ShellSession, keys: asyncio.Queue[bytes], read_on: Callable[[], None]) -> None:
    """Type until the terminal hangs up, or Ctrl+] leaves a kept shell."""
    while data := await keys.get():
        read_on()
        data, leave, _ = data.partition(_LEAVE) if session.kept else (data, b"", b"")
        await session.write(data)
        if leave:
            break
    await session.close()


async def _resize(session: ShellSession, sizes: asyncio.Event, fd: int) -> None:
    while True:
        await sizes.wait()
        sizes.clear()
        with contextlib.suppress(ConsoleError, OSError):  # it ended, which the reading side reports
            await session.resize(*size_of(fd))


def _read(fd: int, keys: asyncio.Queue[bytes]) -> None:
    """Read what was typed; nothing if the terminal is gone, as at the end of a file.

    While the shell takes nothing, the rest waits in the terminal.
    """
    data = b""
    with contextlib.suppress(OSError):
        data = os.read(fd, _CHUNK)
    keys.put_nowait(data)
    if not data or keys.qsize() >= _READS_MOST:
        asyncio.get_running_loop().remove_reader(fd)


def _hung_up(fd: int) -> bool:
    """Whether the terminal is gone, for example because its window was closed."""
    try:
        termios.tcgetattr(fd)
    except termios.error:
        return True
    return False


def size_of(fd: int) -> tuple[int, int]:
    """The terminal's columns and rows."""
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
