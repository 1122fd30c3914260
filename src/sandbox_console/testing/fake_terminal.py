"""A terminal that echoes: enough of a shell for screens and sessions, but it runs nothing."""

from __future__ import annotations

import asyncio

from sandbox_console.model.cancellation import shielded
from sandbox_console.model.sandbox import Exit

PROMPT = b"$ "


class FakeTerminal:
    """Echoes what is typed; Enter answers ``you typed: LINE``, ``size`` gives rows and columns, ``exit N`` ends it."""

    def __init__(self, cols: int, rows: int) -> None:
        self.cols, self.rows = cols, rows
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._end: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._line = b""
        self._out.put_nowait(PROMPT)

    async def read(self) -> bytes:
        if self._end.done() and self._out.empty():
            return b""
        return await self._out.get()

    async def write(self, data: bytes) -> None:
        for byte in data:
            if not self._end.done():
                self._type(bytes([byte]))

    async def resize(self, cols: int, rows: int) -> None:
        self.cols, self.rows = cols, rows

    async def wait(self) -> Exit:
        return await shielded(self._end)

    async def close(self) -> None:
        self._finish(Exit(129, 1))

    def _type(self, key: bytes) -> None:
        match key:
            case b"\r" | b"\n":
                line, self._line = self._line.decode("utf-8", "replace").strip(), b""
                self._enter(line)
            case b"\x03":
                self._line = b""
                self._out.put_nowait(b"^C\r\n" + PROMPT)
            case b"\x04":
                self._finish(Exit(0))
            case b"\x7f":
                self._line = self._line[:-1]
                self._out.put_nowait(b"\b \b")
            case _:
                self._line += key
                self._out.put_nowait(key)

    def _enter(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "exit":
            self._finish(Exit(int(rest) if rest.isdigit() else 0))
            return
        answer = f"{self.rows} {self.cols}" if word == "size" else f"you typed: {line}" if line else ""
        self._out.put_nowait(b"\r\n" + (answer.encode() + b"\r\n" if answer else b"") + PROMPT)

    def _finish(self, end: Exit) -> None:
        if not self._end.done():
            self._end.set_result(end)
            self._out.put_nowait(b"")
