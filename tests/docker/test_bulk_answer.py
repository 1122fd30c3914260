"""Answers of an engine that are read past the HTTP client, whatever the pieces they come in."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from sandbox_console.backends.docker.contexts import Endpoint
from sandbox_console.backends.docker.engine import Engine
from sandbox_console.backends.docker.failures import Lost, Refused
from sandbox_console.backends.docker.raw_http import Dechunker, blocks
from sandbox_console.errors import BackendUnreachable, UsageError

CHUNKS = b"3\r\na\r\n\r\n1F\r\n" + b"x" * 31 + b"\r\n2;ext=1\r\nyz\r\n"
BODY = b"a\r\n" + b"x" * 31 + b"yz"


def answer(head: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {head}\r\n\r\n".encode() + body


CHUNKED = "200 OK\r\nTransfer-Encoding: chunked"


@asynccontextmanager
async def engine_that_says(tmp_path, said, asked=None):
    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(head)
        for at in range(0, len(said), 7):
            writer.write(said[at : at + 7])
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    engine = Engine("far", Endpoint(f"unix://{tmp_path / 's'}"))
    try:
        yield engine
    finally:
        await engine.close()
        server.close()


async def read(engine):
    async with engine.bulk("containers/a%2Fb/logs", {"tail": "all", "follow": 0}) as body:
        return b"".join([part async for part in body])


def decoded(wire, size):
    """The body of a wire that comes in pieces of a size, which must say how long each of its parts is."""
    chunks, parts = Dechunker(), []
    counts = [chunks.feed(wire[at : at + size], parts) for at in range(0, len(wire), size)]
    assert sum(counts) == sum(map(len, parts))
    assert chunks.ended
    return b"".join(parts)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_chunks_are_taken_off_whatever_the_pieces(size):
    assert decoded(CHUNKS + b"0\r\n\r\n", size) == BODY


LINES = [b"x" * size + b"\n" for size in (1, 10, 13, 200, 300, 300)]
ODD = [b"a\r\n", b"\r\n\r\n", b"5\r\nabcde\r\n", b"0\r\n\r\n", b"1_0\r\n"]  # that look like chunks themselves


LARGE = [b"\r\n5\r\n" * 4000, b"y" * 20_000]


@pytest.mark.parametrize(
    "contents", [LINES, ODD, LINES + ODD, [*LINES[:3], ODD[3], *LINES[3:]], LARGE, [*LARGE, *LINES, *LARGE, *ODD]]
)
@pytest.mark.parametrize("size", [1, 7, 100, 1000, 100_000])
def test_chunks_that_are_taken_off_together_are_those_that_would_be_one_by_one(contents, size):
    wire = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in contents * 20) + b"0\r\n\r\n"
    assert decoded(wire, size) == b"".join(contents * 20)


@pytest.mark.parametrize("wire", [b"x\r\n", b"-1\r\n", b"ffffffffff\r\n", b"1" * 100, b"\r\n"])
def test_what_is_no_chunk_is_an_answer_that_broke(wire):
    with pytest.raises(ConnectionError):
        Dechunker().feed(wire, [])


@pytest.mark.parametrize(
    "said",
    [
        answer(CHUNKED, CHUNKS + b"0\r\n\r\n"),
        answer(f"200 OK\r\nContent-Length: {len(BODY)}", BODY + b"more"),
        answer("200 OK", BODY),
    ],
    ids=["chunked", "length", "to the end"],
)
async def test_a_body_is_read_to_its_end(tmp_path, said):
    asked = []
    async with engine_that_says(tmp_path, said, asked) as engine:
        assert await read(engine) == BODY
    assert asked[0].startswith(b"GET /containers/a%2Fb/logs?tail=all&follow=0 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "said",
    [
        b"", b"HTTP/1.1 200 OK\r\nTrans", b"SSH-2.0-x\r\n\r\n", answer(CHUNKED, CHUNKS), answer(CHUNKED, CHUNKS + b"5\r\nab"),
        answer("200 OK\r\nContent-Length: 99", BODY),
    ],
)  # fmt: skip
async def test_an_answer_that_breaks_off_is_no_end(tmp_path, said):
    async with engine_that_says(tmp_path, said) as engine:
        with pytest.raises(Lost, match="the connection was lost"):
            await read(engine)


async def test_a_refusal_is_told_in_the_engines_words(tmp_path):
    said = answer("404 Not Found\r\nContent-Length: 24", b'{"message": "none there"}'[:25])
    async with engine_that_says(tmp_path, said.replace(b": 24", b": 25")) as engine:
        with pytest.raises(Refused, match="none there") as caught:
            await read(engine)
    assert caught.value.status == 404


async def test_nobody_there_is_told_as_everywhere(tmp_path):
    engine = Engine("far", Endpoint(f"unix://{tmp_path / 'none'}"))
    with pytest.raises(BackendUnreachable, match="there is no socket at"):
        await read(engine)
    await engine.close()


async def taken(reader):
    """The body of a request in chunks, as a server takes it."""
    found = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found += (await reader.readexactly(size + 2))[:-2]
    return found + await reader.readexactly(2)


@asynccontextmanager
async def engine_that_takes(tmp_path, takes):
    server = await asyncio.start_unix_server(takes, tmp_path / "s")
    engine = Engine("far", Endpoint(f"unix://{tmp_path / 's'}"))
    try:
        yield engine
    finally:
        await engine.close()
        server.close()


async def parts(*sizes, then=None):
    for size in sizes:
        yield b"z" * size
    if then is not None:
        raise then


async def test_what_is_sent_arrives_whole_in_chunks(tmp_path):
    heads, bodies = [], []

    async def takes(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        bodies.append(await taken(reader))
        writer.write(answer("200 OK\r\nContent-Length: 0", b""))
        writer.close()

    async with engine_that_takes(tmp_path, takes) as engine:
        await engine.put_tar("containers/a/archive", {"path": "/x y"}, parts(5, 0, 3_000_000, 1))
    assert heads[0].startswith(b"PUT /containers/a/archive?path=/x+y HTTP/1.1\r\n")
    assert bodies == [b"z" * 3_000_006 + b"\r\n"]


async def test_an_engine_that_refuses_before_all_is_sent_is_told(tmp_path):
    async def takes(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("403 Forbidden\r\nContent-Length: 23", b'{"message":"read-only"}'))
        await writer.drain()
        writer.close()

    async with engine_that_takes(tmp_path, takes) as engine:
        with pytest.raises(Refused, match="read-only"):
            await engine.put_tar("containers/a/archive", {}, parts(*[1_000_000] * 30))


@pytest.mark.parametrize("failure", [UsageError("not a tar"), BrokenPipeError(32, "stdin"), OSError(5, "read")])
async def test_a_failure_of_what_is_sent_is_raised_as_it_is(tmp_path, failure):
    async def takes(reader, writer):
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await taken(reader)
        writer.close()

    async with engine_that_takes(tmp_path, takes) as engine:
        with pytest.raises(type(failure)) as caught:
            await engine.put_tar("containers/a/archive", {}, parts(10, then=failure))
    assert caught.value is failure


async def test_an_engine_that_hangs_up_on_what_is_sent_is_lost(tmp_path):
    async def takes(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with engine_that_takes(tmp_path, takes) as engine:
        with pytest.raises(Lost):
            await engine.put_tar("containers/a/archive", {}, parts(*[1_000_000] * 10))


async def test_blocks_are_the_same_bytes():
    async def chunks():
        for number in range(10):
            yield bytes([number]) * number

    found = [block async for block in blocks(chunks(), 12)]
    assert b"".join(found) == b"".join(bytes([number]) * number for number in range(10))
    assert all(len(block) >= 12 for block in found[:-1])
