"""Moves large amounts of data through an engine's Unix socket without the HTTP client.

An engine sends a log with one chunk per line. aiohttp passes each one on by itself: a million chunks took it 4 s of
CPU, and this module 0.9 s. A file arrives in pieces of 32 KiB, each of which would wake the event loop, so a separate
thread reads them and removes the transfer coding. What is sent leaves by such a thread, too: for 300 MB, the loop would
wait 3,000 times for room in the socket.
"""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Piece = bytes | memoryview

_CHUNK_MOST = 16 << 20
"""The largest chunk in bytes. Go's server sends what is written at once, which is 32 KiB or less."""
_SIZE = re.compile(rb"0{0,9}[1-9a-fA-F][0-9a-fA-F]{0,5}")
_SIZE_MOST = 64
_LARGE = 1 << 13
"""Searching larger chunks for line ends, and copying them piece by piece, took a fifth of the CPU of a copy."""
_SIZES_MOST = 1 << 14
_HEAD_MOST = 1 << 16
BLOCK = 1 << 20
_DENSE = 1 << 15
"""If so many bytes arrive at once, the engine makes large writes, and a whole block can be waited for."""
_SPARSE = 1 << 11
"""If fewer bytes than this arrive at once, the reader wakes up for each small write."""
_NAP_S = 0.0002
"""Seconds that a reader then waits for small writes to gather.

Waking up for each line takes both sides a third more CPU. The socket holds about 200 lines, which the engine writes in
a millisecond, and then it waits for the reader: on a busy machine, a nap after each read took a third more time.
"""


async def blocks(chunks: AsyncIterator[bytes], size: int = BLOCK) -> AsyncGenerator[bytes, None]:
    """The bytes in pieces of at least ``size``, as each piece has to pass from one thread to another."""
    collected, count = list[bytes](), 0
    async for chunk in chunks:
        collected.append(chunk)
        count += len(chunk)
        if count >= size:
            yield b"".join(collected)
            collected, count = [], 0
    if collected:
        yield b"".join(collected)


@asynccontextmanager
async def get(socket_path: str, target: str) -> AsyncIterator[tuple[int, AsyncGenerator[bytes, None]]]:
    """Request ``target``, a path and its query, from a Unix socket; returns status and streamed body.

    Raises OSError if nobody answers, and ConnectionError if the answer breaks off or is not HTTP.
    """
    answer = _Answer(socket_path)
    try:
        await answer.ask(_head("GET", target))
        status, headers = await answer.head()
        async with aclosing(answer.blocks(_body(headers))) as body:
            yield status, body
    finally:
        answer.close()


async def put_tar(socket_path: str, target: str, source: AsyncIterator[bytes]) -> tuple[int, bytes]:
    """Send a tar to ``target``, as ``get`` does; returns status and body. Raises also whatever ``source`` raises."""
    answer = _Answer(socket_path)
    try:
        await answer.ask(_head("PUT", target, "Content-Type: application/x-tar", "Transfer-Encoding: chunked"))
        await answer.send(source)
        status, headers = await answer.head()
        return status, b"".join([part async for part in answer.blocks(_body(headers))])
    finally:
        answer.close()


def _head(method: str, target: str, *more: str) -> bytes:
    common = "Host: localhost", "Accept-Encoding: identity", "Connection: close"
    return "\r\n".join((f"{method} {target} HTTP/1.1", *common, *more, "", "")).encode("ascii")


