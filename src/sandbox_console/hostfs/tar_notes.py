"""Reads from a tar that is only passed on which members its maker left out, and why."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable

LEFT_OUT = "SANDBOXCONSOLE.left_out"
"""The key in an extended header of what a backend left out and why, as a JSON list of texts."""

_MOST_BYTES = 1 << 20
_MOST_NOTES = 10_000
_WITH_DATA = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


def left_out(value: str) -> list[str]:
    """The texts in the value of a header; none if it is not a list."""
    try:
        told = json.loads(value)
    except (ValueError, RecursionError):
        return []
    return [str(one) for one in told] if isinstance(told, list) else []


class TarNotes:
    """Follows a tar in chunks without unpacking it, and calls ``skipped`` for each member that was left out.

    If the bytes are no tar, it does nothing more: whoever unpacks them reports that.
    """

    def __init__(self, skipped: Callable[[str], None]) -> None:
        self._skipped, self._told = skipped, 0
        self._block, self._wanted, self._pass = bytearray(), tarfile.BLOCKSIZE, 0
        self._header_size = 0  # of the extended header that is being read; 0 for an ordinary one
        self._next_size: int | None = None
        self._lost = False

    def feed(self, chunk: bytes) -> None:
        """Follow the next bytes."""
        view = memoryview(chunk)
        while view and not self._lost:
            if self._pass:
                step = min(self._pass, len(view))
                self._pass -= step
            else:
                step = min(self._wanted - len(self._block), len(view))
                self._block += view[:step]
            view = view[step:]
            if len(self._block) == self._wanted:
                self._take(bytes(self._block))

    def _take(self, block: bytes) -> None:
        self._block.clear()
        self._wanted = tarfile.BLOCKSIZE
        try:
            if self._header_size:
                self._extended(block[: self._header_size])
                self._header_size = 0
            elif block.strip(b"\0"):
                self._member(tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape"))
        except (tarfile.HeaderError, ValueError):
            self._lost = True

    def _member(self, member: tarfile.TarInfo) -> None:
        if member.type == tarfile.XHDTYPE and 0 < member.size <= _MOST_BYTES:
            self._header_size, self._wanted = member.size, _padded(member.size)
            return
        if member.type == tarfile.GNUTYPE_SPARSE:  # headers of its own follow
            raise ValueError("a sparse file")
        if member.size < 0:
            raise ValueError("a size below zero")
        if member.isreg() or member.type in _WITH_DATA or member.type not in tarfile.SUPPORTED_TYPES:
            self._pass = _padded(member.size if self._next_size is None else self._next_size)
        self._next_size = None

    def _extended(self, data: bytes) -> None:
        while data:
            length, _, _ = data.partition(b" ")
            end = int(length)
            if end <= len(length):
                raise ValueError("a record without an end")
            record, data = data[:end], data[end:]
            key, equals, value = record[len(length) + 1 : -1].partition(b"=")
            if not equals:
                raise ValueError("not a record")
            if key == b"size":
                if (size := int(value)) < 0:
                    raise ValueError("a size below zero")
                self._next_size = size
            elif key == LEFT_OUT.encode():
                self._tell(value.decode("utf-8", "replace"))

    def _tell(self, value: str) -> None:
        for why in left_out(value)[: _MOST_NOTES - self._told]:
            self._told += 1
            self._skipped(why)


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
