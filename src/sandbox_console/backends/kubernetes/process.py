"""A command or a shell in a container, over a WebSocket of the API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from sandbox_console.backends.kubernetes.exec_socket import STATUS, STDERR, STDIN, STDOUT, ExecSocket, exit_of
from sandbox_console.errors import ConsoleError
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_QUEUED = 16  # messages that wait for a reader; beyond that the guest is held back
_KILL_S = 10.0
_STREAMS = {STDOUT: Stream.STDOUT, STDERR: Stream.STDERR}

Sweep = Callable[[], Awaitable[None]]


class KubernetesProcess:
    """One exec. ``sweep`` kills what the command has started, as closing its socket ends nothing."""

    def __init__(self, socket: ExecSocket, sweep: Sweep) -> None:
        self._socket = socket
        self._sweep = sweep
        self._out: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue(_QUEUED)
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._killed = False
        self._pump = asyncio.create_task(self._read())

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        while (chunk := await self._out.get()) is not None:
            yield chunk
        self._out.put_nowait(None)  # later calls also get the end

    async def write(self, data: bytes) -> None:
        if not self._end.done():
            await self._socket.send(STDIN, data)

    async def close_stdin(self) -> None:
        if not self._end.done():
            await self._socket.close_stdin()

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of its terminal."""
        if not self._end.done():
            await self._socket.resize(cols, rows)

    async def wait(self) -> Exit:
        return await shielded(self._end)

    async def kill(self) -> None:
        if self._killed:
            return
        self._killed = True
        if not self._end.done():
            with contextlib.suppress(ConsoleError, TimeoutError):
                async with asyncio.timeout(_KILL_S):
                    await self._sweep()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        await self._closed()
        self._finish(Exit(137, 9))
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self._out.get_nowait()
        self._out.put_nowait(None)

    async def _read(self) -> None:
        end = Exit(137, 9, reason="the connection to the sandbox ended")
        while (message := await self._socket.receive()) is not None:
            channel, data = message
            if channel == STATUS:
                end = exit_of(data)
            elif data and channel in _STREAMS:
                await self._out.put((_STREAMS[channel], data))
        self._finish(end)
        await self._closed()
        await self._out.put(None)

    async def _closed(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # a frozen server does not answer the closing frame
                await self._socket.close()

    def _finish(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)


class KubernetesTerminal:
    """A shell: a command on a PTY, whose output is one stream."""

    def __init__(self, process: KubernetesProcess) -> None:
        self._process = process
        self._output = process.output()

    async def read(self) -> bytes:
        async for _, data in self._output:
            return data
        return b""

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    async def resize(self, cols: int, rows: int) -> None:
        await self._process.resize(cols, rows)

    async def wait(self) -> Exit:
        return await self._process.wait()

    async def close(self) -> None:
        await self._process.kill()