class _Answer:
    """A connection that a thread reads one block ahead. It wakes the loop only for a full block or at the end."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._sock = socket.socket(socket.AF_UNIX)
        self._thread = ThreadPoolExecutor(1, "docker-bulk")
        self._ahead: asyncio.Future[Any] | None = None
        self._rest = b""

    async def ask(self, request: bytes) -> None:
        """Connect, and send a request that fits into the socket's buffer."""
        self._sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(
            self._sock, self._socket_path
        )  # a frozen engine must not hold a thread
        self._sock.setblocking(True)
        await self._run(self._sock.sendall, request)

    async def send(self, source: AsyncIterator[bytes]) -> None:
        """Send a body in chunks, and make the next one meanwhile. Ends early if the engine has answered already."""
        async for chunk in source:
            if not await self._sent():
                return
            if chunk:  # an empty one would end the body
                self._ahead = self._run(self._send, [b"%x\r\n" % len(chunk), chunk, b"\r\n"])
        if await self._sent():
            await self._run(self._send, [b"0\r\n\r\n"])

    async def _sent(self) -> bool:
        """Wait for the chunk on its way; returns False if the engine has hung up."""
        if self._ahead is None:
            return True
        sent, self._ahead = await self._ahead, None
        return bool(sent)

    def _send(self, pieces: list[bytes]) -> bool:
        """Send, in the thread. Returns False if the engine has hung up."""
        try:
            sent = self._sock.sendmsg(pieces)
            for piece in pieces:
                if sent < len(piece):
                    self._sock.sendall(memoryview(piece)[sent:])
                sent = max(0, sent - len(piece))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    async def head(self) -> tuple[int, Mapping[str, str]]:
        """The status, and the headers by lower-case name. Raises ConnectionError if it is not HTTP."""
        data = b""
        while b"\r\n\r\n" not in data:
            part = await self._run(self._sock.recv, _HEAD_MOST)
            data += part
            if not part or len(data) > 2 * _HEAD_MOST:
                raise ConnectionResetError("the answer is not whole")
        head, _, self._rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        if version not in ("HTTP/1.0", "HTTP/1.1") or not status[:3].isdecimal():
            raise ConnectionResetError("the answer is not HTTP")
        pairs = (line.partition(":") for line in lines)
        return int(status[:3]), {name.lower(): value.strip() for name, _, value in pairs}

    async def blocks(self, body: _Body) -> AsyncGenerator[bytes, None]:
        """The body in full blocks, except for the last one. Raises ConnectionError if the body is incomplete."""
        while found := await (self._ahead or self._run(self._block, body)):
            self._ahead = self._run(self._block, body)
            yield found

    def _block(self, body: _Body) -> bytes:
        """Read the next block, in the thread; empty after the last one."""
        first, self._rest = self._rest, b""
        parts = list[Piece]()
        count, flags = body.feed(first, parts) if first else 0, 0
        while count < BLOCK and not body.ended:
            data = self._sock.recv(BLOCK, flags)
            if not data:
                body.end()
                break
            count += body.feed(data, parts)
            flags = socket.MSG_WAITALL if len(data) >= _DENSE else 0
            if len(data) < _SPARSE:
                time.sleep(_NAP_S)
        return b"".join(parts)

    def _run(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def close(self) -> None:
        """Hang up. The thread, which waits for the engine, then ends at once and closes the socket itself."""
        if self._ahead is not None and not self._ahead.cancel() and not self._ahead.cancelled():
            self._ahead.exception()  # nobody needs it any more
        with suppress(OSError):  # it is not connected
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.submit(self._sock.close)
        self._thread.shutdown(wait=False)


def _body(headers: Mapping[str, str]) -> _Body:
    """The decoder of a body (RFC 9112, 6.3): in chunks, of the length in the headers, or until the connection ends."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return Dechunker()
    length = headers.get("content-length", "")
    return _OfLength(int(length) if length.isdecimal() else None)


class _Body(Protocol):
    """Removes a transfer coding from bytes that were read; ``ended`` is true once the body is complete."""

    ended: bool

    def feed(self, data: bytes, parts: list[Piece]) -> int:
        """Decode the next bytes and add their pieces of the body; returns their length. Raises ConnectionError."""
        ...

    def end(self) -> None:
        """Handle the connection's end. Raises ConnectionError if the body is incomplete."""
        ...


class _OfLength:
    """A body of a known length in bytes, or until the connection ends (None)."""

    def __init__(self, length: int | None) -> None:
        self.ended = length == 0
        self._left = length

    def feed(self, data: bytes, parts: list[Piece]) -> int:
        """Add the bytes that belong to the body."""
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
            self.ended = not self._left
        parts.append(data)
        return len(data)

    def end(self) -> None:
        """Handle the connection's end. Raises ConnectionError if bytes are missing."""
        if self._left:
            raise ConnectionResetError("the answer is not whole")


class Dechunker:
    """Removes chunked transfer coding (RFC 9112, 7.1); ``ended`` is true once the last chunk has arrived."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""  # an incomplete size
        self._left = 0  # what is left of a chunk, including the two bytes that end it
        self._sizes: dict[bytes, int] = {}  # none is 0; parsing each again takes a third of the time
        self._around = 0

    def feed(self, data: bytes, parts: list[Piece]) -> int:
        """Add the data of the chunks that have arrived. Raises ConnectionError if it is not in this coding."""
        data = self._rest + data if self._rest else data
        at, end, before = min(self._left, len(data)), len(data), len(parts)
        view = memoryview(data) if self._large(data, at) else data
        parts.append(view[: max(0, min(self._left - 2, end))])
        self._left -= at
        if view is data and not self._left and (whole := self._uniform(data, at)):
            parts += whole
            at += sum(map(len, whole)) + self._around
        find, sizes, add = data.find, self._sizes, parts.append
        while (line := find(b"\r\n", at, at + _SIZE_MOST)) >= 0:
            size = sizes.get(data[at:line]) or self._size(data[at:line])
            if not size:
                self.ended = True
                break
            at = line + size + 4
            add(view[line + 2 : at - 2])
            if at > end:
                at, self._left = end, at - end
        else:
            if end - at >= _SIZE_MOST:
                raise ConnectionResetError("the answer is not in chunks")
        self._rest = data[at:]
        return sum(map(len, parts[before:]))

    def end(self) -> None:
        """Handle the connection's end. Raises ConnectionError if the last chunk is missing."""
        if not self.ended:
            raise ConnectionResetError("the answer is not whole")

    def _size(self, text: bytes) -> int:
        try:
            size = int(text if b";" not in text else text.partition(b";")[0], 16)
        except ValueError:
            size = -1
        if not 0 <= size <= _CHUNK_MOST:
            raise ConnectionResetError("the answer is not in chunks")
        if size and len(self._sizes) < _SIZES_MOST:
            self._sizes[text] = size
        return size

    def _large(self, data: bytes, at: int) -> bool:
        """Whether the next chunk is a large one, as in a file, whose data is neither searched nor copied here."""
        size = data[at : at + _SIZE_MOST].partition(b"\r\n")[0]
        return self._left > _LARGE or self._sizes.get(size, 0) > _LARGE

    def _uniform(self, data: bytes, at: int) -> list[bytes]:
        """The contents of whole chunks from ``at`` on, if none of them contains a CR LF; otherwise nothing.

        If the pieces between the CR LFs are a size and as many bytes in turn, then they are the chunks. This takes a
        third of the time that finding one after the other does. ``_around`` is then what surrounds the contents.
        """
        pieces = data[at:].split(b"\r\n")
        end = (len(pieces) - 1) // 2 * 2
        heads, whole = pieces[0:end:2], pieces[1:end:2]
        for head in set(heads).difference(self._sizes):
            if _SIZE.fullmatch(head):
                self._size(head)
        if list(map(self._sizes.get, heads)) != list(map(len, whole)):
            return []
        self._around = sum(map(len, heads)) + 2 * end
        return whole
