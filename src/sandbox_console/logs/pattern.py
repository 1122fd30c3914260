"""Compiles regular expressions that a person types and that are matched against hostile text of any length.

Python's ``re`` backtracks: ``(a+)+$`` on 30 letters takes minutes, holds the interpreter's lock, and cannot be stopped.
RE2 runs in time linear in the text whatever the pattern, so it may run on the event loop chunk by chunk. It refuses
what it cannot do in linear time (look-around, backreferences).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from sandbox_console.errors import UsageError

MEMORY_BYTES = 8 << 20
"""The memory that one compiled pattern may use. When it is full, RE2 forgets states and goes on."""


_UNSEEN = re.compile(rb"\x1b\[[0-9;:]{0,64}m|\r(?=\n)")
"""What programs write and nobody sees: colours, and the carriage return at the end of a line."""
_WORDS = re.compile(r"[A-Za-z_ ][\w /=,@%&<>\"'-]*")
"""Text that is searched for literally and cannot be part of a colour sequence: none begins like this."""


class Pattern(Struct, frozen=True):
    """A compiled pattern. ``lines`` is for raw chunks, where no match crosses a line; ``shown`` is for drawn text.

    ``rest_of_line`` is ``lines`` with each match extended to the end of its line, so that each line has one match.
    ``as_seen`` means that bytes nobody sees could match or prevent a match, so that `seen` has to be searched.
    """

    text: str
    inverse: bool
    lines: Any
    rest_of_line: Any
    shown: Any
    as_seen: bool

    def matches(self, data: bytes) -> bool:
        """Whether a line is wanted; for an inverted pattern, one that does not match."""
        return self.is_in(data) != self.inverse

    def is_in(self, line: bytes) -> bool:
        """Whether the pattern matches somewhere in a line."""
        return self.lines.search(seen(line).removesuffix(b"\n")) is not None


def seen(data: bytes | bytearray) -> bytes:
    """Lines without colours and without carriage returns at their ends. It takes 0.5 us a line."""
    return _UNSEEN.sub(b"", data)


def has_unseen(chunk: bytearray, start: int, end: int) -> bool:
    """Whether a chunk has colours or carriage returns at line ends."""
    return chunk.find(b"\x1b[", start, end) >= 0 or chunk.find(b"\r\n", start, end) >= 0


def compile_pattern(text: str, *, invertible: bool = False) -> Pattern:
    """Compile a regular expression over lines. If it is all lower case, it ignores case. Raises UsageError.

    With ``invertible``, a leading ``!`` selects the lines that do not match; ``[!]`` is a literal exclamation mark.
    """
    inverse = invertible and text.startswith("!")
    body = text[1:] if inverse else text
    try:
        raw = body.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{text!r} is not valid text", hint="type it again") from None
    lines = _compiled(raw, text, never_nl=True)
    try:
        rest_of_line = _compiled(b"(?:%s)[^\n]*" % raw, text, never_nl=True)
    except UsageError:  # a \Q without \E also quotes what follows
        rest_of_line = lines
    shown = _compiled(body, text, never_nl=False)
    return Pattern(text, inverse, lines, rest_of_line, shown, _WORDS.fullmatch(body) is None)


def _compiled(body: bytes | str, text: str, *, never_nl: bool) -> Any:
    import re2  # takes 57 ms of CPU, which a screen without a pattern does not need

    options = re2.Options()
    options.case_sensitive = any(char.isupper() for char in text)
    options.never_nl = never_nl
    options.log_errors = False  # RE2 would print errors over the screen
    options.max_mem = MEMORY_BYTES
    prefix = b"(?m)" if isinstance(body, bytes) else "(?m)"
    try:
        return re2.compile(prefix + body, options)  # type: ignore[operator]
    except re2.error as error:
        raise UsageError(f"{text!r} is not a regular expression here: {_why(error)}", hint=_hint(error)) from None


def _why(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _hint(error: Exception) -> str:
    if "perl operator" in _why(error) or "escape sequence" in _why(error):
        return "look-around and backreferences are not supported: with them a pattern may run for ever"
    return "escape . * + ? ( [ { \\ | ^ $ with a backslash"
