"""A command in a sandbox, whose output execd sends as events while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.backends.common.queued_process import KILL_S, QueuedProcess
from sandbox_console.backends.common.remote import MOST_BYTES, Silent
from sandbox_console.backends.opensandbox.client import Client, execd
from sandbox_console.errors import ConsoleError
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_QUIET_S = 30.0
"""Execd sends a ping every 3 s."""
_CODE = re.compile(r"[0-9]{1,9}")
_STREAMS = {"stdout": Stream.STDOUT, "stderr": Stream.STDERR}


class _Error(Struct):
    evalue: str = ""
    traceback: list[str] = msgspec.field(default_factory=list)


class _Event(Struct):
    type: str
    text: str = ""
    error: _Error | None = None


class OpenSandboxProcess(QueuedProcess):
    """One command. If nobody reads, the connection is not read either, which holds back what execd sends."""

    def __init__(self, client: Client, sandbox: str, asked: Mapping[str, Any]) -> None:
        super().__init__()
        self._client, self._sandbox, self._asked = client, sandbox, asked
        self._id = ""
        self._end.add_done_callback(lambda end: end.cancelled() or end.exception())  # nobody may wait for it
        self._pump = asyncio.create_task(self._read())

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """The output, in lines. Raises what ended the connection."""
        async for chunk in super().output():
            yield chunk
        if self._end.done() and (error := self._end.exception()) is not None:
            raise error

    async def write(self, data: bytes) -> None:
        """It has no stdin, so nothing is sent."""

    async def close_stdin(self) -> None:
        """It has no stdin."""

    async def kill(self) -> None:
        """End it and what it started: execd kills its process group."""
        if not self._end.done() and self._id:
            with contextlib.suppress(ConsoleError, TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await self._client.in_guest("DELETE", self._sandbox, "/command", params=(("id", self._id),))
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._finish(Exit(137, 9))
        self._drain()

    async def _read(self) -> None:
        try:
            await self._follow()
        except ConsoleError as error:
            if not self._end.done():
                self._end.set_exception(error)
        await self._out.put(None)

    async def _follow(self) -> None:
        answer = self._client.remote.answer(
            "POST", execd(self._sandbox, "/command"), "exec", body=self._asked, timeout_s=None, quiet_s=_QUIET_S
        )
        end = Exit(137, 9, reason="the connection to the sandbox ended")
        async with answer as stream:
            async for event in _events(stream.content.iter_any(), self._client.label):
                if event.type == "init":
                    self._id = event.text
                elif event.type in _STREAMS:
                    line = event.text if event.text == "\n" else event.text + "\n"
                    await self._out.put((_STREAMS[event.type], line.encode("utf-8", "surrogatepass")))
                elif event.type == "execution_complete":
                    end = Exit(0)
                elif event.type == "error":
                    end = _failed(event.error or _Error())
        self._finish(end)


def _failed(error: _Error) -> Exit:
    reason = " ".join(error.traceback)[:300]
    code = int(error.evalue) if _CODE.fullmatch(error.evalue) else None
    return Exit(code, code - 128 if code is not None and 128 < code < 193 else None, reason=reason)


async def _events(chunks: AsyncIterator[bytes], label: str) -> AsyncGenerator[_Event, None]:
    """The events: a line of JSON each, with or without the prefix of server-sent events."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        while (at := rest.find(b"\n")) >= 0:
            line = bytes(rest[:at]).removeprefix(b"data:").strip()
            del rest[: at + 1]
            if line and not line.startswith((b"event:", b"id:", b":")):
                yield _event(line, label)
        if len(rest) > MOST_BYTES:
            raise Silent(f"{label}: exec: an event is larger than {MOST_BYTES >> 20} MiB")


def _event(line: bytes, label: str) -> _Event:
    try:
        return msgspec.json.decode(line, type=_Event)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Silent(f"{label}: exec: an event cannot be read: {error}"[:300]) from None
