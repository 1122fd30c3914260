"""The file of a bundle: a tar in zstd, written in one pass, with the hash of the file at its end.

The members are regular files with equal owners, modes and times, so equal parts make equal files. The last 40 bytes are
a skippable frame, which ``zstd`` and ``tar`` ignore: 8 bytes of header, and the SHA-256 of everything before.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sandbox_console.errors import ConsoleError
from sandbox_console.hostfs.files import NewFile
from sandbox_console.model.bundle import Part
from sandbox_console.secrets.redactor import Tally

FRAME = b"\x5e\x2a\x4d\x18\x20\x00\x00\x00"
"""The header of a skippable frame of 32 bytes (RFC 8878, section 3.1.2)."""
TRAILER = len(FRAME) + 32
NAME_MOST = 100
"""The most characters in a member's name, which is what the header of a tar has room for."""
PART_BYTES = 8 << 20
"""How much of a log or another list goes into one part, which is also the most that is kept in memory."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_LEVEL = 3
BLOCK = tarfile.BLOCKSIZE


def header(name: str, size: int) -> bytes:
    """The header of a member. Raises ValueError for a name or size that a bundle cannot have."""
    if len(name) > NAME_MOST or not _NAME.fullmatch(name) or not 0 <= size < 8 << 30:
        raise ValueError(f"{name[:NAME_MOST]!r} is not the name of a part")
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict")


class WriteFailed(ConsoleError):
    """A bundle cannot be written to its end, so no part of it is usable."""


def writer(file: NewFile, path: str | Path) -> Callable[[bytes], None]:
    """Return what writes a bundle into a new file. It raises WriteFailed, which names the path."""

    def write(data: bytes) -> None:
        try:
            file.file.write(data)
        except OSError as error:
            raise WriteFailed(f"{path} cannot be written: {error.strerror}") from error

    return write


class Pack:
    """Writes a bundle's members through ``write``, which is called on the caller's thread."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        import zstandard  # 15 ms that other commands need not spend

        self._write = write
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
        self._digest = hashlib.sha256()
        self._bytes = 0
        self.parts: list[Part] = []

    def add(self, name: str, content: bytes, redacted: int = 0) -> None:
        """Add a part. Raises what ``write`` raises."""
        self.stream(name, len(content), [content], redacted)

    def stream(self, name: str, size: int, blocks: Iterable[bytes], redacted: int = 0) -> None:
        """Add a part of ``size`` bytes; anything after them is left out. Raises WriteFailed if it is shorter."""
        self._put(header(name, size))
        digest, left = hashlib.sha256(), size
        for block in blocks:
            some = block[:left]
            digest.update(some)
            self._put(some)
            left -= len(some)
            if not left:
                break
        if left:
            raise WriteFailed(f"{name} became shorter while it was copied", hint="make the bundle again")
        self._put(bytes(-size % BLOCK))
        self.parts.append(Part(name, size, digest.hexdigest(), redacted))

    def end(self) -> int:
        """Finish the file. Returns its size in bytes."""
        self._put(bytes(2 * BLOCK))
        self._out(self._compressor.flush())
        trailer = FRAME + self._digest.digest()
        self._write(trailer)
        return self._bytes + len(trailer)

    def _put(self, data: bytes) -> None:
        if data:
            self._out(self._compressor.compress(data))

    def _out(self, data: bytes) -> None:
        if data:
            self._digest.update(data)
            self._bytes += len(data)
            self._write(data)


class Lines:
    """Lines of a list, in parts of about ``PART_BYTES``: ``STEM-000001.jsonl`` and so on."""

    def __init__(self, pack: Pack, stem: str, tally: Tally | None = None, ending: str = "jsonl") -> None:
        self._pack, self._stem, self._ending, self._tally = pack, stem, ending, tally or Tally()
        self._held = bytearray()
        self.count = 0

    def put(self, lines: Iterable[bytes]) -> None:
        """Take lines. A part that is full is written."""
        for line in lines:
            self._held += line
            if len(self._held) >= PART_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write the remaining lines as a part, if there are any."""
        if not self._held:
            return
        self.count += 1
        name = f"{self._stem}-{self.count:06d}.{self._ending}"
        self._pack.add(name, bytes(self._held), self._tally.take())
        self._held.clear()


def text(value: Any, *, indent: int | None = None) -> bytes:
    """A value as JSON in sorted ASCII: equal values give equal bytes, and no byte has an effect on a terminal."""
    separators = (",", ": " if indent else ":")
    document = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=separators, indent=indent)
    return document.replace("\x7f", "\\u007f").encode() + b"\n"
