"""A shell in a sandbox, which is opened through the gate and ended when it or the console is closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from sandbox_console.backends.base import Terminal
from sandbox_console.model.action import OpenShell
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.sandbox import Exit
from sandbox_console.recording.writer import Writer
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.service.reads.recordings import Recordings, not_recorded

OnEnd = Callable[[Mapping[str, Any]], Awaitable[None]]

_END_S = 15.0
"""How long a backend may take to end a shell. After that, the note says that this failed."""

_HELD_S = 0.02
"""How long bytes that may begin a secret wait for more. A prompt must not wait for the next key."""


class ShellSession:
    """Bytes of a PTY. Its end is noted in the audit log once, with exit code, duration and bytes."""

    answers_itself = False
    """Whether something behind it answers the guest's queries, so that a viewer's terminal must not."""

    def __init__(
        self, request: OpenShell, audit_id: int, terminal: Terminal, redactor: Redactor, on_end: OnEnd,
        recorder: Writer | None, recordings: Recordings,
    ) -> None:  # fmt: skip
        self.request = request
        self.audit_id = audit_id
        self.without: tuple[str, ...] = ()
        """Secrets of the sandbox that could not be read here. The shell lacks them, and their values are not masked."""
        self.kept = ""
        """The name of a kept shell, which goes on when this session is closed; empty for one that ends with it."""
        self._terminal = terminal
        self._mask = StreamRedactor(redactor, (request.cols, request.rows))
        self._on_end = on_end
        self._recorder = recorder
        self._recordings = recordings
        self._began = time.monotonic()
        self._bytes = {"in": 0, "out": 0}
        self._reading: asyncio.Task[bytes] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def recorded(self) -> bool:
        """Whether what is shown is being recorded."""
        return self._recorder is not None and not self._recorder.problem

    @property
    def closed(self) -> bool:
        """Whether its end has been noted."""
        return self._closing is not None and self._closing.done()

    async def read(self) -> bytes:
        """The next bytes, with known secrets masked; empty at the end."""
        while True:
            if self._reading is None:
                self._reading = asyncio.create_task(self._terminal.read())
            done, _ = await asyncio.wait({self._reading}, timeout=_HELD_S if self._mask.holding else None)
            if not done:
                return await self._record(self._mask.flush())
            if self._reading.cancelled():  # the session was closed, which is an end and not a cancellation
                return b""
            data, self._reading = self._reading.result(), None
            self._bytes["out"] += len(data)
            shown = self._mask.feed(data) if data else self._mask.flush()
            if shown or not data:
                return await self._record(shown)

    async def _record(self, shown: bytes) -> bytes:
        if self._recorder is not None and not self._recorder.problem:
            try:
                await self._recorder.output(shown)
            except OSError as error:
                if self._recordings.required(self.request):  # nothing more may be shown: the shell ends here
                    raise not_recorded(error.strerror or str(error)) from error
        return shown

    async def write(self, data: bytes) -> None:
        """Send bytes as typed input."""
        self._bytes["in"] += len(data)
        await self._terminal.write(data)

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the PTY."""
        self._mask.resize(cols, rows)
        if self._recorder is not None:
            self._recorder.resize(cols, rows)
        await self._terminal.resize(cols, rows)

    async def wait(self) -> Exit:
        """Wait until the shell has ended, and return how."""
        return await self._terminal.wait()

    async def close(self) -> None:
        """End the shell and everything that it started, and note the end. Safe to call twice."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await shielded(self._closing)

    async def _close(self) -> None:
        ended, problem = Exit(), ""
        try:
            async with asyncio.timeout(_END_S):
                await self._terminal.close()
                ended = await self._terminal.wait()
        except Exception as error:  # noqa: BLE001 - however it ends, the end is noted
            problem = f"{type(error).__name__}: {error}"
        finally:
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.gather(self._reading, return_exceptions=True)
        await self._on_end(
            self._how(ended)
            | {
                "duration_s": round(time.monotonic() - self._began, 3),
                "bytes_in": self._bytes["in"],
                "bytes_out": self._bytes["out"],
            }
            | ({"error": problem} if problem else {})
            | ({"recording": msgspec.to_builtins(await self._recordings.end(self._recorder))} if self._recorder else {})
        )

    def _how(self, ended: Exit) -> dict[str, Any]:
        """How the session ended, for its note."""
        return {"exit": ended.code, "signal": ended.signal}
