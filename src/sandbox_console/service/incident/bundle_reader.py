"""Reads a bundle that somebody else may have made. Nothing is unpacked, and memory and sizes are limited.

Only what ``bundle_file`` writes is accepted. Each header is built again from its name and size and compared, so there
are no links, devices, owners, absolute paths or folders to decide about.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import BinaryIO, cast

from msgspec import Struct

from sandbox_console.errors import ConsoleError
from sandbox_console.service.incident.bundle_file import BLOCK, FRAME, NAME_MOST, TRAILER, header

MOST_BYTES = 64 << 30
"""The most bytes that a bundle may unpack to."""
MOST_PARTS = 1_000_000
_WINDOW_MOST = 8 << 20  # bytes of memory that the decompressor may take
_CHUNK = 1 << 20
_KINDS = {b"1": "a hard link", b"2": "a link", b"3": "a device", b"4": "a device", b"5": "a folder", b"6": "a pipe"}


class Refused(ConsoleError):
    """A bundle is damaged, or not one that a console made."""


class Member(Struct):
    """A part that is being read. ``blocks`` yields its content once, and must be read to its end."""

    name: str
    size: int
    blocks: Iterator[bytes]

    def read(self, limit: int) -> bytes:
        """Read the whole part. Raises Refused if it is longer than ``limit`` bytes."""
        if self.size > limit:
            raise Refused(f"{self.name} has {self.size} bytes, and at most {limit} are read of it")
        return b"".join(self.blocks)


def check_whole(file: BinaryIO) -> int:
    """Compare the file with the hash at its end. Returns the size without that hash. Raises Refused."""
    size = file.seek(0, os.SEEK_END)
    left = size - TRAILER
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (block := file.read(min(left, _CHUNK))):
        digest.update(block)
        left -= len(block)
    if left or file.read(TRAILER + 1) != FRAME + digest.digest():
        raise Refused("the file is damaged: it is cut, longer than it was, or some of its bytes are different")
    return size - TRAILER


def members(file: BinaryIO, size: int) -> Iterator[Member]:
    """The parts of the first ``size`` bytes, in order. Raises Refused for anything that a bundle does not have."""
    import zstandard

    file.seek(0)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MOST)
    with closing(
        decompressor.stream_reader(cast(BinaryIO, _Cut(file, size)), read_across_frames=True, closefd=False)
    ) as source:
        read = _Limited(source.read, zstandard.ZstdError)
        seen: set[str] = set()
        while (block := read(BLOCK)) != bytes(BLOCK):
            name, length = _parsed(block)
            if name in seen:
                raise Refused(f"{name} is in the bundle twice")
            seen.add(name)
            if len(seen) > MOST_PARTS:
                raise Refused(f"it has more than {MOST_PARTS:,} parts")
            member = Member(name, length, _content(read, name, length))
            yield member
            for _ in member.blocks:
                pass
        if read(BLOCK) != bytes(BLOCK) or read(1):
            raise Refused("something follows the end of the archive")


class _Cut:
    """The first bytes of a file, for the decompressor."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(min(self._left, size if size >= 0 else self._left))
        self._left -= len(data)
        return data


class _Limited:
    """Reads exactly as many bytes as requested, or fewer at the end, and at most ``MOST_BYTES`` in all."""

    def __init__(self, read: Callable[[int], bytes], damaged: type[Exception]) -> None:
        self._read, self._damaged, self._left = read, damaged, MOST_BYTES

    def __call__(self, size: int) -> bytes:
        if size > self._left:
            raise Refused(f"it unpacks to more than {MOST_BYTES >> 30} GiB")
        found: list[bytes] = []
        wanted = size
        while wanted:
            try:
                data = self._read(wanted)
            except self._damaged as error:
                raise Refused(f"it cannot be decompressed: {error}") from None
            if not data:
                break
            found.append(data)
            wanted -= len(data)
        self._left -= size - wanted
        return b"".join(found)


def _parsed(block: bytes) -> tuple[str, int]:
    """The name and size of a member, if its header is one of ours. Raises Refused."""
    if len(block) < BLOCK:
        raise Refused("the archive ends too early")
    name = block[:NAME_MOST].rstrip(b"\0").decode("ascii", "replace")
    try:
        size = int(block[124:135], 8)
        ours = block[135:136] == b"\0" and header(name, size) == block
    except ValueError:
        ours = False
    if not ours:
        kind = _KINDS.get(block[156:157], "a part")
        raise Refused(f"{name!r} is {kind} with a header that no bundle has")
    return name, size


def _content(read: _Limited, name: str, size: int) -> Iterator[bytes]:
    left = size
    while left:
        block = read(min(left, _CHUNK))
        if not block:
            raise Refused(f"{name} is shorter than its header says")
        left -= len(block)
        yield block
    if read(-size % BLOCK).strip(b"\0"):
        raise Refused(f"{name} is followed by something hidden")
