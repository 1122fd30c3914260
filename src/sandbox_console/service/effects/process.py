"""Runs one command to its end, with input, output and a timeout, and ends its whole process tree."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

from msgspec import Struct, field

from sandbox_console.backends.base import Process
from sandbox_console.errors import InputFailed, NotFound, SandboxEnded
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit, Sandbox, Status
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.service.effects.call import Call
from sandbox_console.service.gate.operation import CAPTURE_BYTES, ExecIO

TIMED_OUT_CODE = 124
"""The exit code after a timeout, as for timeout(1)."""


_LOOKS_S = (0.0, 0.05, 0.2)
"""When a sandbox is checked after a command was killed, as its own end is known a moment after the command's."""


class Ran(Struct):
    """The result of a command."""

    exit: Exit = field(default_factory=Exit)
    pid: int | None = None
    timed_out: bool = False
    out: dict[Stream, bytearray] = field(default_factory=dict)
    bytes_out: int = 0
    truncated: bool = False


async def run_to_end(process: Process, io: ExecIO, redactor: Redactor, timeout_s: float | None) -> Ran:
    """Wait for the command; past ``timeout_s`` or when cancelled, its process tree is killed first.

    Raises InputFailed if the input raised: a command that got only a part must not look complete.
    """
    ran = Ran()
    feed = _Feed(process, io)
    feeding = asyncio.create_task(feed.run())
    try:
        async with asyncio.timeout(timeout_s) as limit:
            await _drain(process, io, redactor, ran)
            ran.exit = await process.wait()
    except TimeoutError:
        await run_to_completion(process.kill())
        if timeout_s is None or not limit.expired():  # a failure of the provider's own, not our limit
            raise
        ran.timed_out = True
        ran.exit = Exit(code=TIMED_OUT_CODE, reason=f"it ran longer than {timeout_s:g} s")
    except BaseException:
        await run_to_completion(process.kill())
        raise
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await feeding
    if feed.problem is not None:
        raise InputFailed(f"the input failed: {type(feed.problem).__name__}: {feed.problem}") from feed.problem
    ran.pid = getattr(process, "pid", None)
    return ran


class _Feed:
    """The input on its way to the command. ``problem`` is what reading it raised; the command is killed then."""

    def __init__(self, process: Process, io: ExecIO) -> None:
        self._process, self._source = process, io.stdin
        self.problem: Exception | None = None

    async def run(self) -> None:
        """Pass it on to its end."""
        try:
            while (data := await self._next()) is not None:
                await self._process.write(data)
        finally:
            if self.problem is None:
                await self._process.close_stdin()  # also if writing failed: a guest must not wait for more
            else:  # do not end the input: the command has not received all of it
                await run_to_completion(self._process.kill())

    async def _next(self) -> bytes | None:
        try:
            return None if self._source is None else await anext(self._source, None)
        except Exception as error:  # noqa: BLE001 - the caller's own code, which may raise anything
            self.problem = error
            return None


async def _drain(process: Process, io: ExecIO, redactor: Redactor, ran: Ran) -> None:
    masks: dict[Stream, StreamRedactor] = {}
    async for stream, data in process.output():
        ran.bytes_out += len(data)
        mask = masks.setdefault(stream, StreamRedactor(redactor))
        await _give(stream, mask.feed(data), io, ran)
    for stream, mask in masks.items():
        await _give(stream, mask.flush(), io, ran)


async def _give(stream: Stream, data: bytes, io: ExecIO, ran: Ran) -> None:
    if not data:
        return
    if io.on_shown is not None:
        await io.on_shown(stream, data)
    if io.on_output is not None:
        await io.on_output(stream, data)
        return
    kept = ran.out.setdefault(stream, bytearray())
    room = CAPTURE_BYTES - len(kept)
    kept += data[: max(room, 0)]
    ran.truncated = ran.truncated or len(data) > room


async def refuse_ended(call: Call, end: Exit) -> None:
    """Raise SandboxEnded if a command was killed because its sandbox ended, as exit code 137 would blame the command.

    Costs nothing unless the command was killed.
    """
    before = call.target
    if before is None or (end.code is not None and end.code != 128 + signal.SIGKILL):
        return
    for pause in _LOOKS_S:
        await asyncio.sleep(pause)
        try:
            now = await call.backend.inspect(before.ref)
        except NotFound:
            raise SandboxEnded(f"{before.name} was removed while the command ran", hint="create it again") from None
        if _another_run(before, now):
            reason = f": {now.exit.reason}" if now.exit and now.exit.reason else ""
            raise SandboxEnded(f"{before.name} ended while the command ran{reason}", hint="start it, then run it again")


def _another_run(before: Sandbox, now: Sandbox) -> bool:
    if now.status not in (Status.RUNNING, Status.PAUSED, Status.UNKNOWN):
        return True
    return None not in (before.started_at, now.started_at) and before.started_at != now.started_at
