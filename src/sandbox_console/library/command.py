"""Commands in a sandbox, which are run to their end or read while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, Self

from msgspec import Struct, structs

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.library.exec_input import Source
from sandbox_console.library.exec_output import Files
from sandbox_console.model.action import Exec
from sandbox_console.model.cancellation import shielded, wait_until_done
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit
from sandbox_console.service import ActionResult, ExecIO, Operation

CAPTURE_BYTES = 1024 * 1024
"""How much of each stream a result keeps. With ``stdout=`` to a file or ``stream()`` you get all of it."""

_AHEAD = 16
"""How many chunks of at most 256 KiB may wait for the reader before the command has to wait."""

Perform = Callable[[Exec, ExecIO], Operation]


class ExecResult(Struct, frozen=True):
    """How a command ended. A failure of the command is a result, never an exception.

    ``exit_code`` follows the shell's convention: 126 and 127 if the command could not be run, 128 + the number of the
    signal that killed it, 124 after a timeout. ``oom`` is None if the backend cannot know. ``pid`` is the process
    inside the sandbox if that can be known, else on the backend's host. ``audit_id`` is the row of the audit log.
    """

    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    timed_out: bool = False
    signal: int | None = None
    oom: bool | None = None
    reason: str = ""
    pid: int | None = None
    audit_id: int = 0

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """The command's stdout as text. Invalid UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """The command's stderr as text. Invalid UTF-8 is replaced."""
        return self.stderr.decode("utf-8", "replace")


def words(command: str | Sequence[str]) -> tuple[str, ...]:
    """The argument list to run: a list unchanged, a text as a script of ``/bin/sh``. Raises UsageError if empty."""
    found = ("/bin/sh", "-c", command) if isinstance(command, str) else tuple(command)
    if not found or not found[-1] or not all(isinstance(one, str) for one in found):
        raise UsageError(f"{command!r} is not a command", hint='a list of texts, or one text for /bin/sh: "ls -l /tmp"')
    return found


async def run(perform: Perform, request: Exec, source: Source, files: Files) -> ExecResult:
    """Run a command to its end, with its output in the result and the files. Cancelling this ends the command."""
    kept = _Kept()

    async def take(stream: Stream, data: bytes) -> None:
        if not await files.take(stream, data):
            kept.add(stream, data)

    async with files:
        operation = perform(request, ExecIO(source.chunks(), take if files.wanted else None))
        try:
            result = await ended(operation)
        except ConsoleError:
            if problem := source.problem or files.problem:
                raise problem from None  # the caller's own object failed, so raise its error
            raise
    return kept.within(result_of(result))


async def ended(operation: Operation) -> ActionResult:
    """Wait for an action's result. A cancellation ends the action, and waits for its end."""
    waiting = asyncio.ensure_future(operation.result())
    try:
        return await shielded(waiting)
    except asyncio.CancelledError:
        operation.cancel()
        await wait_until_done(waiting)
        raise


def result_of(found: ActionResult) -> ExecResult:
    """Make a command's result from that of its action."""
    end = found.exit or Exit(found.exit_code)
    return ExecResult(
        found.exit_code, found.stdout, found.stderr, found.truncated, found.timed_out,
        end.signal, end.oom, end.reason, found.pid, found.audit_id,
    )  # fmt: skip


class _Kept:
    """Keeps the stream that does not go to a file while the other one does."""

    def __init__(self) -> None:
        self._data: dict[Stream, bytearray] = {}
        self._truncated = False

    def add(self, stream: Stream, data: bytes) -> None:
        """Keep as much of a chunk as there is room for."""
        kept = self._data.setdefault(stream, bytearray())
        room = CAPTURE_BYTES - len(kept)
        kept += data[: max(room, 0)]
        self._truncated = self._truncated or len(data) > room

    def within(self, result: ExecResult) -> ExecResult:
        """The result with the kept output."""
        if not self._data:
            return result
        out, err = (bytes(self._data.get(stream, b"")) for stream in (Stream.STDOUT, Stream.STDERR))
        return structs.replace(result, stdout=out, stderr=err, truncated=self._truncated)


class RunningCommand:
    """A command that is read while it runs: ``async for stream, data in running``, inside ``async with``.

    The command waits if its output is not read. Leaving the block ends the command with all that it started.
    """

    def __init__(self, perform: Perform, request: Exec, source: Source) -> None:
        self._perform, self._request, self._source = perform, request, source
        self._chunks: asyncio.Queue[tuple[Stream, bytes]] = asyncio.Queue(_AHEAD)
        self._operation: Operation | None = None
        self._waiting: asyncio.Future[ActionResult] | None = None

    async def __aenter__(self) -> Self:
        async def take(stream: Stream, data: bytes) -> None:
            await self._chunks.put((stream, data))

        self._operation = self._perform(self._request, ExecIO(self._source.chunks(), take))
        self._waiting = asyncio.ensure_future(self._operation.result())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._operation is not None and self._waiting is not None:
            self._operation.cancel()
            await wait_until_done(self._waiting)

    def __aiter__(self) -> AsyncIterator[tuple[Stream, bytes]]:
        return self._each()

    async def _each(self) -> AsyncGenerator[tuple[Stream, bytes], None]:
        """Yield chunks as they arrive. Raises the error that ended the command if it did not end by itself."""
        waiting = self._entered()
        while True:
            if self._chunks.empty() and not waiting.done():
                getting = asyncio.ensure_future(self._chunks.get())
                both: set[asyncio.Future[Any]] = {getting, waiting}
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not getting.done():
                        getting.cancel()
                if getting.done() and not getting.cancelled():
                    yield getting.result()
                    continue
            if self._chunks.empty():
                await self.result()
                return
            yield self._chunks.get_nowait()

    async def result(self) -> ExecResult:
        """Wait for the command's end, and return how it ended. Unread output is dropped, so that it can end."""
        waiting = self._entered()
        while not waiting.done():
            while not self._chunks.empty():
                self._chunks.get_nowait()
            getting = asyncio.ensure_future(self._chunks.get())
            both: set[asyncio.Future[Any]] = {getting, waiting}
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                getting.cancel()
        try:
            return result_of(waiting.result())
        except ConsoleError:
            if self._source.problem is not None:
                raise self._source.problem from None
            raise

    def _entered(self) -> asyncio.Future[ActionResult]:
        if self._waiting is None:
            raise UsageError("the command was not started", hint="async with box.stream(...) as running:")
        return self._waiting
