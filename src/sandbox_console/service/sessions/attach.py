"""An attached main process, as a terminal on screen uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Attach
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit
from sandbox_console.service.effects.attachment import Attachment
from sandbox_console.service.gate.gate import Consent, Performs
from sandbox_console.service.gate.operation import ExecIO, Hold

_QUEUED = 64
"""How many chunks are kept for a slow reader. Beyond that the backend's limit applies, which reports losses."""
_BACKSPACE, _NEWLINE, _RETURN, _PRINTABLE, _RUB_OUT = 8, 10, 13, 32, 127
_TOP, _FOLLOWS = 0b1100_0000, 0b1000_0000
"""A mask for the top bits of a byte, and their value in UTF-8's continuation bytes."""


class AttachedSession:
    """An attached process for a terminal on screen. It is made by :func:`attach`; the caller closes it.

    The line ends of a process without a terminal are converted for one.
    """

    recorded = answers_itself = False
    kept = ""
    without: tuple[str, ...] = ()

    def __init__(self, console: Performs, request: Attach, consent: Consent) -> None:
        self.request = request
        self._out: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._typed: asyncio.Queue[bytes] = asyncio.Queue()
        self._held: asyncio.Future[Attachment] = asyncio.get_running_loop().create_future()
        self._sized = False
        io = ExecIO(self._input(), self._take, self._attached)
        self._operation = console.perform(request, consent=consent, io=io)
        self._ending = asyncio.ensure_future(self._operation.result())
        self._line = bytearray()

    async def open(self) -> None:
        """Wait until the process is attached. Raises what the action raises."""
        await asyncio.wait(list[asyncio.Future[Any]]((self._held, self._ending)), return_when=asyncio.FIRST_COMPLETED)
        if not self._held.done():
            await self._ending

    @property
    def attachment(self) -> Attachment:
        """The hold on the process."""
        return self._held.result()

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        if self._out.empty() and not self._ending.done():
            coming = asyncio.ensure_future(self._out.get())
            try:
                either = list[asyncio.Future[Any]]((coming, self._ending))
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
            if coming.done() and not coming.cancelled():
                return coming.result()
        return b"" if self._out.empty() else self._out.get_nowait()

    async def write(self, data: bytes) -> None:
        """Send bytes as typed input."""
        if not self.attachment.takes_input:
            return
        if self.attachment.tty:
            self._typed.put_nowait(data)
            return
        for byte in data:
            await self._edit(byte)

    async def _edit(self, byte: int) -> None:
        """Handle a key like a terminal, for a process that reads a pipe: echo, erase, and pass on whole lines."""
        if byte in (_RETURN, _NEWLINE):
            self._typed.put_nowait(bytes(self._line) + b"\n")
            self._line.clear()
            await self._out.put(b"\r\n")
        elif byte in (_RUB_OUT, _BACKSPACE):
            if self._line:
                while self._line.pop() & _TOP == _FOLLOWS and self._line:  # the bytes of one character
                    continue
                await self._out.put(b"\b \b")
        elif byte >= _PRINTABLE:
            self._line.append(byte)
            await self._out.put(bytes([byte]))

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the process's terminal. The first time, another size is set before, so that it redraws."""
        if not self._sized:
            self._sized = True
            await self.attachment.resize(cols, rows + 1)
        await self.attachment.resize(cols, rows)

    async def wait(self) -> Exit:
        """How the process ended; without a code if it was detached."""
        result = await shielded(self._ending)
        return Exit(code=result.exit_code, reason=str(result.details.get("end", "")))

    async def close(self) -> None:
        """Detach from the process, which goes on. Safe to call twice."""
        if self._held.done():
            await self.attachment.release()
        else:
            self._operation.cancel()
        while not self._ending.done():  # nobody reads any more, so further output would wait for ever
            await self.read()
        with suppress(ConsoleError, asyncio.CancelledError):
            self._ending.result()

    async def _input(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._typed.get()

    async def _take(self, stream: Stream, data: bytes) -> None:
        await self._out.put(data if stream is Stream.TTY else data.replace(b"\n", b"\r\n"))

    def _attached(self, hold: Hold) -> None:
        if isinstance(hold, Attachment) and not self._held.done():
            self._held.set_result(hold)


async def attach(console: Performs, request: Attach, *, consent: Consent) -> AttachedSession:
    """Attach to a sandbox's main process through the gate. Raises what the action raises."""
    session = AttachedSession(console, request, consent)
    try:
        await session.open()
    except BaseException:
        await session.close()
        raise
    return session
