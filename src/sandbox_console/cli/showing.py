"""A guest's output made safe for a terminal, chunk by chunk."""

from __future__ import annotations

import codecs
import re

from sandbox_console.model.text import LINE_CAP, clean

_BEGUN = re.compile(r"\x1b(?:\[[0-9;:]{0,64})?\Z|\r\Z")  # what the next chunk may turn into a colour or a line's end


class LineCleaner:
    """Lines stay lines, tabs stay; all else that acts becomes visible. A half line is shown at once."""

    def __init__(self, *, keep_sgr: bool) -> None:
        self._keep_sgr = keep_sgr
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> bytes:
        """Clean a chunk; the beginning of a colour or of a character waits for its end."""
        text = self._held + self._decoder.decode(data)
        begun = _BEGUN.search(text, max(0, len(text) - 80))
        self._held = text[begun.start() :] if begun else ""
        return self._clean(text[: begun.start()] if begun else text)

    def flush(self) -> bytes:
        """Clean what waited."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return self._clean(text)

    def _clean(self, text: str) -> bytes:
        lines = text.replace("\r\n", "\n").split("\n")
        return "\n".join(clean(line, keep_sgr=self._keep_sgr, cap=LINE_CAP) for line in lines).encode()
