"""Parses the websocket's messages: JSON lists ``[kind, data]`` from the page; bytes and such lists to it."""

from __future__ import annotations

import json
import time
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


class Malformed(ValueError):
    """A message that the page would not have sent."""


class Typed(Struct, frozen=True):
    """Keys, pastes and mouse reports, as the terminal encodes them."""

    data: bytes


class Resized(Struct, frozen=True):
    """The terminal's new size, in cells."""

    columns: int
    rows: int


class Focused(Struct, frozen=True):
    """The window gained or lost the focus."""

    on: bool


class Ping(Struct, frozen=True):
    """A ping, to be answered with an equal text."""

    text: str


Message = Typed | Resized | Focused | Ping


def parse(text: str) -> Message:
    """Read one message. Raises Malformed."""
    match _loads(text):
        case ["stdin", str() as data]:
            return Typed(_encode(data))
        case ["resize", {"width": int() as width, "height": int() as height}]:
            return Resized(*cells(width, height))
        case ["focus"]:
            return Focused(True)
        case ["blur"]:
            return Focused(False)
        case ["ping", str() as data] if len(data) <= 64:
            return Ping(data)
    raise Malformed("not a message of this protocol")


def cells(width: Any, height: Any) -> tuple[int, int]:
    """A terminal's size, checked. Raises Malformed."""
    for size in (width, height):
        if type(size) is not int or not 1 <= size <= MOST_CELLS:
            raise Malformed(f"a terminal has 1 to {MOST_CELLS} columns and rows")
    return width, height


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
