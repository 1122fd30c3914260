"""Whether the engine may have rotated away the beginning of a log. It does not say so, and counts nothing.

An engine drops a file only once all others are full. So as long as less was read than the others hold, nothing is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sandbox_console.model.log import MAYBE_ROTATED, LogGap, LogRecord

_DEFAULTS = {"local": ("20m", "5"), "json-file": ("", "1")}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_ROW_BYTES = 100  # at most what a driver adds to a line: its time, its stream and their names
_LAST_BYTES = 64 * 1024  # a file is full when the next row does not fit


class RotationCheck:
    """Counts what a reading of a whole log gives."""

    def __init__(self, log_config: Mapping[str, Any]) -> None:
        self._holds = _others_hold(log_config)
        self._read = 0
        self._first_ns = 0

    def feed(self, chunk: bytes, records: Sequence[LogRecord]) -> None:
        """Count bytes as the engine sends them, and what was read in them."""
        if records and not self._first_ns:
            self._first_ns = records[0].at_ns
        if self._holds is not None:
            # Quotes and backslashes take two bytes in a file of JSON.
            self._read += 2 * len(chunk) + _ROW_BYTES * chunk.count(b"\n")

    def gaps(self) -> list[LogGap]:
        """At the end of the reading: a gap, with the time of the first record, if older ones may be gone."""
        return [LogGap(self._first_ns, MAYBE_ROTATED)] if self._holds is not None and self._read >= self._holds else []


def _others_hold(log_config: Mapping[str, Any]) -> int | None:
    """The bytes that all files but one hold at least; None if nothing is rotated, or nothing is known of it."""
    driver, options = log_config.get("Type"), log_config.get("Config") or {}
    if driver not in _DEFAULTS:
        return None
    most, files = _DEFAULTS[driver]
    size, count = _bytes(options.get("max-size") or most), options.get("max-file") or files
    if size is None or not count.isdecimal():
        return None
    return (int(count) - 1) * max(size - _LAST_BYTES, 0)


def _bytes(text: str) -> int | None:
    """Bytes as Docker's options give them: ``10m``, ``1.5GB``; None for no limit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip().lower())
    return int(float(found[1]) * _UNITS[found[2]]) if found else None
