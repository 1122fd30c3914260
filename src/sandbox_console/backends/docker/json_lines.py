"""Splits an engine's answer into lines. Events, samples and progress are streamed as one JSON object per line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator


async def lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The complete lines that are not blank."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
    if rest.strip():
        yield rest
