"""Names of keys as people read them."""

from __future__ import annotations

from textual.keys import key_to_character

_SHORT = {
    "slash": "/", "plus": "+", "minus": "-", "backslash": "\\", "space": "Space", "escape": "Esc", "delete": "Del",
    "enter": "Enter", "up": "↑", "down": "↓", "@": "Space",
}  # fmt: skip
"""Replaces key names that are less clear. Ctrl+Space reaches programs as NUL, whose name is Ctrl+@."""


def short_key(key: str) -> str:
    """Return a key in a few cells: ``^k``, ``=``."""
    *modifiers, base = key.split("+")
    return "".join("^" if one == "ctrl" else f"{one.title()}+" for one in modifiers) + _base(base)


def long_key(key: str) -> str:
    """Return a key as it is written in sentences: ``Ctrl+K``, ``=``, ``f2``."""
    *modifiers, base = key.split("+")
    shown = _base(base)
    return "".join(f"{one.title()}+" for one in modifiers) + (shown.upper() if "ctrl" in modifiers else shown)


def _base(base: str) -> str:
    return _SHORT.get(base) or key_to_character(base) or base
