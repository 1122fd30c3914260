"""Runs a command beside the main process, and reports how it ended."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox_console.backends.docker.failures import Lost, Refused, plain
from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.hijacked_stream import Channel
    from sandbox_console.backends.docker.reaper import Reaper

WRITE_CHECK_S = 0.25
"""How long a write may wait before a check whether anybody is left to read it."""

HANG_UP_S = 0.3
"""How long a command has between the hang-up and the kill."""

SILENCE_S = 1.5
"""How long a command may be silent before the engine is checked for an answer, and between later checks."""

ANSWER_S = 8.0
"""How many seconds the engine has to answer. With the silence before, it is less than 10 s."""

LINGER_S = 2.5
"""The engine itself waits 2 s for the last output after a command has ended."""

_KILLED = 137
_OOM_LOOKS_S = (0.0, 0.1, 0.4)

Chunk = tuple[int, bytes]


class Execution:
    """One exec of the engine, handled identically with and without a terminal.

    ``refused`` is set if the command could not be run at all: then it never had a process. ``silent`` is set if the
    engine did not answer while it ran.
    """

    def __init__(
        self, engine: Engine, id: str, channel: Channel, reaper: Reaper, container: str, *, tty: bool = False
    ) -> None:
        self._container, self._tty = container, tty
        self._began = time.time()
        self.channel = channel
        self.id = id
        self.refused: Exit | None = None
        self.pid: int | None = None
        self._engine = engine
        self._reaper = reaper
        self._ended = asyncio.Event()
        self._reading = asyncio.Lock()
        self._ending = asyncio.Lock()
        self._begun = False
        self._reaped = False
        self._deaf = False
        self._heard = 0.0
        self.silent: BackendUnreachable | None = None
        self._lingering: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start it. A command that cannot be run is a result, not an error."""
        try:
            await self.channel.open()
        except Refused as error:
            await self.channel.close()
            if error.status != 400:
                raise
            self.refused = not_run(error.message)  # engines from 23 on report it here, older ones on stdout
            self._ended.set()
        except BaseException:
            await self.channel.close()
            raise

    async def read(self) -> Chunk | None:
        """The next chunk; None at the end, and if the connection broke: wait() reports which."""
        async with self._reading:
            chunk = None if self._ended.is_set() else await self._next()
            self._heard = time.monotonic()
            if chunk is not None and not self._begun:
                self._begun = True
                await self._see_refusal(chunk)
        if chunk is None or self.refused is not None:
            self._ended.set()
            await self.channel.close()
            return None
        return chunk

    async def watch(self) -> None:
        """End the reading if the engine does not answer, as a frozen one keeps its connections open for ever."""
        while not self._ended.is_set():
            await asyncio.sleep(SILENCE_S)
            if time.monotonic() - self._heard < SILENCE_S:
                continue
            try:
                await self._inspect(ANSWER_S)
            except BackendUnreachable as error:
                self.silent = BackendUnreachable(f"{error.message}; the command may still run", hint=error.hint)
                self._ended.set()
                await self.channel.close()
            except Refused:  # it answers, and the waiter for the command gets the error
                continue

    async def write(self, data: bytes) -> None:
        """Write bytes to stdin. Unlike the engine, this gives unread input up when the command ends.

        What is typed into a terminal waits for an engine that does not answer.
        """
        if self._deaf:
            return
        task = asyncio.ensure_future(self.channel.write(data))
        try:
            while not (await asyncio.wait({task}, timeout=WRITE_CHECK_S))[0]:
                if not await self._may_read():
                    self._deaf = True
                    self._lingering = self._lingering or asyncio.ensure_future(self._linger())
                    return
        finally:
            task.cancel()

    async def _may_read(self) -> bool:
        try:
            found = await self._inspect(ANSWER_S)
        except BackendUnreachable:
            if not self._tty:
                raise
            return True
        return found is not None and bool(found["Running"])

    async def wait(self) -> Exit:
        """Wait for its end. This also asks the engine directly, as nobody may be reading to the end."""
        pause = 0.02
        while self.refused is None:
            if self.silent is not None:
                raise self.silent
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ended.wait()
            found = await self._inspect(ANSWER_S)
            if found is None:
                return Exit(reason="the sandbox was removed while the command ran")
            if not found["Running"] and found["ExitCode"] is not None:
                return await self._exit_of(found)
            pause = min(pause * 1.5, 0.25)
            if self._ended.is_set():
                await asyncio.sleep(pause)
        return self.refused

    async def end(self) -> None:
        """Hang up, then kill what is left of the whole tree, and close. Safe to call twice."""
        async with self._ending:
            try:
                if self.refused is None and self.silent is None and not self._reaped:
                    await self._reap()
            finally:
                self._reaped = True
                self._ended.set()
                if self._lingering is not None:
                    self._lingering.cancel()
                await self.channel.close()

    def release(self) -> None:
        """Close this process's end of the connection. The command goes on: another process has the connection."""
        self._reaped = True
        self._ended.set()
        self.channel.release()

    async def _linger(self) -> None:
        """Close a connection that the engine keeps open for a stdin that nobody reads any more."""
        await asyncio.sleep(LINGER_S)
        await self.channel.close()

    async def _reap(self) -> None:
        if self._ended.is_set():
            await self._reaper.kill()
        elif self._tty:
            await self._hang_up()
            await self._reaper.kill()
        else:
            # It is frozen before its input ends, so that it does not take part of the input for all of it. Unread
            # output would delay the end of every other command of the container, including the freeze, by 10 s each.
            dropping = asyncio.ensure_future(self._drop())
            try:
                await self._reaper.freeze()
                await self._reaper.kill()
            finally:
                dropping.cancel()
                await asyncio.wait([dropping])

    async def _hang_up(self) -> None:
        """Let a shell's programs end by themselves."""
        await self.channel.close()
        await self._reaper.hang_up()
        with suppress(TimeoutError):
            async with asyncio.timeout(HANG_UP_S):
                await self.wait()

    async def _drop(self) -> None:
        """Read and discard output, unless somebody else reads it."""
        async with self._reading:
            while await self._next() is not None:
                pass

    async def _next(self) -> Chunk | None:
        try:
            return await self.channel.read()
        except Lost:
            return None

    async def _see_refusal(self, chunk: Chunk) -> None:
        """Older engines write to its stdout why a command was not run, with an ending that no program has."""
        if chunk[1].endswith(b"\r\n"):
            found = await self._inspect()
            if found is not None and found["Pid"] == 0 and not found["Running"]:
                self.refused = not_run(chunk[1].decode("utf-8", "replace"))

    async def _exit_of(self, found: dict[str, Any]) -> Exit:
        if found["Pid"] == 0 and not self._begun:
            await self.read()
        self.pid = found["Pid"] or None
        code = int(found["ExitCode"])
        if self.refused is not None:
            return self.refused
        oom = await self._out_of_memory() if code == _KILLED and not (self._reaped or self._ending.locked()) else None
        signal = code - 128 if 128 < code <= 128 + 64 else None
        return Exit(code=code, signal=signal, oom=oom, reason="out of memory" if oom else "")

    async def _out_of_memory(self) -> bool:
        """Whether the kernel killed a process of the container because it was out of memory, while the command ran.

        This is checked if the command was killed by somebody else. The engine reports it with an event, which may
        arrive after the end.
        """
        filters = json.dumps({"container": [self._container], "event": ["oom"]})
        for pause in _OOM_LOOKS_S:
            await asyncio.sleep(pause)
            params = {"since": f"{self._began:.9f}", "until": f"{time.time():.9f}", "filters": filters}
            async with self._engine.stream("events", params) as chunks:
                async for chunk in chunks:
                    if chunk.strip():
                        return True
        return False

    async def _inspect(self, timeout_s: float = 30) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._engine.call("GET", f"exec/{self.id}/json", timeout_s=timeout_s)
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return found


