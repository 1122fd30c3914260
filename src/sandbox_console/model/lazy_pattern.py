"""Regular expressions that are compiled when they are first used: each takes 0.1 to 1 ms of the start of a command."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


class _LatePattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, found)  # later calls do not come here
        return found


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return an object with the methods of ``re.compile(pattern, flags)``."""
    return cast("re.Pattern[AnyStr]", _LatePattern(pattern, flags))
