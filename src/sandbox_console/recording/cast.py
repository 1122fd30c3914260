"""Writes and reads recordings in asciinema's format, version 2.

The format is described at https://docs.asciinema.org/manual/asciicast/v2/.

The files are pure ASCII, so printing one on a terminal is harmless.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

_HELD = 256 * 1024
_HELD_S = 0.25
"""How much may be missing from the file if the console is killed: output of this time, or this many characters."""

Event = tuple[float, str, str]
"""An event: seconds since the beginning; ``o`` for output, ``r`` for a new size or ``m`` for a mark; the data."""

Mask = Callable[[list[str], list[tuple[int, int]]], list[str]]
"""Removes secrets from the output, which it gets and returns event by event, with the terminal's size at each."""

_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_BACK = re.compile(r"[^\x08]\x08")
_LONGEST = 100_000  # characters; a full-screen program may write for ever without a newline


class Recorded(Struct, frozen=True):
    """A finished recording. ``cut`` says that it reached the size limit, ``problem`` why else it ended early."""

    id: str
    sha256: str
    size_bytes: int
    cut: bool = False
    problem: str = ""


class Writer:
    """Writes one shell's output and sizes. Typed text is in it only where the shell echoed it."""

    def __init__(self, path: Path, header: Mapping[str, Any], cap_bytes: int) -> None:
        self.path = path
        self.problem = ""
        self._header = header
        self._left = cap_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._began = time.monotonic()
        self._written_at = self._began
        self._held: list[str] = []
        self._size = 0
        self._cut = False

    async def begin(self) -> None:
        """Create the file with mode 0600. Raises OSError."""
        line = json.dumps({"version": 2, **self._header}) + "\n"
        await asyncio.to_thread(_make, self.path, line)

    async def output(self, data: bytes) -> None:
        """Record bytes of the PTY as they were shown. Raises OSError, once, if they cannot be written."""
        if text := self._decode(data):
            self._keep("o", text)
        if self._size > _HELD or time.monotonic() - self._written_at > _HELD_S:
            await self._write()

    def resize(self, cols: int, rows: int) -> None:
        """Record a new size."""
        self._keep("r", f"{cols}x{rows}")

    async def end(self, mask: Mask) -> Recorded:
        """Write the rest. ``mask`` removes secrets from all of the output."""
        if rest := self._decode(b"", True):
            self._keep("o", rest)
        try:
            await self._write()
            digest, size = await asyncio.to_thread(_finish, self.path, mask)
        except OSError as error:
            return Recorded(self.path.stem, "", 0, self._cut, self.problem or str(error))
        return Recorded(self.path.stem, digest, size, self._cut, self.problem)

    async def discard(self) -> None:
        """Remove the recording of a shell that never opened."""
        await asyncio.to_thread(self.path.unlink, missing_ok=True)

    def _keep(self, kind: str, text: str) -> None:
        if self._cut or self.problem:
            return
        self._left -= len(text)
        if self._left < 0:
            self._cut = True
            kind, text = "m", "the recording ends here: it reached recording.max_mib"
        at = round(time.monotonic() - self._began, 6)
        self._held.append(json.dumps([at, kind, text]) + "\n")
        self._size += len(text)

    async def _write(self) -> None:
        lines, self._held, self._size = "".join(self._held), [], 0
        self._written_at = time.monotonic()
        if not lines:
            return
        try:
            await asyncio.to_thread(_append, self.path, lines)
        except OSError as error:
            self.problem = f"{error.strerror or error}"
            raise


def finish_lost(path: Path, mask: Mask) -> Recorded:
    """Finish the recording of a process that was killed: mask it, without the line that the kill cut short.

    Blocks. Raises OSError, ValueError where it is no recording.
    """
    events = list(read_events(path))
    _rewrite(path, events, mask([text for _, kind, text in events if kind == "o"], _sizes(path, events)))
    return Recorded(path.stem, digest_of(path), path.stat().st_size, problem="the process that wrote it was killed")


def read_header(path: Path) -> dict[str, Any]:
    """The first line as data. Raises OSError; ValueError if the file is not a recording."""
    with path.open("rb") as file:
        found = json.loads(file.readline(64 * 1024))
    if not isinstance(found, dict) or found.get("version") != 2:
        raise ValueError("it is no asciicast of version 2")
    return found


def read_events(path: Path) -> Iterator[Event]:
    """The events of a recording in order, up to a line that was cut short by a kill. Raises OSError."""
    with path.open("rb") as file:
        file.readline()
        for line in file:
            event = _event(line)
            if event is None:
                return
            yield event


def digest_of(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _event(line: bytes) -> Event | None:
    try:
        at, kind, text = json.loads(line)
        return float(at), str(kind), str(text)
    except (ValueError, TypeError):
        return None


def _make(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(line.encode())


def _append(path: Path, lines: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(fd, "ab") as file:
        file.write(lines.encode())


def _finish(path: Path, mask: Mask) -> tuple[str, int]:
    events = list(read_events(path))
    shown = [text for _, kind, text in events if kind == "o"]
    masked = mask(shown, _sizes(path, events))
    if masked != shown:
        _rewrite(path, events, masked)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return digest_of(path), path.stat().st_size


def _sizes(path: Path, events: list[Event]) -> list[tuple[int, int]]:
    """Columns and rows of the terminal at each event of output."""
    header, found = read_header(path), []
    size = int(header.get("width") or 80), int(header.get("height") or 24)
    for _, kind, text in events:
        if kind == "r" and re.fullmatch(r"[0-9]{1,5}x[0-9]{1,5}", text):
            columns, rows = text.split("x")
            size = int(columns), int(rows)
        elif kind == "o":
            found.append(size)
    return found


def _rewrite(path: Path, events: list[Event], masked: list[str]) -> None:
    header = json.dumps(read_header(path)) + "\n"
    texts = iter(masked)
    lines = [json.dumps([at, kind, next(texts) if kind == "o" else text]) + "\n" for at, kind, text in events]
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    _make(fresh, header)
    _append(fresh, "".join(lines))
    fresh.replace(path)


def lines(events: Iterable[Event]) -> Iterator[tuple[float, str]]:
    """Each line with the time at which it began."""
    held, began = "", 0.0
    for at, kind, text in events:
        if kind != "o":
            continue
        began = began if held else at
        *whole, held = (held + text).split("\n")
        for one in whole:
            yield began, plain(one)
            began = at
        if len(held) > _LONGEST:
            yield began, plain(held)
            held = ""
    if held:
        yield began, plain(held)


def plain(text: str) -> str:
    """One line as text: without control codes, with backspaces and overwriting applied."""
    text = _CODES.sub("", text).rstrip("\r")
    while "\b" in text.lstrip("\b") and (shorter := _BACK.sub("", text)) != text:
        text = shorter
    return text.rpartition("\r")[2].lstrip("\b")
