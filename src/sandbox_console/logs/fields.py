"""Shows JSON lines in short form (time, level, message, then the other fields) or spread over several rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.logs.level import Level, level_named

PARSED_BYTES = 64 * 1024
"""A longer line is shown unchanged, as it is not a log record."""
DEPTH_ROWS = 400
"""How many rows of one spread line are shown."""
_MESSAGE = ("msg", "message", "event", "log", "text")
_LEVEL = ("level", "severity", "lvl", "levelname", "log.level")
_TIME = ("ts", "time", "timestamp", "@timestamp", "datetime", "date", "t")


class Folded(Struct, frozen=True):
    """A JSON line in short form. All texts in it come from the guest: clean them before showing them."""

    level: Level
    level_word: str
    at: str
    message: str
    rest: tuple[tuple[str, str], ...]


def parse(data: bytes) -> Mapping[str, Any] | None:
    """The JSON object in a line, or None. It takes 2 us for a usual line."""
    text = data.strip()
    if not text.startswith(b"{") or not text.endswith(b"}") or len(text) > PARSED_BYTES:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) and found else None


def fold(record: Mapping[str, Any]) -> Folded:
    """A record with its fields in the order in which a person reads them."""
    level_key, time_key, message_key = (_first(record, names) for names in (_LEVEL, _TIME, _MESSAGE))
    used = {level_key, time_key, message_key}
    word = record.get(level_key, "") if level_key else ""
    return Folded(
        level_named(word),
        str(word),
        _short_time(record[time_key]) if time_key else "",
        _flat(record[message_key]) if message_key else "",
        tuple((str(key), _flat(value)) for key, value in record.items() if key not in used),
    )


def spread(record: Mapping[str, Any]) -> list[str]:
    """A record as indented JSON, one string for each row."""
    rows = json.dumps(record, indent=2, ensure_ascii=False).split("\n")
    more = len(rows) - DEPTH_ROWS
    return [*rows[:DEPTH_ROWS], f"… {more:,} rows more"] if more > 0 else rows


def _first(record: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if isinstance(record.get(name), (str, int, float))), "")


def _flat(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _short_time(value: object) -> str:
    """The time of day in an ISO time; other times are returned unchanged."""
    text = str(value)
    return text[11:23].rstrip("Z") if len(text) >= 19 and text[10:11] in "T " and text[13:14] == ":" else text
