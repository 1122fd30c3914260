"""Attaches to the main process's streams. A stalled reader would block the process, so this one never stalls.

The engine writes to an attached client before it lets the process go on (measured: a stalled reader stopped the
container). So output is always read. Up to KEPT bytes are kept for a slow caller; beyond that output is dropped, and
the loss is reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.common.messages import not_running
from sandbox_console.backends.docker.failures import about
from sandbox_console.backends.docker.hijacked_stream import Channel
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.terminal_size import LatestSize
from sandbox_console.errors import BackendUnreachable, ConsoleError, NotFound
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine

KEPT = 4 * 1024 * 1024


async def attach(engine: Engine, id: str) -> Attached:
    """Attach from now on. Raises NotFound, or Conflict if the container is not running."""
    with about(described(id)):
        data = await engine.call("GET", container_path(id, "json"))
        if not data["State"]["Running"]:
            raise not_running(str(data["Name"]).lstrip("/"))
        takes_input = _takes_input(data["Config"])
        channel = Channel(
            engine, engine.docker.containers.container(id).attach(stdin=takes_input, stdout=True, stderr=True)
        )
        try:
            await channel.open()
        except BaseException:
            await channel.close()
            raise
    return Attached(engine, id, channel, takes_input=takes_input, tty=bool(data["Config"].get("Tty")))


def _takes_input(config: dict[str, Any]) -> bool:
    # StdinOnce closes the process's stdin when an attached client leaves: a shell in it would end when we detach.
    return bool(config.get("OpenStdin")) and (bool(config.get("Tty")) or not config.get("StdinOnce"))


class Attached:
    """A Process that detaches instead of killing. ``write`` does nothing if the process has no open stdin."""

    def __init__(self, engine: Engine, id: str, channel: Channel, *, takes_input: bool, tty: bool) -> None:
        self._engine = engine
        self._id = id
        self._channel = channel
        self.takes_input = takes_input
        self.tty = tty
        self._kept: deque[tuple[Stream, bytes]] = deque()
        self._size = self._dropped = 0
        self._news = asyncio.Event()
        self._left = False
        self._terminal_size = LatestSize(self._resize)
        self._pump = asyncio.create_task(self._take())

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Chunks as they arrive, until the process ends or is detached. A loss is reported on stderr."""
        while True:
            while self._kept or self._dropped:
                if self._dropped:
                    lost, self._dropped = self._dropped, 0
                    yield Stream.STDERR, f"\r\n[sandbox-console: {lost} bytes were not read in time]\r\n".encode()
                if self._kept:
                    stream, data = self._kept.popleft()
                    self._size -= len(data)
                    yield stream, data
            if self._pump.done():
                return
            self._news.clear()
            await self._news.wait()

    async def write(self, data: bytes) -> None:
        if self.takes_input:
            await self._channel.write(data)

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the container's terminal."""
        if self.tty:
            await self._terminal_size.want(cols, rows)

    async def close_stdin(self) -> None:
        """Does nothing: the process's stdin is not ours to close."""

    async def wait(self) -> Exit:
        """How the process ended; an Exit without a code if it was detached and is still running."""
        await asyncio.wait({self._pump})
        if self._left:
            return Exit(reason="detached; the process runs on")
        return await self._how_it_ended()

    async def kill(self) -> None:
        """Detach."""
        self._terminal_size.stop()
        self._left = self._left or not self._pump.done()
        self._pump.cancel()
        await asyncio.wait({self._pump})
        await self._channel.close()

    async def _resize(self, cols: int, rows: int) -> None:
        await self._engine.call("POST", container_path(self._id, "resize"), params={"h": rows, "w": cols})

    async def _take(self) -> None:
        try:
            with suppress(BackendUnreachable):  # wait() reports what became of the process
                while (chunk := await self._channel.read()) is not None:
                    self._keep(*chunk)
        finally:
            self._news.set()

    def _keep(self, kind: int, data: bytes) -> None:
        stream = Stream.TTY if self.tty else Stream.STDERR if kind == 2 else Stream.STDOUT
        self._kept.append((stream, data))
        self._size += len(data)
        while self._size > KEPT:
            gone = len(self._kept.popleft()[1])
            self._size -= gone
            self._dropped += gone
        self._news.set()

    async def _how_it_ended(self) -> Exit:
        await self._channel.close()
        try:
            with about(described(self._id)):
                state = (await self._engine.call("GET", container_path(self._id, "json")))["State"]
        except NotFound:
            return Exit(reason="the sandbox was removed")
        except ConsoleError as error:
            return Exit(reason=error.message)
        if state["Running"]:
            return Exit(reason="the engine ended the connection; the process runs on")
        code = int(state["ExitCode"])
        signal = code - 128 if 128 < code <= 128 + 64 else None
        return Exit(code=code, signal=signal, oom=bool(state.get("OOMKilled")))
