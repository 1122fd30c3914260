"""A command in a sandbox: a stream of envd's process service, in the Connect protocol with JSON."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.backends.common.guest_command import MARK, end_marked
from sandbox_console.backends.common.guest_files import answer
from sandbox_console.backends.common.queued_process import KILL_S, QueuedProcess
from sandbox_console.backends.common.remote import MOST_BYTES, ExitCode, Silent
from sandbox_console.backends.e2b.client import Client, connect_error
from sandbox_console.errors import ConsoleError
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit

_PING_S, _QUIET_S = 20, 50.0
_HEAD, _TRAILER, _COMPRESSED = 5, 2, 1
_PIECE = 64 << 10
_SIGNALS = {"killed": 9, "terminated": 15, "interrupt": 2, "hangup": 1, "segmentation fault": 11, "aborted": 6}


class _Started(Struct):
    pid: int = 0


class _Data(Struct):
    stdout: str = ""
    stderr: str = ""
    pty: str = ""


class _Ended(Struct, rename="camel"):
    exit_code: ExitCode = 0
    status: str = ""


class _Event(Struct):
    start: _Started | None = None
    data: _Data | None = None
    end: _Ended | None = None


class _Message(Struct):
    event: _Event = msgspec.field(default_factory=_Event)


class _Problem(Struct):
    code: str = ""
    message: str = ""


class _Trailer(Struct):
    error: _Problem | None = None


class E2bProcess(QueuedProcess):
    """One command, on a PTY or with pipes. If nobody reads, the stream is not read, which holds back the guest."""

    def __init__(
        self, client: Client, sandbox: str, argv: Sequence[str], env: Mapping[str, str], *,
        cwd: str | None = None, user: str = "", size: tuple[int, int] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._client, self._sandbox, self._user, self._pty = client, sandbox, user, size is not None
        self._mark = secrets.token_hex(8)
        process = {"cmd": argv[0], "args": [*argv[1:]], "envs": {**env, MARK: self._mark}}
        self._asked: dict[str, Any] = {"process": process | ({"cwd": cwd} if cwd else {}), "stdin": True}
        if size is not None:
            self._asked["pty"] = _size(*size)
        self._pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for one in (self._end, self._pid):
            one.add_done_callback(lambda end: end.cancelled() or end.exception())  # nobody may wait for it
        self._pump = asyncio.create_task(self._read())

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """The output. Raises what ended the stream."""
        async for chunk in super().output():
            yield chunk
        if self._end.done() and (error := self._end.exception()) is not None:
            raise error

    async def write(self, data: bytes) -> None:
        """Write bytes to its stdin or its PTY."""
        for at in range(0, len(data), _PIECE):
            piece = base64.b64encode(data[at : at + _PIECE]).decode()
            await self._tell("SendInput", {"input": {"pty" if self._pty else "stdin": piece}})

    async def close_stdin(self) -> None:
        """End its stdin."""
        await self._tell("CloseStdin", {})

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of its PTY."""
        await self._tell("Update", {"pty": _size(cols, rows)})

    async def kill(self) -> None:
        """End it and what it started."""
        if self._killed:
            return
        self._killed = True
        if not self._end.done() or self._pty:
            with contextlib.suppress(ConsoleError, TimeoutError):
                async with asyncio.timeout(KILL_S):
                    await self._end_tree()
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._finish(Exit(137, 9))
        self._drain()

    async def _end_tree(self) -> None:
        """End what has its mark: envd signals only the process that it started."""
        ending = E2bProcess(self._client, self._sandbox, end_marked(self._mark), {}, user="root")
        try:
            async for _ in ending.output():
                pass
        finally:
            ending._pump.cancel()

    async def _tell(self, method: str, body: Mapping[str, Any]) -> None:
        """Call envd about this command. That it has ended, or reads no more, is no error."""
        try:
            pid = await shielded(self._pid)
        except ConsoleError:
            return
        if not self._end.done():
            with contextlib.suppress(ConsoleError):
                await self._client.in_guest(self._sandbox, method, {"process": {"pid": pid}, **body}, self._user)

    async def _read(self) -> None:
        try:
            await self._follow()
        except ConsoleError as error:
            for one in (self._end, self._pid):
                if not one.done():
                    one.set_exception(error)
        await self._out.put(None)

    async def _follow(self) -> None:
        headers = {
            **await self._client.guest_headers(self._sandbox, self._user),
            "Content-Type": "application/connect+json",
            "Connect-Protocol-Version": "1",
            "Keepalive-Ping-Interval": str(_PING_S),
        }
        asked = msgspec.json.encode(self._asked)
        answer = self._client.inside.answer(
            "POST", "/process.Process/Start", "exec", data=b"\0" + len(asked).to_bytes(4, "big") + asked,
            headers=headers, timeout_s=None, quiet_s=_QUIET_S,
        )  # fmt: skip
        end = Exit(137, 9, reason="the connection to the sandbox ended")
        async with answer as stream:
            async for message in _messages(stream.content.iter_any(), self._client.label):
                if (start := message.event.start) is not None and not self._pid.done():
                    self._pid.set_result(start.pid)
                elif (data := message.event.data) is not None:
                    for kind, text in (
                        (Stream.STDOUT, data.stdout),
                        (Stream.STDERR, data.stderr),
                        (Stream.TTY, data.pty),
                    ):
                        if text:
                            await self._out.put((kind, _bytes(text, self._client.label)))
                elif (told := message.event.end) is not None:
                    end = _ended(told)
        self._finish(end)
        if not self._pid.done():
            self._pid.set_exception(Silent(f"{self._client.label}: exec: the command never started"))


