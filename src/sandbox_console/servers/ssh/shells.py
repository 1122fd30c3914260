"""One shell, or one command, that an ssh client opens with a terminal."""

from __future__ import annotations

import asyncio

import asyncssh

from sandbox_console.errors import BackendError, Unsupported
from sandbox_console.model.action import OpenShell
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.shells import NO_SHELL
from sandbox_console.servers.ssh.commands import CHUNK, ENDS, LOST, Process, note
from sandbox_console.servers.ssh.guest import Guest, accepted
from sandbox_console.service import ShellSession
from sandbox_console.service.sessions.brought_shell import from_brought

_TYPED = {"INT": b"\x03", "QUIT": b"\x1c"}
"""Signals that a terminal sends for a key."""

_MOST_SIDE = 4096
"""The most columns or rows of a terminal. A client may name any 32 bits."""


async def run(guest: Guest, process: Process) -> int:
    """Show a shell until it ends, and return its exit code. Raises ConsoleError.

    The shell and everything that it started end if the client goes.
    """
    cols, rows, *_ = process.term_size
    cols, rows = _size(cols, rows)
    action = OpenShell(
        guest.ref, None, guest.user, cols, rows, _term(process), env=accepted(process.env), keep=False,
        command=process.command,
    )  # fmt: skip
    session = await _opened(guest, action)
    try:
        for name in guest.news(session.without):
            note(process, f"note: {name} cannot be read here: it is not passed on, and not masked in output")
        await _shown(session, process)
        if process.is_closing():
            return 0  # nobody is there to be told
        ended = await session.wait()
    finally:
        await run_to_completion(session.close())
    if ended.code is None:
        raise BackendError(f"the shell ended, but its exit code is not known{ended.reason and f': {ended.reason}'}")
    return ended.code


async def _opened(guest: Guest, action: OpenShell) -> ShellSession:
    """Open the best shell of the image or, if it has none, the one that was brought."""
    try:
        return await guest.console.shell(action, consent=guest.consent)
    except Unsupported as error:
        if error.message != NO_SHELL or not (brought := await guest.brought()):
            raise
    return await guest.console.shell(from_brought(action, brought), consent=guest.consent)


async def _shown(session: ShellSession, process: Process) -> None:
    """Pass bytes both ways until the shell ends or the client goes."""
    down, up = asyncio.create_task(_output(session, process)), asyncio.create_task(_typed(session, process))
    gone = asyncio.ensure_future(process.wait_closed())
    try:
        await asyncio.wait({down, gone, up}, return_when=asyncio.FIRST_COMPLETED)
        if up.done() and not gone.done():  # no more input, or a signal
            up.result()
        if down.done():
            down.result()
    finally:
        for task in (down, up, gone):
            task.cancel()
        await asyncio.gather(down, up, gone, return_exceptions=True)


async def _output(session: ShellSession, process: Process) -> None:
    while data := await session.read():
        try:
            process.stdout.write(data)
            await process.stdout.drain()
        except LOST:
            return


async def _typed(session: ShellSession, process: Process) -> None:
    """Type what the client types; returns when the shell is to end. The end of the client's input is Ctrl+D."""
    while True:
        try:
            data = await process.stdin.read(CHUNK)
        except asyncssh.TerminalSizeChanged as size:
            await session.resize(*_size(size.width, size.height))
        except asyncssh.SignalReceived as received:
            if key := _TYPED.get(received.signal):
                await session.write(key)
            elif received.signal in ENDS:
                return
        except asyncssh.BreakReceived:
            continue
        except LOST:
            return
        else:
            await session.write(data or b"\x04")
            if not data:
                await asyncio.Event().wait()


def _size(cols: int, rows: int) -> tuple[int, int]:
    return min(cols or 80, _MOST_SIDE), min(rows or 24, _MOST_SIDE)


def _term(process: Process) -> str:
    """The terminal's type, which becomes a variable in the sandbox."""
    term = process.term_type or ""
    return term if term.isprintable() and 0 < len(term) <= 64 else "xterm-256color"
