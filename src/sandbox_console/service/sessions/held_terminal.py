"""The console's end of a kept shell: a terminal whose bytes come from the shell's holder.

The messages are those of ``shell_holder/frames.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

from sandbox_console.errors import BackendError, Conflict
from sandbox_console.model.sandbox import Exit
from sandbox_console.shell_holder.frames import (
    ATTACH,
    ENDED,
    HEAD,
    MOST_SHOWN,
    MOST_TYPED,
    OUTPUT,
    REFUSED,
    RESIZE,
    SIZE,
    SNAPSHOT,
    STATE,
    TYPED,
    frame,
)

DETACHED = "detached"
"""The reason of an `Exit` of a terminal that was closed, while its shell goes on."""

ANEW = b"\x1bc\x1b[?1049l\x1b[r\x1b[0m\x1b[2J\x1b[H"
"""Empties a viewer's terminal before a later snapshot: reset, and its parts for a terminal that is not to be reset."""

_HELLO_S = 10.0
_FLUSH_S = 1.0
"""How long typed bytes may wait for the guest when this is closed."""


class HeldTerminal:
    """A ``backends.base.Terminal``. Closing it detaches: the shell goes on."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, Any], *, read_only: bool
    ) -> None:
        self.state, self.read_only = state, read_only
        self._reader, self._writer = reader, writer
        self._end: Exit | None = None
        self._done = asyncio.Event()
        self._shown = False

    @classmethod
    async def attach(
        cls, connection: socket.socket, actor: str, cols: int, rows: int, *, read_only: bool
    ) -> HeldTerminal:
        """Attach over a connection to a holder. Raises Conflict if it refuses, BackendError if it does not answer."""
        connection.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        hello = {"actor": actor, "read_only": read_only, "cols": cols, "rows": rows}
        try:
            async with asyncio.timeout(_HELLO_S):
                writer.write(frame(ATTACH, json.dumps(hello).encode()))
                await writer.drain()
                state = _state(*await _message(reader))
            return cls(reader, writer, state, read_only=read_only)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            writer.close()
            raise BackendError(f"the shell's holder does not answer: {error or 'no answer in time'}") from error
        except BaseException:
            writer.close()
            raise

    @property
    def recorded(self) -> bool:
        """Whether the holder records the shell, as it said when this was attached."""
        return bool(self.state.get("recorded"))

    async def read(self) -> bytes:
        """The next bytes; first a snapshot of the whole screen; empty at the end."""
        while self._end is None:
            try:
                kind, body = await _message(self._reader)
            except (OSError, EOFError, ValueError):
                self._ended(Exit(reason="the process that held it is gone"))
                break
            if kind == OUTPUT and body:
                return body
            if kind == SNAPSHOT:
                first, self._shown = not self._shown, True
                return body if first else ANEW + body
            if kind == ENDED:
                self._ended(_exit(body))
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes as typed input. A viewer that only watches types nothing."""
        if self.read_only:
            return
        for at in range(0, len(data), MOST_TYPED):
            await self._send(frame(TYPED, data[at : at + MOST_TYPED]))

    async def resize(self, cols: int, rows: int) -> None:
        """Tell this viewer's size. The shell has the smallest of those that type."""
        await self._send(frame(RESIZE, SIZE.pack(min(max(cols, 1), 1000), min(max(rows, 1), 1000))))

    async def wait(self) -> Exit:
        """Wait for the shell's end, which ``read`` sees, or for ``close``."""
        await self._done.wait()
        return self._end or Exit()

    async def close(self) -> None:
        """Detach. Safe to call twice."""
        self._ended(Exit(reason=DETACHED))
        self._writer.close()
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self._writer.wait_closed()
        except TimeoutError:  # the guest reads nothing, so nobody takes what was typed
            self._writer.transport.abort()
        except OSError:
            return

    async def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the holder is gone, which the reading side finds out
            self._writer.write(message)
            await self._writer.drain()

    def _ended(self, end: Exit) -> None:
        self._end = self._end or end
        self._done.set()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, size = HEAD.unpack(await reader.readexactly(HEAD.size))
    if size > MOST_SHOWN:
        raise ValueError("the message is too long")
    return kind, await reader.readexactly(size)


def _state(kind: bytes, body: bytes) -> dict[str, Any]:
    if kind == REFUSED:
        raise Conflict(f"the shell cannot be attached: {body.decode('utf-8', 'replace')}")
    if kind != STATE:
        raise BackendError("the shell's holder does not speak this version's language")
    found = json.loads(body)
    return found if isinstance(found, dict) else {}


def _exit(body: bytes) -> Exit:
    state = json.loads(body)
    return Exit(code=state.get("exit"), signal=state.get("signal"), reason=str(state.get("reason") or ""))
