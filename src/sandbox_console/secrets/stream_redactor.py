"""Masks known secrets in a stream, even if a value is split across chunks."""

from __future__ import annotations

from collections import deque

from sandbox_console.secrets import visible_text
from sandbox_console.secrets.canonical_codes import CanonicalCodes
from sandbox_console.secrets.control_strings import LineFeeds
from sandbox_console.secrets.redactor import Redactor, Size
from sandbox_console.secrets.screen import Screen, roams
from sandbox_console.secrets.terminal_line import Line

_SCREEN_MOST = 16 * 1024  # bytes that are remembered, for a cursor that goes up to them
_PIECE = 48 * 1024
_SCANS = 16  # how often a byte is read while it waits, on average: a flood of codes, byte by byte, took minutes
_SCANNED_AT_ONCE = 128 * 1024  # bytes that may be read again before that counts
_LINE_MOST = 4096  # bytes of a line that are remembered, for a cursor that goes back to them


class StreamRedactor:
    """Masks one stream's bytes, even if a value is split across chunks."""

    def __init__(self, redactor: Redactor, size: Size | None = None) -> None:
        """``size`` is that of the terminal, if it is known."""
        self._redactor, self._size = redactor, size
        self._columns = size[0] if size is not None else 0
        self._codes = CanonicalCodes() if size is not None else None  # a log keeps its bytes
        self._line_feeds = LineFeeds() if size is not None else None  # without a terminal they are ends of lines
        self._returns = False  # the cursor is sent to the left edge first, as its column is not known any more
        self._screen: Screen | None = None
        self._recent: deque[bytes] = deque()  # what may be on the screen, while the cursor only goes on
        self._recent_size = 0
        self._held = b""
        self._unread = bytearray()  # after what is held
        self._credit = _SCANNED_AT_ONCE
        self._line, self._since = Line(self._columns), b""  # the line as shown, and what follows it
        self._since_parted = 0  # bytes after a part that was shown although it may begin a value

    @property
    def holding(self) -> bool:
        """Whether bytes are held back."""
        return bool(self._held or self._unread)

    def feed(self, data: bytes) -> bytes:
        """Bytes that may be shown so far. The last ones are held back while they may begin a value or a character."""
        if len(data) > _PIECE and not visible_text.plain(data):  # longer control strings are not followed at once
            return b"".join(self.feed(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE))
        data = self._codes.feed(data) if self._codes is not None else data
        self._unread += data
        self._credit = min(self._credit + _SCANS * len(data), _SCANNED_AT_ONCE)
        size = len(self._held) + len(self._unread)
        if self._held and size > self._credit < _SCANNED_AT_ONCE:
            return b""
        self._credit -= size
        return self._read()

    def _read(self) -> bytes:
        """Read what is held and what followed. Returns what may be shown of it."""
        data, self._unread = self._held + bytes(self._unread), bytearray()
        torn = data[len(data) - visible_text.torn(data) :]
        data = data[: len(data) - len(torn)]
        if not self._redactor.active:  # lines matter only for values: 1 GiB of zeros took 100 s of CPU
            shown, self._held = data, b""
        elif self._goes_on(data):
            shown, self._held = self._redactor.split(data)
        else:
            shown, self._held = self._redactor.split_seen(data, self._shown())
        self._held += torn
        return self._on_screen(shown)

    def _goes_on(self, data: bytes) -> bool:
        """Whether all of the text is written behind what is there, and visible."""
        if self._line.moved or not visible_text.plain(data):
            return False
        if not self._columns or b"\t" not in data:
            return True
        first, *lines = data.split(b"\n")
        return not self._shown().moves(first) and all(
            len(line.expandtabs(visible_text.TAB)) < self._columns for line in lines
        )

    def resize(self, columns: int, rows: int) -> None:
        """Follow a new size of the terminal."""
        if self._size is not None and self._redactor.active:
            self._follow(columns)
        self._size = columns, rows
        if self._screen is not None:
            self._screen.resize(columns, rows)

    def _follow(self, columns: int) -> None:
        """Follow a new width. Some terminals then arrange rows anew, and others do not."""
        line = self._shown()
        if columns != self._columns and not line.fits(columns):
            self._screen = self._screen or self._new_screen()
            self._returns = not self._screen.alternate
        self._line, self._columns = line.resized(columns), columns

    def _new_screen(self) -> Screen:
        screen = Screen(self._redactor, self._size)
        screen.mask(b"".join(self._recent))
        return screen

    def flush(self) -> bytes:
        """The remaining bytes, at the stream's end or when nothing has followed for a while."""
        shown = self._read() if self._unread else b""
        return shown + self._flushed()

    def _flushed(self) -> bytes:
        held, self._held = self._held, b""
        if self._goes_on(held):
            held = self._redactor.apply(held)
        else:
            held = self._redactor.settled(held, self._shown())
        if held:  # it may begin a value: the rest is looked for beside what the line shows
            self._shown().parted, self._since_parted = True, 0
        return self._on_screen(held)

    def _on_screen(self, shown: bytes) -> bytes:
        """What may be shown, without what is put together by moves to other rows."""
        if self._redactor.active:
            shown, self._returns = b"\r" + shown if self._returns and shown else shown, self._returns and not shown
            shown = self._line_feeds.feed(shown) if self._line_feeds is not None else shown
            if self._screen is None and roams(shown):
                self._screen = self._new_screen()
            if self._screen is not None:
                shown = self._redactor.masked_on(self._screen, shown)
                self._screen = None if self._screen.forgettable else self._screen
            self._keep(shown)
        self._note(shown)
        return shown

    def _keep(self, shown: bytes) -> None:
        self._recent.append(shown)
        self._recent_size += len(shown)
        while self._recent_size - len(self._recent[0]) > _SCREEN_MOST:
            self._recent_size -= len(self._recent.popleft())

    def _shown(self) -> Line:
        self._line.write(visible_text.lasting(self._since))
        self._since = b""
        return self._line

    def _note(self, shown: bytes) -> None:
        """Remember what the current line shows."""
        at = shown.rfind(b"\n") + 1
        if at:
            line = self._line if b"\r\n" in shown or not self._columns else self._shown()
            self._line, self._since = line.below(shown[:at]), b""
        rest = shown[at:]
        if self._line.moved or visible_text.moves(rest) or (self._columns and self._shown().moves(rest)):
            self._shown().write(rest)
        elif rest:
            self._since += rest
            if len(self._since) > _LINE_MOST:
                self._shorten()
        if self._line.parted:  # an endless line is followed at 11 MB/s only
            self._since_parted += len(rest)
            self._line.parted = self._since_parted < _SCREEN_MOST

    def _shorten(self) -> None:
        """Forget the beginning of an endless line."""
        if self._columns:  # which decides in which column its end is
            self._shown()
        else:
            self._since = self._since[-_LINE_MOST:]
