"""Run one command to its end: feed it, drain it, time it, and end its whole tree when it must."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Struct, field

from sandbox_console.backends.base import Process
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit
from sandbox_console.model.waiting import to_the_end
from sandbox_console.secrets.redactor import Redactor, StreamRedactor
from sandbox_console.service.gate.operation import CAPTURE_BYTES, ExecIO

TIMED_OUT_CODE = 124
"""The exit code of timeout(1), and of ours."""


class Ran(Struct):
    """What a command left."""

    exit: Exit = field(default_factory=Exit)
    timed_out: bool = False
    out: dict[Stream, bytearray] = field(default_factory=dict)
    bytes_out: int = 0
    truncated: bool = False


async def run_to_end(process: Process, io: ExecIO, redactor: Redactor, timeout_s: float | None) -> Ran:
    """Wait for the command; past ``timeout_s`` or when cancelled, its process tree is killed first."""
    ran = Ran()
    feeding = asyncio.create_task(_feed(process, io))
    try:
        async with asyncio.timeout(timeout_s) as limit:
            await _drain(process, io, redactor, ran)
            ran.exit = await process.wait()
    except TimeoutError:
        await to_the_end(process.kill())
        if timeout_s is None or not limit.expired():  # a failure of the provider's own, not our limit
            raise
        ran.timed_out = True
        ran.exit = Exit(code=TIMED_OUT_CODE, reason=f"it ran longer than {timeout_s:g} s")
    except BaseException:
        await to_the_end(process.kill())
        raise
    finally:
        feeding.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await feeding
    return ran


async def _feed(process: Process, io: ExecIO) -> None:
    try:
        if io.stdin is not None:
            async for data in io.stdin:
                await process.write(data)
    finally:  # also where the input failed: a guest must not wait for more
        await process.close_stdin()


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
    if io.on_output is not None:
        await io.on_output(stream, data)
        return
    kept = ran.out.setdefault(stream, bytearray())
    room = CAPTURE_BYTES - len(kept)
    kept += data[: max(room, 0)]
    ran.truncated = ran.truncated or len(data) > room
