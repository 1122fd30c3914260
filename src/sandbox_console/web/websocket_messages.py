"""Parses the websocket's messages: JSON lists ``[kind, data]`` from the page; bytes and such lists to it."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Struct

PROTOCOL = "sandbox-console.v1"
TICKET_PREFIX = "ticket."
MOST_BYTES = 64 * 1024
MOST_CELLS = 1000
RATE = 200.0
"""Messages a second, sustained."""
BURST = 400
LATE_S = 3.0
"""Keys that were on their way for longer are dropped."""
_PINGS = 5


class Malformed(ValueError):
    """A message that the page would not have sent."""


class Typed(Struct, frozen=True):
    """Keys, pastes and mouse reports, as the terminal encodes them. ``at_ms`` is when, by the page's clock."""

    data: bytes
    at_ms: int | None = None


class Resized(Struct, frozen=True):
    """The terminal's new size, in cells."""

    columns: int
    rows: int


class Focused(Struct, frozen=True):
    """The window gained or lost the focus."""

    on: bool


class ThemeSwitched(Struct, frozen=True):
    """The button that switches between dark and light was pressed."""


class Ping(Struct, frozen=True):
    """A ping, to be answered with an equal text: the page's clock, in milliseconds."""

    text: str


Message = Typed | Resized | Focused | ThemeSwitched | Ping


def parse(text: str) -> Message:
    """Read one message. Raises Malformed."""
    match _loads(text):
        case ["stdin", str() as data]:
            return Typed(_encode(data))
        case ["stdin", str() as data, int() as at_ms]:
            return Typed(_encode(data), at_ms)
        case ["resize", {"width": int() as width, "height": int() as height}]:
            return Resized(*cells(width, height))
        case ["focus"]:
            return Focused(True)
        case ["blur"]:
            return Focused(False)
        case ["theme"]:
            return ThemeSwitched()
        case ["ping", str() as data] if len(data) <= 64:
            return Ping(data)
    raise Malformed("not a message of this protocol")


def cells(width: Any, height: Any) -> tuple[int, int]:
    """A terminal's size, checked. Raises Malformed."""
    for size in (width, height):
        if type(size) is not int or not 1 <= size <= MOST_CELLS:
            raise Malformed(f"a terminal has 1 to {MOST_CELLS} columns and rows")
    return width, height


class Delay:
    """Tells keys that were held up on the way, as by a dead tunnel, so that they are not typed long afterwards.

    The clocks of page and server differ by a constant, which is the least difference among the last pings.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pings: deque[float] = deque(maxlen=_PINGS)

    def note(self, ping: Ping) -> None:
        """Take a ping as a sample."""
        if ping.text.isdecimal():
            self._pings.append(self._clock() - int(ping.text) / 1000)

    def is_late(self, typed: Typed) -> bool:
        """Whether keys were on their way for too long."""
        if typed.at_ms is None or not self._pings:
            return False
        return self._clock() - typed.at_ms / 1000 - min(self._pings) > LATE_S


class Allowance:
    """A token bucket: ``BURST`` messages at once, ``RATE`` a second after that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()

    def take(self) -> bool:
        """Whether one more message is within the limit."""
        now = self._clock()
        self._left = min(float(BURST), self._left + (now - self._at) * RATE)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed("not JSON") from error


def _encode(data: str) -> bytes:
    try:
        return data.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Malformed("half a surrogate pair") from error
