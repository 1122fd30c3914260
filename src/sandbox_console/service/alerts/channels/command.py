"""Runs a program of the user's for each message, which it gets as JSON on stdin."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

from sandbox_console.hostfs.guest_writable import AROUND
from sandbox_console.model.alert import AlertMessage
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.text import clean
from sandbox_console.secrets.program import guests_own
from sandbox_console.service.alert_options import AlertChannel
from sandbox_console.service.alerts.channels import message_json
from sandbox_console.service.alerts.channels.channel import NotDelivered, Reveal

_ERROR_BYTES, _ERROR_SHOWN = 4096, 200


async def send(channel: AlertChannel, message: AlertMessage, _: Reveal) -> None:
    """Run the command, without a shell. It took the message if it exits with 0. Raises NotDelivered.

    Nothing of a guest's is in its arguments, and neither the program nor its folder is in a workspace. After
    ``timeout_s`` it and all that it started are killed.
    """
    who = os.path.basename(channel.command[0])  # noqa: PTH119 - it is text, not a path of ours
    if await asyncio.to_thread(guests_own, channel.command[0], AROUND.get()):
        raise NotDelivered(f"{who} is in a place where a sandbox can write", hint="name a program of your own")
    folder = "/" if await asyncio.to_thread(guests_own, "./.", AROUND.get()) else None
    try:
        process = await asyncio.create_subprocess_exec(
            *channel.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE, start_new_session=True, cwd=folder,
        )  # fmt: skip
    except OSError as error:
        raise NotDelivered(f"{who} cannot be run: {error.strerror}") from None
    try:
        async with asyncio.timeout(channel.timeout_s):
            error_text = await _fed(process, message_json.body(message, "generic") + b"\n")
            code = await process.wait()
    except TimeoutError:
        raise NotDelivered(f"{who} did not end within {channel.timeout_s:g} s") from None
    finally:
        await run_to_completion(_end(process))
    if code:
        last = error_text.decode("utf-8", "replace").strip().splitlines()[-1:]
        said = f": {clean(last[0], cap=_ERROR_SHOWN)}" if last else ""
        raise NotDelivered(f"{who} ended with exit code {code}{said}")


async def _fed(process: asyncio.subprocess.Process, data: bytes) -> bytes:
    """Write the message, and read the beginning of stderr to its end."""
    assert process.stdin is not None  # noqa: S101 - both are pipes
    assert process.stderr is not None  # noqa: S101
    with suppress(BrokenPipeError, ConnectionResetError):  # it need not read its input
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()
    found = b""
    while part := await process.stderr.read(65536):
        found = (found + part)[-_ERROR_BYTES:]
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # its session is its own
    await process.wait()
