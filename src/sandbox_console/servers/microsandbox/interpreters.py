"""The interpreters of ``sandbox.repl.run``: one process a sandbox and language, which keeps its variables.

Each is one command of the audit log. It reads a line of JSON for each piece of code, runs the piece as an interactive
interpreter does, and answers with a line of JSON. Only output of the piece is in the answer, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import msgspec
from msgspec import Struct

from sandbox_console.errors import BackendError, Conflict, TimedOut, UsageError
from sandbox_console.library import SandboxHandle
from sandbox_console.library.command import ExecResult, RunningCommand
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.servers.microsandbox.drivers import JAVASCRIPT, PYTHON

LANGUAGES = {"python": "python", "javascript": "javascript", "nodejs": "javascript", "node": "javascript"}
_COMMANDS = {"python": ("python3", "-u", "-c", PYTHON), "javascript": ("node", "-e", JAVASCRIPT)}
_LONGEST_LINE = 4 << 20
"""Of an answer; a driver sends at most 1 MiB of output, which JSON may make three times as long."""
_NOT_THERE = (126, 127)


class Line(Struct):
    """A line of output."""

    stream: str
    text: str


class Done(Struct):
    """What a piece of code has done. ``status`` is ``success`` or ``error``."""

    status: str
    output: list[Line]


class Interpreter:
    """One running interpreter."""

    def __init__(self, handle: SandboxHandle, language: str) -> None:
        self._handle, self._language = handle, language
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._stack = AsyncExitStack()
        self._running: RunningCommand | None = None
        self._lines: AsyncGenerator[bytes, None] | None = None
        self._turn = asyncio.Lock()
        self.over = False

    async def run(self, code: str, timeout_s: float) -> Done:
        """Run a piece of code, after those that wait. Raises TimedOut, Unsupported, ConsoleError; it is then over."""
        async with self._turn:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._run(code)
            except TimeoutError:
                await self.close()
                hint = "its variables are gone: the interpreter was ended"
                raise TimedOut(f"the code took longer than {timeout_s:g} s", hint=hint) from None
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """End the interpreter."""
        self.over = True
        self._pieces.put_nowait(None)
        await self._stack.aclose()

    async def _run(self, code: str) -> Done:
        if self.over:
            raise Conflict("the interpreter has ended", hint="run the code again: a new one starts")
        if self._lines is None:
            command = self._handle.stream(_COMMANDS[self._language], stdin=self._input())
            self._running = await self._stack.enter_async_context(command)
            self._lines = await self._stack.enter_async_context(aclosing(self._each(self._running)))
        self._pieces.put_nowait(msgspec.json.encode(code) + b"\n")
        line = await anext(self._lines, None)
        if line is None:
            raise await self._ended(self._running)
        try:
            return msgspec.json.decode(line, type=Done)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BackendError(f"the {self._language} interpreter sent something else than a result") from None

    async def _ended(self, running: RunningCommand | None) -> Exception:
        end = await running.result() if running is not None else ExecResult(None)
        if end.exit_code in _NOT_THERE:
            return UsageError(f"the image has no {_COMMANDS[self._language][0]}", hint="use another image")
        return Conflict(f"the {self._language} interpreter ended with {end.exit_code}", hint="run the code again")

    async def _input(self) -> AsyncGenerator[bytes, None]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def _each(self, running: RunningCommand) -> AsyncGenerator[bytes, None]:
        rest = bytearray()
        async for stream, data in running:
            if stream is not Stream.STDOUT:
                continue
            rest += data
            while (at := rest.find(b"\n")) >= 0:
                yield bytes(rest[:at])
                del rest[: at + 1]
            if len(rest) > _LONGEST_LINE:
                raise BackendError(f"the {self._language} interpreter sent a line without an end")


class Interpreters:
    """The interpreters of all sandboxes."""

    def __init__(self) -> None:
        self._found: dict[tuple[SandboxRef, str], Interpreter] = {}

    async def run(self, handle: SandboxHandle, language: str, code: str, timeout_s: float) -> Done:
        """Run code in the sandbox's interpreter, which is started if there is none. Raises as :class:`Interpreter`."""
        known = LANGUAGES.get(language)
        if known is None:
            raise UsageError(f"language {language!r} is not supported", hint=f"there is {', '.join(LANGUAGES)}")
        key = handle.ref, known
        if key not in self._found or self._found[key].over:
            self._found[key] = Interpreter(handle, known)
        return await self._found[key].run(code, timeout_s)

    async def forget(self, ref: SandboxRef) -> None:
        """End the interpreters of a sandbox."""
        for key in [key for key in self._found if key[0] == ref]:
            await self._found.pop(key).close()

    async def close(self) -> None:
        """End all."""
        await asyncio.gather(*(one.close() for one in self._found.values()))
        self._found.clear()
