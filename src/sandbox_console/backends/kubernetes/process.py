"""A command or a shell in a container, over a WebSocket of the API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from sandbox_console.backends.common.queued_process import KILL_S, QueuedProcess
from sandbox_console.backends.kubernetes.exec_socket import STATUS, STDERR, STDIN, STDOUT, ExecSocket, exit_of
from sandbox_console.errors import ConsoleError
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_STREAMS = {STDOUT: Stream.STDOUT, STDERR: Stream.STDERR}

Sweep = Callable[[], Awaitable[None]]


class KubernetesProcess(QueuedProcess):
    """One exec. ``sweep`` kills what the command has started, as closing its socket ends nothing."""

    def __init__(self, socket: ExecSocket, sweep: Sweep) -> None:
        super().__init__()
        self._socket = socket
        self._sweep = sweep
        self._pump = asyncio.create_task(self._read())

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

    async def kill(self) -> None:
        if self._killed:
            return
        self._killed = True
        if not self._end.done():
            with contextlib.suppress(ConsoleError, TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await self._sweep()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        await self._closed()
        self._finish(Exit(137, 9))
        self._drain()

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
