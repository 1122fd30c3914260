"""Reads and writes sizes and durations as people write them: 512M, 2G, 90s, 15m."""

from __future__ import annotations

import math
import re

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?b?)\s*\Z", re.IGNORECASE | re.ASCII)
_UNIT_MIB = {"k": 1 / 1024, "": 1.0, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|h|d|)\s*\Z", re.IGNORECASE | re.ASCII)
SIZE_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*[kKmMgGtT]?[iI]?[bB]?\s*$"
DURATION_PATTERN = r"^\s*[0-9]+(\.[0-9]+)?\s*[sSmMhHdD]?\s*$"
"""What the two parsers accept, as regular expressions for JSON Schema, which has no flags."""
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_size_mib(text: str) -> int:
    """Read "512", "512M", "1.5g" or "2GiB" as MiB (a bare number is MiB). Raises ValueError."""
    match = _SIZE.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a size; write 512M or 2G")
    mib = float(match[1]) * _UNIT_MIB[match[2].lower()]
    if not 1 <= mib < math.inf:
        raise ValueError(f"{text!r} is {'less than 1 MiB' if mib < 1 else 'too large'}")
    return int(mib)


def parse_duration_s(text: str) -> float:
    """Read "90", "90s", "15m", "2h" or "1d" as seconds. Raises ValueError."""
    match = _DURATION.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 2h or 1d")
    seconds = float(match[1]) * _SECONDS[match[2].lower()]
    if not math.isfinite(seconds):
        raise ValueError(f"{text!r} is too long")
    return seconds


def size_text(mib: int) -> str:
    """MiB in a form that `parse_size_mib` reads back: whole GiB as ``2G``, anything else as ``512M``."""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def duration_text(seconds: float) -> str:
    """Seconds in a form that `parse_duration_s` reads back, in the largest unit that divides them: ``2h``, ``90s``."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:.0f}{unit}"
    exact = repr(float(seconds))
    return f"{seconds:.25f}s" if "e" in exact else f"{exact}s".replace(".0s", "s")  # an exponent could not be read back
