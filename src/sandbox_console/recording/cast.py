"""Recordings in asciinema's format, version 2: its files, and events that wait to be written.

The format is described at https://docs.asciinema.org/manual/asciicast/v2/. The files are pure ASCII, so printing one on
a terminal is harmless. Only the standard library's light parts are imported: the holder of a kept shell records, too.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sandbox_console.hostfs.own_files import open_own

_LONGEST_LINE = 16 << 20
"""Bytes read of a line; ours have at most what one read of a terminal gives."""

_HELD = 256 * 1024
_HELD_S = 0.25
"""How much may be missing from the file if the console is killed: output of this time, or this many characters."""

_BATCH = 2000
_TAIL = 1 << 20

LONGEST_S = 1e8
"""Times beyond three years are this one: a file that somebody has changed may hold any."""

Item = TypeVar("Item")
Event = tuple[float, str, str]
"""An event: seconds since the beginning; ``o`` for output, ``r`` for a new size or ``m`` for a mark; the data."""

Mask = Callable[[list[str], list[tuple[int, int]]], list[str]]
"""Removes secrets from the output, which it gets and returns event by event, with the terminal's size at each."""

_CODES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")
_LONGEST = 100_000  # characters; a full-screen program may write for ever without a newline


class Pending:
    """The events of one shell that are not in its file yet. Typed text is in them only where the shell echoed it."""

    def __init__(self, cap_bytes: int, began: float | None = None, limit: str = "recording.max_mib") -> None:
        """``began`` is the time of the monotonic clock from which events are counted, by default now."""
        self.began = time.monotonic() if began is None else began
        self.left, self._limit = cap_bytes, limit
        self.cut = False
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._taken_at = self.began
        self._held: list[str] = []
        self._size = 0

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return self._size > _HELD or time.monotonic() - self._taken_at > _HELD_S

    def output(self, data: bytes, *, last: bool = False) -> None:
        """Add bytes of the PTY as they were shown."""
        if text := self._decode(data, last):
            self._keep("o", text)

    def resize(self, cols: int, rows: int) -> None:
        """Add a new size."""
        self._keep("r", f"{cols}x{rows}")

    def take(self) -> str:
        """The lines for the file, which are pending no more."""
        lines, self._held, self._size = "".join(self._held), [], 0
        self._taken_at = time.monotonic()
        return lines

    def _keep(self, kind: str, text: str) -> None:
        if self.cut:
            return
        at = round(time.monotonic() - self.began, 6)
        if len(text) > self.left:
            self.cut = True
            if kind == "o" and self.left > 0:  # a command may print more than all of it at once
                self._add(at, kind, text[: self.left])
            kind, text = "m", f"the recording ends here: it reached {self._limit}"
        self.left -= len(text)
        self._add(at, kind, text)

    def _add(self, at: float, kind: str, text: str) -> None:
        self._held.append(json.dumps([at, kind, text]) + "\n")
        self._size += len(text)


def read_header(path: Path) -> dict[str, Any]:
    """The first line as data. Raises OSError; ValueError if the file is not a recording."""
    with open_own(path) as file:
        try:
            found = json.loads(file.readline(64 * 1024))
        except RecursionError:
            raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict) or found.get("version") != 2:
        raise ValueError("it is no asciicast of version 2")
    return found


def read_events(path: Path) -> Iterator[Event]:
    """The events of a recording in order, up to a line that was cut short by a kill. Raises OSError."""
    for event, _ in placed_events(path):
        yield event


def placed_events(path: Path, offset: int = 0, began: float = 0.0) -> Iterator[tuple[Event, int]]:
    """The events from a byte offset on, by default the first, each with the offset of the next. Raises OSError.

    Their times never decrease, whatever the file says. ``began`` is the time of the event before the offset.
    """
    with open_own(path) as file:
        file.seek(offset)
        at = offset or len(file.readline(_LONGEST_LINE))
        for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
            event = _event(line)
            if event is None:
                return
            at, began = at + len(line), min(max(began, event[0]), LONGEST_S)
            yield (began, *event[1:]), at


def batches(events: Iterable[Item], weigh: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Group what is read of a recording: at most 2000 at a time, and few of those that are long."""
    held: list[Item] = []
    size = 0
    for one in events:
        held.append(one)
        size += weigh(one)
        if len(held) == _BATCH or size > _HELD:
            yield held
            held, size = [], 0
    if held:
        yield held


def last_time(path: Path) -> float:
    """When the last event was, in seconds since the beginning. Reads only the end of the file. Raises OSError."""
    with open_own(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        whole_lines = file.read(_TAIL).split(b"\n")[1:]
    found = (event for line in reversed(whole_lines) if (event := _event(line)) is not None)
    last = next(found, None)
    if last is not None or size <= _TAIL:
        return min(max(0.0, last[0]), LONGEST_S) if last is not None else 0.0
    return max((at for at, _, _ in read_events(path)), default=0.0)


def _event(line: bytes) -> Event | None:
    try:
        at, kind, text = json.loads(line)
        found = float(at), str(kind), str(text)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return found if math.isfinite(found[0]) else None


def make(path: Path, line: str) -> None:
    """Create a file with mode 0600, and its folder if it is missing. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(line.encode())


def append(path: Path, lines: str) -> None:
    """Append to a file. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(fd, "ab") as file:
        file.write(lines.encode())


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


def mask_file(path: Path, mask: Mask, *, always: bool = False) -> None:
    """Mask a whole recording, because typed secrets arrive one character at a time.

    It is written again if that changed something, or ``always``, which leaves out a line that was cut short. Raises
    OSError, ValueError where it is no recording.
    """
    events = list(read_events(path))
    shown = [text for _, kind, text in events if kind == "o"]
    masked = mask(shown, _sizes(path, events))
    if not always and masked == shown:
        return
    header = json.dumps(read_header(path)) + "\n"
    texts = iter(masked)
    lines = [json.dumps([at, kind, next(texts) if kind == "o" else text]) + "\n" for at, kind, text in events]
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    make(fresh, header)
    append(fresh, "".join(lines))
    fresh.replace(path)


class Line(NamedTuple):
    """A line of output: the seconds at which it began and was complete, and its text."""

    began: float
    ended: float
    text: str


def lines(events: Iterable[Event]) -> Iterator[Line]:
    """Each line of output as text."""
    held, began, at = "", 0.0, 0.0
    for at, kind, text in events:
        if kind != "o":
            continue
        began = began if held else at
        *whole, held = (held + text).split("\n")
        for one in whole:
            yield Line(began, at, plain(one))
            began = at
        if len(held) > _LONGEST:
            yield Line(began, at, plain(held))
            held = ""
    if held:
        yield Line(began, at, plain(held))


def plain(text: str) -> str:
    """One line as text: without control codes, with backspaces and overwriting applied."""
    text = _CODES.sub("", text).rstrip("\r")
    if "\b" in text:
        text = _without_backspaces(text)
    return text.rpartition("\r")[2]


def _without_backspaces(text: str) -> str:
    """Each removes the character before it. One pass, as a guest may print a million of them."""
    kept: list[str] = []
    for one in text:
        if one != "\b":
            kept.append(one)
        elif kept:
            kept.pop()
    return "".join(kept)
