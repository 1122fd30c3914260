"""Reads the headers of a tar as it streams by, to list it without unpacking and to refuse members that escape.

It reads POSIX ustar, PAX and GNU headers (POSIX.1-2017 "pax", and tar(5)); a member's data is skipped, never kept.
"""

from __future__ import annotations

import tarfile
from collections.abc import AsyncIterator, Iterator
from typing import Any

from msgspec import Struct

from sandbox_console.errors import UsageError

_BLOCK = tarfile.BLOCKSIZE
_LONGEST_HEADER = 1024 * 1024
"""How much of a PAX or GNU header is read. A path is at most 4 KiB, so anything longer is an attack or damage."""

_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class Member(Struct, frozen=True):
    """One entry of a tar. ``kind`` is tar's type byte; paths are as written, with bytes kept by surrogateescape."""

    name: str
    kind: bytes
    size: int
    mode: int
    uid: int
    gid: int
    mtime: float
    target: str


class TarScanner:
    """Takes chunks and returns members. Raises ValueError for data that is not a tar."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skip = 0
        self._extended: dict[str, str] = {}
        self.ended = False

    @property
    def within(self) -> bool:
        """Whether the data so far ends in the middle of a member; the padding of its last block may be missing."""
        return not self.ended and (self._skip >= _BLOCK or bool(self._rest))

    def feed(self, chunk: bytes) -> Iterator[Member]:
        """The members whose headers are complete now."""
        if self.ended:
            return
        if self._skip and not self._rest:  # most of an archive: data that nobody looks at is not copied either
            skipped = min(self._skip, len(chunk))
            self._skip -= skipped
            chunk = chunk[skipped:]
        self._rest += chunk
        while not self.ended:
            dropped = min(self._skip, len(self._rest))
            del self._rest[:dropped]
            self._skip -= dropped
            if self._skip or len(self._rest) < _BLOCK:
                return
            header = bytes(self._rest[:_BLOCK])
            if not header.strip(b"\0"):
                self.ended = True
                return
            info = _header(header)
            if info.type in (*_EXTENDED, tarfile.XGLTYPE):
                if not self._extension(info):
                    return
                continue
            member = self._member(info)
            del self._rest[:_BLOCK]
            self._skip = _padded(member.size) if _has_data(info.type) else 0
            yield member

    def _extension(self, info: tarfile.TarInfo) -> bool:
        """Read an extended header; False if it is not complete yet."""
        if info.size > _LONGEST_HEADER:
            raise ValueError("a header of it is too long")
        if len(self._rest) < _BLOCK + _padded(info.size):
            return False
        data = bytes(self._rest[_BLOCK : _BLOCK + info.size])
        del self._rest[: _BLOCK + _padded(info.size)]
        if info.type == tarfile.GNUTYPE_LONGNAME:
            self._extended["path"] = _text(data.rstrip(b"\0"))
        elif info.type == tarfile.GNUTYPE_LONGLINK:
            self._extended["linkpath"] = _text(data.rstrip(b"\0"))
        elif info.type != tarfile.XGLTYPE:
            self._extended.update(_records(data))
        return True

    def _member(self, info: tarfile.TarInfo) -> Member:
        more, self._extended = self._extended, {}
        return Member(
            name=more.get("path", info.name),
            kind=info.type,
            size=int(more.get("size", info.size)),
            mode=info.mode,
            uid=int(more.get("uid", info.uid)),
            gid=int(more.get("gid", info.gid)),
            mtime=float(more.get("mtime", info.mtime)),
            target=more.get("linkpath", info.linkname),
        )


async def guarded(archive: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pass the chunks on. Raises UsageError before a member that would be unpacked outside the folder.

    Such a member has an absolute name or one with ``..``, is a hard link to such a name, or lies below a symbolic link
    of this archive. UsageError is also raised for data that is not a tar, for empty input, and for a tar that ends
    within a member.
    """
    scanner, links, came = TarScanner(), set[str](), False
    async for chunk in archive:
        came = came or bool(chunk)
        try:
            for member in scanner.feed(chunk):
                _refuse_escape(member, links)
        except (ValueError, tarfile.TarError) as error:
            raise UsageError(f"the archive is not a tar: {error}", hint="make it with tar -cf, uncompressed") from error
        yield chunk
    if not came or scanner.within:
        why = "it is cut off" if came else "nothing came"
        raise UsageError(f"the archive is not a tar: {why}", hint="tar -cf - PATH makes one")


def _refuse_escape(member: Member, links: set[str]) -> None:
    parts = _parts(member.name)
    prefixes = {"/".join(parts[:count]) for count in range(1, len(parts))}
    if member.name.startswith("/") or ".." in parts or prefixes & links:
        raise UsageError(f"the archive's member {member.name!r} would leave the folder it is unpacked into")
    if member.kind == tarfile.LNKTYPE:
        target = _parts(member.target)
        if member.target.startswith("/") or ".." in target:
            raise UsageError(f"the archive's member {member.name!r} is a hard link out of its folder")
    if member.kind == tarfile.SYMTYPE:
        links.add("/".join(parts))
    else:
        links.discard("/".join(parts))


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ValueError(str(error)) from error


def _records(data: bytes) -> dict[str, Any]:
    """PAX records: a length, a space, KEY=VALUE and a newline."""
    found: dict[str, str] = {}
    while data.strip(b"\0"):
        start = data.index(b" ") + 1
        length = int(data[: start - 1])
        if length < start + 2 or length > len(data):
            raise ValueError("a PAX record of it is damaged")
        key, _, value = data[start : length - 1].partition(b"=")
        found[_text(key)] = _text(value)
        data = data[length:]
    return found


def _has_data(kind: bytes) -> bool:
    return kind not in (
        tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE
    )  # fmt: skip


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
