"""Much data from an engine's Unix socket, past the HTTP client.

An engine sends a log in a chunk a line. aiohttp hands on each by itself: a million cost it 4 s of CPU, and this 0.7 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

_READ = 1 << 20
_CHUNK_MOST = 16 << 20
"""Bytes of a chunk; Go's server sends what was written at once, 32 KiB and less."""
_SIZE_MOST = 64
BLOCK = 1 << 20


async def blocks(chunks: AsyncIterator[bytes], size: int = BLOCK) -> AsyncGenerator[bytes, None]:
    """The same bytes in pieces of ``size`` and more: each piece is a hop between threads on its way out."""
    held, count = list[bytes](), 0
    async for chunk in chunks:
        held.append(chunk)
        count += len(chunk)
        if count >= size:
            yield b"".join(held)
            held, count = [], 0
    if held:
        yield b"".join(held)


@asynccontextmanager
async def get(socket: str, target: str) -> AsyncIterator[tuple[int, AsyncGenerator[bytes, None]]]:
    """Ask for ``target`` (a path and its query); gives the status and the body as it comes.

    Raises OSError where nobody answers, and ConnectionError where the answer breaks off or is no HTTP.
    """
    reader, writer = await asyncio.open_unix_connection(socket, limit=_READ)
    try:
        lines = f"GET {target} HTTP/1.1", "Host: localhost", "Accept-Encoding: identity", "Connection: close", "", ""
        writer.write("\r\n".join(lines).encode("ascii"))
        status, headers = await _head(reader)
        async with aclosing(_body(reader, headers)) as body:
            yield status, body
    finally:
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[int, Mapping[str, str]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        status = status[:3] if version in ("HTTP/1.0", "HTTP/1.1") else ""
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status), headers
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        raise ConnectionResetError("the answer is not whole") from error


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
    """The body by RFC 9112, 6.3: in chunks, of a length that is told, or to the connection's end."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks = Dechunker()
        while not chunks.ended:
            if not (data := await reader.read(_READ)):
                raise ConnectionResetError("the answer is not whole")
            if found := chunks.feed(data):
                yield found
        return
    length = headers.get("content-length", "")
    left = int(length) if length.isdecimal() else None
    while left is None or left > 0:
        data = await reader.read(_READ if left is None else min(left, _READ))
        if not data:
            if left:
                raise ConnectionResetError("the answer is not whole")
            return
        left = None if left is None else left - len(data)
        yield data


class Dechunker:
    """Takes chunked transfer coding (RFC 9112, 7.1) off; ``ended`` once the last chunk has come."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes of the chunks that are whole now. Raises ConnectionError for what is no such coding."""
        data = self._rest + data if self._rest else data
        at, end, parts = 0, len(data), list[bytes]()
        while (line := data.find(b"\r\n", at, at + _SIZE_MOST)) >= 0:
            size = _size(data[at:line])
            if not size:
                self.ended = True
                break
            stop = line + 2 + size
            if stop + 2 > end:
                break
            parts.append(data[line + 2 : stop])
            at = stop + 2
        else:
            if end - at >= _SIZE_MOST:
                raise ConnectionResetError("the answer is not in chunks")
        self._rest = data[at:]
        return b"".join(parts)


def _size(text: bytes) -> int:
    try:
        size = int(text if b";" not in text else text.partition(b";")[0], 16)
    except ValueError:
        size = -1
    if not 0 <= size <= _CHUNK_MOST:
        raise ConnectionResetError("the answer is not in chunks")
    return size