class DockerProcess:
    """A command with separate streams."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.ended = False
        """Whether its end has been waited for, so that nothing is left to kill."""

    @property
    def pid(self) -> int | None:
        """The command's pid on the engine's host, known once it has been waited for."""
        return self._execution.pid

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Chunks as they arrive. If the command cannot be run, the reason is on stderr."""
        watching = asyncio.ensure_future(self._execution.watch())
        try:
            while (chunk := await self._execution.read()) is not None:
                kind, data = chunk
                yield (Stream.STDERR if kind == 2 else Stream.STDOUT), data
        finally:
            watching.cancel()
        if self._execution.silent is not None:
            raise self._execution.silent
        if self._execution.refused is not None:
            yield Stream.STDERR, f"{self._execution.refused.reason}\n".encode()

    async def write(self, data: bytes) -> None:
        await self._execution.write(data)

    async def close_stdin(self) -> None:
        self._execution.channel.end_input()

    async def wait(self) -> Exit:
        end = await self._execution.wait()
        self.ended = True
        return end

    async def kill(self) -> None:
        await self._execution.end()


def not_run(message: str) -> Exit:
    """The shell's exit code: 127 if the program does not exist, 126 if it exists but cannot be run."""
    text = plain(message.strip())
    missing = "executable file not found" in text or ('exec: "' in text and "no such file or directory" in text)
    return Exit(code=127 if missing else 126, reason=text)
