"""Names that mix alphabets: how a look-alike is made (a Cyrillic letter in a Latin word)."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_TOGETHER = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
"""Scripts that one language writes together (Unicode Technical Standard 39, "highly restrictive")."""


@lru_cache(maxsize=4096)
def mixes_scripts(text: str) -> bool:
    """Whether its letters are of alphabets that no language mixes."""
    found = {_script(char) for char in text[:256] if char.isalpha()}
    return len(found) > 1 and not any(found <= together for together in _TOGETHER)


def _script(char: str) -> str:
    # The standard library has no table of scripts; the first word of a letter's name is its script.
    return unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]
