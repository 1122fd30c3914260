"""Translates Textual's key names to libghostty's."""

from __future__ import annotations

from typing import NamedTuple

from pyghostty import lib
from textual.keys import key_to_character

MODS = {"shift": 1, "ctrl": 2, "alt": 4, "super": 8}
"""GHOSTTY_MODS_* of ghostty/vt/key/event.h. Terminals do not send "meta" and "hyper"."""

_NAMED = {
    "up": lib.GHOSTTY_KEY_ARROW_UP,
    "down": lib.GHOSTTY_KEY_ARROW_DOWN,
    "left": lib.GHOSTTY_KEY_ARROW_LEFT,
    "right": lib.GHOSTTY_KEY_ARROW_RIGHT,
    "home": lib.GHOSTTY_KEY_HOME,
    "end": lib.GHOSTTY_KEY_END,
    "pageup": lib.GHOSTTY_KEY_PAGE_UP,
    "pagedown": lib.GHOSTTY_KEY_PAGE_DOWN,
    "insert": lib.GHOSTTY_KEY_INSERT,
    "delete": lib.GHOSTTY_KEY_DELETE,
    "backspace": lib.GHOSTTY_KEY_BACKSPACE,
    "enter": lib.GHOSTTY_KEY_ENTER,
    "return": lib.GHOSTTY_KEY_ENTER,
    "tab": lib.GHOSTTY_KEY_TAB,
    "escape": lib.GHOSTTY_KEY_ESCAPE,
    "space": lib.GHOSTTY_KEY_SPACE,
    **{f"f{n}": getattr(lib, f"GHOSTTY_KEY_F{n}") for n in range(1, 25)},
}
_LETTERS = {chr(code): getattr(lib, f"GHOSTTY_KEY_{chr(code).upper()}") for code in range(ord("a"), ord("z") + 1)}
_SIGNS = {
    "[": lib.GHOSTTY_KEY_BRACKET_LEFT,
    "]": lib.GHOSTTY_KEY_BRACKET_RIGHT,
    "\\": lib.GHOSTTY_KEY_BACKSLASH,
    "/": lib.GHOSTTY_KEY_SLASH,
    "-": lib.GHOSTTY_KEY_MINUS,
}
_CONTROL = {"@": b"\0", " ": b"\0", "^": b"\x1e", "_": b"\x1f", "/": b"\x1f", "\\": b"\x1c", "]": b"\x1d", "[": b"\x1b"}
_SIGN_NAMES = {"backslash": "\\", "underscore": "_", "slash": "/", "at": "@", "minus": "-", "plus": "+"}


class KeyEvent(NamedTuple):
    """A key press for libghostty's key encoder. ``fallback`` is what to send if the encoder returns nothing."""

    key: int
    mods: int
    consumed: int
    text: str
    unshifted: int
    fallback: bytes


def translate(name: str, character: str | None) -> KeyEvent:
    """Return the event of a Textual key name such as ``ctrl+shift+left``, ``alt+x``, ``A`` or ``ctrl+backslash``."""
    *modifiers, base = name.split("+") if name != "+" else [name]
    mods = sum(MODS.get(modifier, 0) for modifier in modifiers)
    if base in _NAMED:
        return KeyEvent(_NAMED[base], mods, 0, " " if base == "space" and not mods else "", 0, _space(base, mods))
    text = character if character and character.isprintable() else _SIGN_NAMES.get(base) or key_to_character(base) or ""
    shifted = text.isalpha() and text != text.lower()
    mods |= MODS["shift"] if shifted else 0
    low = text.lower()
    key = _LETTERS.get(low) or _SIGNS.get(low, lib.GHOSTTY_KEY_UNIDENTIFIED)
    consumed = MODS["shift"] if shifted else 0
    return KeyEvent(key, mods, consumed, text, ord(low) if len(low) == 1 else 0, _plain(text, mods))


def _plain(text: str, mods: int) -> bytes:
    if mods & MODS["ctrl"]:
        data = _CONTROL.get(text, b"")
    else:
        data = text.encode("utf-8", "replace")
    return b"\x1b" + data if data and mods & MODS["alt"] else data


def _space(base: str, mods: int) -> bytes:
    return _plain(" ", mods) if base == "space" else b""
