"""Commands with an input, whose output is bytes: execd's sessions without a terminal. Files move through them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sandbox_console.backends.common.guest_files import answer
from sandbox_console.backends.common.queued_process import KILL_S, QueuedProcess
from sandbox_console.backends.opensandbox.client import Client, execd
from sandbox_console.backends.opensandbox.terminal import Frame, Session, frame_of
from sandbox_console.errors import ConsoleError
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_STDIN = b"\0"
_STREAMS = {1: Stream.STDOUT, 2: Stream.STDERR}
_PIECE = 64 << 10


class PipeProcess(QueuedProcess):
    """One command. Its stdin cannot be ended."""

    def __init__(self, client: Client, sandbox: str, session: str, socket: Any) -> None:
        super().__init__()
        self._client, self._sandbox, self._session, self._socket = client, sandbox, session, socket
        self._pump = asyncio.create_task(self._read())

    async def write(self, data: bytes) -> None:
        """Write bytes to stdin."""
        with contextlib.suppress(ConnectionError):  # it has ended
            for at in range(0, len(data), _PIECE):
                await self._socket.send_bytes(_STDIN + data[at : at + _PIECE])

    async def close_stdin(self) -> None:
        """Execd cannot end stdin."""

    async def kill(self) -> None:
        """End the session: execd kills what is left of it."""
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(ConsoleError, TimeoutError):
            async with asyncio.timeout(KILL_S):
                await self._client.in_guest("DELETE", self._sandbox, f"/pty/{self._session}")
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # a frozen server does not answer the closing frame
                await self._socket.close()
        self._finish(Exit(137, 9))
        self._drain()

    async def _read(self) -> None:
        import aiohttp

        end = Exit(137, 9, reason="the connection to the sandbox ended")
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                if (stream := _STREAMS.get(message.data[0])) is not None:
                    await self._out.put((stream, message.data[1:]))
            elif message.type is aiohttp.WSMsgType.TEXT and (frame := frame_of(message.data)).type == "exit":
                end = _end(frame)
                break
        self._finish(end)
        await self._out.put(None)


def _end(frame: Frame) -> Exit:
    code = frame.exit_code
    return Exit(128 - code, -code) if code is not None and code < 0 else Exit(code)


class PipeGuest(Struct, frozen=True):
    """A running sandbox, for files."""

    client: Client
    sandbox: str

    async def run(self, argv: Sequence[str], *, stdin: bool = False) -> PipeProcess:  # noqa: ARG002 - it always has one
        """Start a command. Raises a ConsoleError."""
        body = {"command": f"exec {shlex.join(argv)}"}
        data = await self.client.in_guest("POST", self.sandbox, "/pty", body)
        session = self.client.remote.decoded(data, Session, "files").session_id
        path = execd(self.sandbox, f"/pty/{session}/ws")
        socket = await self.client.remote.socket(path, "files", (("pty", "0"),))
        return PipeProcess(self.client, self.sandbox, session, socket)

    async def ask(self, script: str, *words: str) -> tuple[int | None, bytes, bytes]:
        """Run a script to its end. Raises BackendError if it takes too long."""
        return await answer(await self.run(["sh", "-c", script, "sh", *words]), self.sandbox)
