"""Finds the severity of a log line, from the words that loggers write."""

from __future__ import annotations

import re
from enum import IntEnum

from sandbox_console.model.lazy_pattern import lazy_pattern

LOOKED_AT = 300
"""How many characters of a line are searched: a level is near its beginning."""


class Level(IntEnum):
    """Severity in rising order; NONE if a line does not say."""

    NONE = 0
    TRACE = 1
    DEBUG = 2
    INFO = 3
    WARN = 4
    ERROR = 5
    FATAL = 6


_WORDS = {
    "trace": Level.TRACE, "debug": Level.DEBUG, "dbg": Level.DEBUG, "info": Level.INFO, "inf": Level.INFO,
    "information": Level.INFO, "notice": Level.INFO, "warn": Level.WARN, "wrn": Level.WARN, "warning": Level.WARN,
    "error": Level.ERROR, "err": Level.ERROR, "severe": Level.ERROR, "fatal": Level.FATAL, "critical": Level.FATAL,
    "crit": Level.FATAL, "panic": Level.FATAL, "alert": Level.FATAL, "emergency": Level.FATAL,
}  # fmt: skip
_KLOG = {"I": Level.INFO, "W": Level.WARN, "E": Level.ERROR, "F": Level.FATAL}
_NUMBERS = {10: Level.TRACE, 20: Level.DEBUG, 30: Level.INFO, 40: Level.WARN, 50: Level.ERROR, 60: Level.FATAL}
# `level=warn`, `"severity": "ERROR"`; a capital word, or any case in brackets; klog's `E0102 15:04:05`.
_KEYED = lazy_pattern(r'\b(?:level|severity|lvl|levelname)"?\s{0,4}[=:]\s{0,4}"?([A-Za-z]{3,11})\b', re.IGNORECASE)
_CAPITAL = lazy_pattern(
    r"\b(TRACE|DEBUG|DBG|INFO|INF|NOTICE|WARN|WRN|WARNING|ERROR|ERR|SEVERE|FATAL|CRITICAL|CRIT|PANIC|ALERT)\b"
)
_BRACKETED = lazy_pattern(r"[\[<(]\s{0,4}([A-Za-z]{3,11})\s{0,4}[\])>]|^([A-Za-z]{4,11}): ")
_KLOG_LINE = lazy_pattern(r"^([IWEF])\d{4} \d\d:")


def level_of(text: str) -> Level:
    """The level that a line states. All patterns are bounded, so a line of any length takes the same few us."""
    head = text[:LOOKED_AT]
    if match := _KEYED.search(head):
        return _WORDS.get(match[1].lower(), Level.NONE)
    if match := _KLOG_LINE.match(head):
        return _KLOG[match[1]]
    if match := _CAPITAL.search(head):
        return _WORDS[match[1].lower()]
    for match in _BRACKETED.finditer(head):
        if level := _WORDS.get((match[1] or match[2]).lower()):
            return level
    return Level.NONE


def level_named(value: object) -> Level:
    """A level from the field of a JSON line, which is a word, or a number as pino and bunyan write it."""
    if isinstance(value, str):
        return _WORDS.get(value.strip().lower(), Level.NONE)
    if isinstance(value, int) and not isinstance(value, bool):
        return _NUMBERS.get(value // 10 * 10, Level.NONE)
    return Level.NONE
