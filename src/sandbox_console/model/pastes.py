"""Makes sure that pasted text is never taken for keys, whatever it contains."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

START, END = "\x1b[200~", "\x1b[201~"
"""What a terminal puts around a paste (bracketed paste, in xterm's list of control sequences)."""

QUIET_S = 0.08
"""A paste ends with the last `END` before a pause of this length. Nobody presses a key this soon after pasting."""

_MARKS = re.compile(r"(?:\x1b\[|\x9b)20[01]~")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BREAK = re.compile(r"[\r\n]")

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


def clean_paste(text: str) -> str:
    """A paste without the marks and control characters that could end its brackets early and type commands."""
    return _CONTROLS.sub("", _MARKS.sub("", text))


def has_line_breaks(text: str) -> bool:
    """Whether a shell without bracketed paste would run part of the text at once."""
    return _BREAK.search(text) is not None


class PasteGuard:
    """Holds a paste back until its real end is known, and passes it on without marks and control characters.

    Some terminals send a clipboard's text as it is. An `END` inside it would end the paste early, and the rest would
    arrive as keys. The terminal's own `END` comes last, so everything that arrives before it without a pause is the
    paste.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before = ""
        self._held: str | None = None
        self._at = 0.0

    def feed(self, text: str) -> str:
        """The part of the input so far that may be parsed."""
        released = self.release()
        self._at = self._clock()
        if self._held is not None:
            self._held += text
            return released
        return released + self._outside(text)

    def release(self) -> str:
        """The paste that has ended, and the keys after it; empty while it may go on. Call this a few times a second."""
        if self._held is None or END not in self._held or self._clock() - self._at < QUIET_S:
            return ""
        pasted, _, after = self._held.rpartition(END)
        self._held, self._before = None, ""
        return START + clean_paste(pasted) + END + self._outside(after)

    def _outside(self, text: str) -> str:
        """Pass keys on. A mark may have begun in the previous text, which has already been passed on."""
        joined = self._before + text
        at = joined.find(START)
        if at < 0:
            self._before = joined[1 - len(START) :]
            return text
        begun = max(at - len(self._before), 0)
        self._held = joined[at + len(START) :]
        passed = len(self._before) - at  # characters of the mark that the parser has seen
        if passed <= 0:
            return text[:begun]
        # The release writes the whole mark: it completes the part that was passed on, and an empty paste ends.
        return START[passed:] + END


class Parser(Protocol[T_co]):
    """Textual's parser of terminal input, as its drivers use it."""

    def feed(self, data: str) -> Iterable[T_co]:
        """Parse more input."""
        ...

    def tick(self) -> Iterable[T_co]:
        """Parse what depends on the time, such as a lone escape key."""
        ...


class GuardedParser(Generic[T]):
    """A parser behind a `PasteGuard`."""

    def __init__(self, parser: Parser[T]) -> None:
        self._parser = parser
        self._guard = PasteGuard()

    def feed(self, data: str) -> Iterable[T]:
        """Parse input. An empty string is its end."""
        text = self._guard.feed(data) if data else ""
        if text or not data:
            yield from self._parser.feed(text)

    def tick(self) -> Iterable[T]:
        """Parse a paste that has ended, and what depends on the time."""
        if text := self._guard.release():
            yield from self._parser.feed(text)
        yield from self._parser.tick()
