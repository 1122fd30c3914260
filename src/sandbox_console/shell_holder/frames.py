"""The messages between a holder and its viewers: a kind, a length, and that many bytes.

The console's side is in service/sessions/held_terminal.py.
"""

from __future__ import annotations

import struct

TYPED, RESIZE, ATTACH, ASK, END = b"T", b"R", b"A", b"Q", b"E"
"""From a viewer: typed bytes; its size; JSON of who attaches and how; a request for the state; a request to end."""

STATE, SNAPSHOT, OUTPUT, ENDED, REFUSED = b"S", b"P", b"O", b"X", b"N"
"""From the holder: JSON of its state; the whole screen again; output; JSON of how the shell ended; why it refuses."""

MOST_TYPED = 64 * 1024
"""The longest body that a holder accepts."""

MOST_SHOWN = 256 << 20
"""The longest body that a viewer accepts: a snapshot with all of the scrollback."""

SIZE = struct.Struct(">HH")
"""Columns and rows."""

HEAD = struct.Struct(">cI")


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """One message as bytes."""
    return HEAD.pack(kind, len(body)) + body


class Frames:
    """Takes messages out of a stream of bytes."""

    def __init__(self, limit: int) -> None:
        self._most = limit
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that are complete by now. Raises ValueError for one that is too long."""
        self._held += data
        found = []
        while len(self._held) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._held)
            if size > self._most:
                raise ValueError("the message is too long")
            if len(self._held) < HEAD.size + size:
                break
            found.append((kind, bytes(self._held[HEAD.size : HEAD.size + size])))
            del self._held[: HEAD.size + size]
        return found