class Guest(Struct, frozen=True):
    """A running sandbox, for files."""

    client: Client
    sandbox: str

    async def run(self, argv: Sequence[str], *, stdin: bool = False) -> E2bProcess:  # noqa: ARG002 - it always has one
        """Start a command."""
        return E2bProcess(self.client, self.sandbox, argv, {})

    async def ask(self, script: str, *words: str) -> tuple[int | None, bytes, bytes]:
        """Run a script to its end. Raises BackendError if it takes too long."""
        return await answer(await self.run(["sh", "-c", script, "sh", *words]), self.sandbox)


def _size(cols: int, rows: int) -> Mapping[str, Any]:
    return {"size": {"cols": cols, "rows": rows}}


def _ended(told: _Ended) -> Exit:
    if told.exit_code >= 0:
        return Exit(told.exit_code, told.exit_code - 128 if 128 < told.exit_code < 193 else None)
    number = _SIGNALS.get(told.status.removeprefix("signal: ").partition(" (")[0])
    return Exit(None if number is None else 128 + number, number, reason=told.status[:300])


def _bytes(text: str, label: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Silent(f"{label}: exec: the output cannot be read") from None


async def _messages(chunks: AsyncIterator[bytes], label: str) -> AsyncGenerator[_Message, None]:
    """The messages of a Connect stream. Raises what its end says, and Silent for what is none."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        while len(rest) >= _HEAD:
            size = int.from_bytes(rest[1:_HEAD], "big")
            if size > MOST_BYTES or rest[0] & _COMPRESSED:
                raise Silent(f"{label}: exec: an event cannot be read, or is larger than {MOST_BYTES >> 20} MiB")
            if len(rest) < _HEAD + size:
                break
            flags, data = rest[0], bytes(rest[_HEAD : _HEAD + size])
            del rest[: _HEAD + size]
            if flags & _TRAILER:
                if (problem := _decoded(data, _Trailer, label).error) is not None:
                    raise connect_error(f"{label}: exec", problem.code, problem.message[:300])
                return
            yield _decoded(data, _Message, label)


def _decoded(data: bytes, kind: type[Any], label: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Silent(f"{label}: exec: an event cannot be read: {error}"[:300]) from None
