"""A recording as the screen of an emulator at any second, with keyframes so that a jump is short.

The file may have been changed by anybody: sizes and times are within limits, and bytes go only into the emulator.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sandbox_console.recording.cast import Event, batches, placed_events, read_header
from sandbox_console.tui.widgets.terminal.emulator import CHUNK, Emulator

KEY_CHARS = 1 << 20
"""A keyframe is made after so much output: it takes 20 to 40 ms to interpret."""

KEYS_MOST = 48
"""With more keyframes every other one is dropped. One of 120 columns with scrollback takes 0.6 MB."""

LARGEST = (500, 200)
USUAL = (80, 24)
_EVENT_WEIGHT = 64
"""What an event without text counts as, in characters: reading it takes as long as interpreting those."""

MakeEmulator = Callable[[int, int], Emulator]
Placed = tuple[Event, int]


class Keyframe(NamedTuple):
    """The screen after everything before a byte offset; ``at`` is the time of the last event that it shows."""

    at: float
    offset: int
    emulator: Emulator


class _Source:
    """Events from a keyframe on. They are read in a thread."""

    def __init__(self, path: Path, offset: int, began: float) -> None:
        found = placed_events(path, offset, began)
        self._batches: Iterator[list[Placed]] = batches(found, lambda one: _EVENT_WEIGHT + len(one[0][2]))
        self._held: deque[Placed] = deque()

    async def next(self) -> Placed | None:
        """The next event, which stays the next one until ``take``. None at the end. Raises OSError."""
        if not self._held:
            self._held.extend(await asyncio.to_thread(next, self._batches, []))
        return self._held[0] if self._held else None

    def take(self) -> None:
        """Go on to the event after the next one."""
        self._held.popleft()


class Playback:
    """Plays a recording: ``emulator`` shows it at the second ``at``. Call ``open`` first, and ``close`` at the end.

    Only one of ``advance`` and ``seek`` may run at a time. ``index`` runs beside them, and makes the keyframes.
    """

    def __init__(self, path: Path, make_emulator: MakeEmulator) -> None:
        self._path, self._make = path, make_emulator
        self.at = 0.0
        self.next_at: float | None = None
        """The time of the next event; None at the end."""
        self.indexed = False
        self._every = KEY_CHARS
        self._keyframes: list[Keyframe] = []

    async def open(self) -> None:
        """Read the header. Raises OSError; ValueError if it is no recording."""
        header = await asyncio.to_thread(read_header, self._path)
        size = _size(header.get("width"), header.get("height"))
        self._keyframes.append(Keyframe(0.0, 0, self._make(*size)))
        self.emulator = self._make(*size)
        self._source = _Source(self._path, 0, 0.0)
        await self._look()

    async def advance(self, to: float) -> None:
        """Show what was written until a time that is not before ``at``. Raises OSError."""
        while (placed := await self._source.next()) is not None and placed[0][0] <= to:
            self._source.take()
            await _feed(self.emulator, placed[0])
        self.at = max(to, 0.0)
        await self._look()

    async def seek(self, to: float) -> None:
        """Show the screen at any time. Raises OSError."""
        known = self._keyframes[max(0, bisect_right([one.at for one in self._keyframes], to) - 1)]
        if to < self.at or known.at > self.at:
            fresh = known.emulator.duplicate()
            self.emulator.close()
            self.emulator, self._source = fresh, _Source(self._path, known.offset, known.at)
        await self.advance(to)

    async def index(self) -> None:
        """Read the whole recording once, and make its keyframes. Raises OSError."""
        first = self._keyframes[0]
        emulator, source, since = first.emulator.duplicate(), _Source(self._path, 0, 0.0), 0
        try:
            while (placed := await source.next()) is not None:
                source.take()
                event, offset = placed
                await _feed(emulator, event)
                since += _EVENT_WEIGHT + len(event[2])
                if since >= self._every:
                    since = 0
                    self._keep(Keyframe(event[0], offset, emulator.duplicate()))
                    await asyncio.sleep(0)
        finally:
            emulator.close()
        self.indexed = True

    def close(self) -> None:
        """Free the emulators."""
        for emulator in (self.emulator, *(one.emulator for one in self._keyframes)):
            emulator.close()

    async def _look(self) -> None:
        placed = await self._source.next()
        self.next_at = None if placed is None else placed[0][0]

    def _keep(self, keyframe: Keyframe) -> None:
        self._keyframes.append(keyframe)
        if len(self._keyframes) > KEYS_MOST:
            for dropped in self._keyframes[1::2]:
                dropped.emulator.close()
            del self._keyframes[1::2]
            self._every *= 2


async def _feed(emulator: Emulator, event: Event) -> None:
    _, kind, text = event
    if kind == "o":
        data = text.encode("utf-8", "replace")
        for at in range(0, len(data), CHUNK):
            emulator.feed(data[at : at + CHUNK])
            if len(data) >= CHUNK:
                await asyncio.sleep(0)
    elif kind == "r" and re.fullmatch(r"[0-9]{1,5}x[0-9]{1,5}", text):
        emulator.resize(*_size(*map(int, text.split("x"))))


def _size(cols: Any, rows: Any) -> tuple[int, int]:
    """A size within limits, whatever the file says."""
    found = zip((cols, rows), USUAL, LARGEST, strict=True)
    wide, high = (min(max(one, 1), most) if isinstance(one, int) and one else usual for one, usual, most in found)
    return wide, high
