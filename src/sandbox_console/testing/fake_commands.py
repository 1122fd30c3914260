"""The commands that a fake sandbox knows, run as a real asynchronous process: echo, cat, env, exit, sleep, flood."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

CHUNK = 64 * 1024
_QUEUED = 8  # chunks that wait for a reader; then the command waits


class FakeProcess:
    """``echo WORD...``, ``cat``, ``env``, ``exit N``, ``sleep S``, ``flood BYTES``; another word ends with 127."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str]) -> None:
        self.argv = argv
        self._env = env
        self._out: asyncio.Queue[tuple[Stream, bytes] | None] = asyncio.Queue(_QUEUED)
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    @property
    def runs(self) -> bool:
        """Whether it is still running."""
        return not self._end.done()

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        while (chunk := await self._out.get()) is not None:
            yield chunk

    async def write(self, data: bytes) -> None:
        if data and not self._end.done():
            await self._stdin.put(data)

    async def close_stdin(self) -> None:
        if not self._end.done():
            await self._stdin.put(b"")

    async def wait(self) -> Exit:
        return await shielded(self._end)

    async def kill(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._finish(Exit(137, 9))
        self._drain()

    def _finish(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)
        with contextlib.suppress(asyncio.QueueEmpty):  # a waiting writer must not wait for ever
            while True:
                self._stdin.get_nowait()

    def _drain(self) -> None:
        with contextlib.suppress(asyncio.QueueEmpty):
            while True:
                self._out.get_nowait()
        self._out.put_nowait(None)

    async def _run(self) -> None:
        code = await self._command()
        self._finish(Exit(code))
        await self._out.put(None)

    async def _command(self) -> int:
        match self.argv:
            case ("echo", *words):
                await self._say(" ".join(words).encode() + b"\n")
            case ("cat",):
                while data := await self._stdin.get():
                    await self._say(data)
            case ("env",):
                await self._say("".join(f"{key}={value}\n" for key, value in self._env.items()).encode())
            case ("exit", code):
                return int(code) & 255
            case ("sleep", seconds):
                await asyncio.sleep(float(seconds))
            case ("flood", size):
                await self._flood(int(size))
            case _:
                word = self.argv[0] if self.argv else ""
                await self._out.put((Stream.STDERR, f"{word}: not found\n".encode()))
                return 127
        return 0

    async def _flood(self, size: int) -> None:
        while size > 0:
            await self._say(b"x" * min(size, CHUNK))
            size -= CHUNK

    async def _say(self, data: bytes) -> None:
        await self._out.put((Stream.STDOUT, data))
