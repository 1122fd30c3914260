"""Forwards one plain HTTP request to its origin server, and the response back. Both connections are then closed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sandbox_console.egress.connection import Connection
from sandbox_console.egress.request import HEAD_MOST, BadRequest, Request, chunk_size, response_head
from sandbox_console.egress.stream import Stream, TooLong

_LINE_MOST = 4096
_PIECE = 16 * 1024
HALF_OPEN_S = 120.0
"""How long the answer may take to end once the client has closed its side."""


async def forward(request: Request, client: Stream, server: Stream, flow: Connection) -> None:
    """Forward a request. Raises BadRequest if nothing was answered yet; EOFError, OSError.

    What the client sends after the request's body is dropped: each request needs a connection and a decision of its
    own.
    """
    asking = asyncio.ensure_future(_ask(request, client, server, flow))
    answering = asyncio.ensure_future(_answer(client, server, flow))
    try:
        await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
        (answering if answering.done() else asking).result()
    except (BadRequest, TooLong) as error:
        if flow.received:
            raise EOFError from error  # the response has begun: another one would be taken for a part of it
        raise BadRequest(str(error) or "a line of the request's body is too long") from error
    finally:
        for task in (asking, answering):
            task.cancel()
        await asyncio.gather(asking, answering, return_exceptions=True)


async def _ask(request: Request, client: Stream, server: Stream, flow: Connection) -> None:
    """Send the request, then wait until the client has long been gone: it may close its side and still read."""
    head = request.head()
    flow.sent += len(head)
    await server.send(head)
    if request.length is None:
        await _chunks(client, server, flow)
    else:
        left = request.length
        while left:
            data = await client.some(min(left, _PIECE))
            left -= len(data)
            flow.sent += len(data)
            await server.send(data)
    with suppress(EOFError):
        while True:
            await client.some()
    await asyncio.sleep(HALF_OPEN_S)


async def _chunks(client: Stream, server: Stream, flow: Connection) -> None:
    """Forward a chunked body with new framing: sizes without extensions, and no trailers."""
    while size := chunk_size((await client.until(b"\r\n", _LINE_MOST))[:-2]):
        await server.send(b"%x\r\n" % size)
        while size:
            data = await client.some(min(size, _PIECE))
            size -= len(data)
            flow.sent += len(data)
            await server.send(data)
        if await client.until(b"\r\n", 2) != b"\r\n":
            raise BadRequest("a chunk is longer than its size")
        await server.send(b"\r\n")
    while await client.until(b"\r\n", _LINE_MOST) != b"\r\n":
        pass  # a trailer
    await server.send(b"0\r\n\r\n")


async def _answer(client: Stream, server: Stream, flow: Connection) -> None:
    while True:
        try:
            head = await server.until(b"\r\n\r\n", HEAD_MOST)
        except (TooLong, EOFError) as error:
            raise BadRequest("the server's answer has no end of its head") from error
        status, head = response_head(head)
        if status == 101:
            raise BadRequest("the server wants to change the protocol")
        await client.send(head)
        flow.received += len(head)
        if status >= 200:
            break
    with suppress(EOFError):
        while True:
            data = await server.some()
            flow.received += len(data)
            await client.send(data)
