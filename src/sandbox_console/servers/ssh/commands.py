"""One command that an ssh client runs, without a terminal."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import suppress

import asyncssh

from sandbox_console.model.action import Exec
from sandbox_console.model.log import Stream
from sandbox_console.model.text import clean
from sandbox_console.servers.ssh.guest import Guest
from sandbox_console.service import ActionResult, ExecIO, Operation

Process = asyncssh.SSHServerProcess[bytes]

CHUNK = 64 * 1024
LOST = (OSError, asyncssh.Error)
"""What reading and writing raises once the client is gone."""

_NOT_RUN, _NOT_FOUND, _UNKNOWN_CODE = 126, 127, 125
_NEEDED = {"rsync": "rsync", "scp": "scp -O", "git-upload-pack": "git", "git-receive-pack": "git", "git": "git"}
"""Programs that a client runs at the far end, and what was used to start them."""

ENDS = ("TERM", "KILL", "INT", "HUP", "QUIT", "ABRT")
"""Signals of a client that end what it started, with all that this started. A command gets no signal of its own."""


async def run(guest: Guest, process: Process) -> int:
    """Run the command, or a shell that reads standard input, and return its exit code. Raises ConsoleError.

    The command and everything that it started end if the client goes.
    """
    shell = await guest.shell()
    argv = (shell, "-c", process.command) if process.command is not None else (shell, "-l")
    action = Exec(guest.ref, argv, guest.environment(process.env), user=guest.user)
    output = _Output(process)
    operation = guest.console.perform(action, consent=guest.consent, io=ExecIO(output.typed(), output.give))
    output.operation = operation
    result = await _ended(process, operation)
    for name in guest.news(_without(result)):
        note(process, f"note: {name} cannot be read here: it is not passed on, and not masked in output")
    if result.exit_code == _NOT_FOUND:
        _tell_missing(guest, process)
    if result.exit_code == _NOT_RUN and result.exit is not None and result.exit.reason:
        note(process, f"sandbox-console: {guest.sandbox.name}: {result.exit.reason}")
    return _UNKNOWN_CODE if result.exit_code is None else result.exit_code


async def _ended(process: Process, operation: Operation) -> ActionResult:
    """The operation's result; it is cancelled once the client is gone, or asks for that."""
    gone = asyncio.ensure_future(process.wait_closed())
    result = asyncio.ensure_future(operation.result())
    try:
        await asyncio.wait({gone, result}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            operation.cancel()
        return await result
    finally:
        gone.cancel()
        result.cancel()
        operation.cancel()


class _Output:
    """The client's end of a command's streams."""

    operation: Operation

    def __init__(self, process: Process) -> None:
        self._process = process

    async def typed(self) -> AsyncIterator[bytes]:
        """The input until its end. A signal from the client ends the command."""
        while True:
            try:
                data = await self._process.stdin.read(CHUNK)
            except asyncssh.SignalReceived as received:
                if received.signal in ENDS:
                    self.operation.cancel()
            except (asyncssh.BreakReceived, asyncssh.TerminalSizeChanged):
                continue
            except LOST:  # not the end of the input: the command is being cancelled
                await asyncio.Event().wait()
            else:
                if not data:
                    return
                yield data

    async def give(self, stream: Stream, data: bytes) -> None:
        """Pass output on. While the client takes none, the command waits."""
        writer = self._process.stderr if stream is Stream.STDERR else self._process.stdout
        try:
            writer.write(data)
            await writer.drain()
        except LOST:
            self.operation.cancel()


def note(process: Process, text: str, *, end: str = "\n") -> None:
    """Write a line of the console's own to the client's standard error."""
    with suppress(*LOST):
        process.stderr.write(f"{clean(text)}{end}".encode())


def _without(result: ActionResult) -> tuple[str, ...]:
    names = result.details.get("without_secrets")
    return tuple(map(str, names)) if isinstance(names, list | tuple) else ()


def _tell_missing(guest: Guest, process: Process) -> None:
    """Say which program the sandbox lacks, if the client's program needs it there too."""
    with suppress(ValueError):
        words = shlex.split(process.command or "")
        program = words[0].rpartition("/")[2] if words else ""
        if program in _NEEDED:
            note(
                process, f"sandbox-console: {guest.sandbox.name} has no {program}, which {_NEEDED[program]} needs there"
            )
