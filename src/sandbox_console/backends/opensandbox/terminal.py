"""A shell in a sandbox, over execd's WebSocket. A connection that breaks is opened again, and what was missed comes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from sandbox_console.backends.common.remote import ExitCode
from sandbox_console.backends.opensandbox.client import Client, execd
from sandbox_console.errors import ConsoleError
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.sandbox import Exit

_STDIN, _STDOUT, _STDERR, _REPLAY = 0, 1, 2, 3
_OFFSET_BYTES = 8
_TRIES, _PAUSE_S = 5, 0.5
_CLOSE_S = 5.0


class Session(Struct):
    """The answer to a new session. The guest gives it, and it becomes part of a path, so no ``/`` or ``.`` is in it."""

    session_id: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,128}\Z")]


class Frame(Struct):
    """A message about a session."""

    type: str
    exit_code: ExitCode | None = None
    error: str = ""


class OpenSandboxTerminal:
    """One session of execd. Its output is counted, so that a new connection goes on where the last one ended."""

    def __init__(self, client: Client, sandbox: str, session: str, socket: Any) -> None:
        self._client, self._sandbox, self._session, self._socket = client, sandbox, session, socket
        self._seen = 0
        self._size = (80, 24)
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._closed = False

    @classmethod
    async def open(cls, client: Client, sandbox: str, command: str, cwd: str | None) -> OpenSandboxTerminal:
        """Start a shell. Raises a ConsoleError."""
        body = {"command": command} | ({"cwd": cwd} if cwd else {})
        found = client.remote.decoded(await client.in_guest("POST", sandbox, "/pty", body), Session, "shell")
        socket = await _connect(client, sandbox, found.session_id, 0)
        return cls(client, sandbox, found.session_id, socket)

    async def read(self) -> bytes:
        """The next bytes; empty at the end."""
        import aiohttp

        while not self._end.done():
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                if data := self._output(message.data):
                    return data
            elif message.type is aiohttp.WSMsgType.TEXT:
                self._told(message.data)
            elif not await self._again():
                self._finish(Exit(137, 9, reason="the connection to the sandbox ended"))
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes as typed input."""
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(bytes((_STDIN,)) + data)

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the PTY."""
        self._size = cols, rows
        with contextlib.suppress(ConnectionError):
            await self._socket.send_json({"type": "resize", "cols": cols, "rows": rows})

    async def wait(self) -> Exit:
        """Wait for the shell's end, which is told among its output."""
        return await shielded(self._end)

    async def close(self) -> None:
        """End the session: execd kills what is left of it."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ConsoleError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._client.in_guest("DELETE", self._sandbox, f"/pty/{self._session}")
        self._finish(Exit(137, 9))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # a frozen server does not answer the closing frame
                await self._socket.close()

    def _output(self, frame: bytes) -> bytes:
        kind, data = frame[:1], frame[1:]
        if kind == bytes((_REPLAY,)):
            begin, data = int.from_bytes(data[:_OFFSET_BYTES], "big"), data[_OFFSET_BYTES:]
            data = data[max(0, self._seen - begin) :]
        elif kind not in (bytes((_STDOUT,)), bytes((_STDERR,))):
            return b""
        self._seen += len(data)
        return data

    def _told(self, text: str) -> None:
        frame = frame_of(text)
        if frame.type == "exit":
            code = frame.exit_code
            self._finish(Exit(128 - code, -code) if code is not None and code < 0 else Exit(code))

    async def _again(self) -> bool:
        """Connect again; False if the session is gone or the server stays silent."""
        for _ in range(_TRIES):
            if self._closed:
                return False
            await asyncio.sleep(_PAUSE_S)
            try:
                self._socket = await _connect(self._client, self._sandbox, self._session, self._seen)
            except ConsoleError as error:
                if error.code == "not_found":
                    return False
                continue
            await self.resize(*self._size)
            return True
        return False

    def _finish(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)


def frame_of(text: str) -> Frame:
    """A message about a session; one of no type for what is none."""
    try:
        return msgspec.json.decode(text, type=Frame)
    except (msgspec.DecodeError, RecursionError):
        return Frame("")


async def _connect(client: Client, sandbox: str, session: str, since: int) -> Any:
    path = execd(sandbox, f"/pty/{session}/ws")
    return await client.remote.socket(path, "shell", (("since", str(since)),))
