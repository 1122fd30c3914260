"""Parses TOML that somebody else may have written, in a time that grows with its size only."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_DEEPEST = 100
"""The most dots in a line of TOML outside strings: tomllib takes minutes for a dotted key of 100,000 parts."""

_STRINGS = re.compile(r"""\"{3}(?:\\.|[^\\])*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*""", re.DOTALL)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a table of TOML. Raises ValueError, and RecursionError, also for keys of very many parts."""
    if any(line.count(".") > _DEEPEST for line in _STRINGS.sub("", text).splitlines()):
        raise RecursionError
    return tomllib.loads(text)
